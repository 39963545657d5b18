"""A greenlet waits in fcntl.flock for a file that another process has locked for 80 ms."""

from __future__ import annotations

import fcntl
import os
import sys
from typing import IO

import gevent
from gevent.os import nb_read

from helper_process import Helper
from truth import Truth, option, scripted


def update_ledger(truth: Truth, ledger: IO[str]) -> None:
    with truth.act("syscall:flock", "bookkeeper"):
        fcntl.flock(ledger, fcntl.LOCK_EX)  # GUILTY
    fcntl.flock(ledger, fcntl.LOCK_UN)


def bookkeeper(truth: Truth, holder: Helper, ledger: IO[str], times: int) -> None:
    for _ in range(times):
        holder.say("lock")
        holder.hear()
        update_ledger(truth, ledger)
        gevent.sleep(0.01)


def main() -> None:
    path = os.path.join(sys.argv[1], "ledger")
    holder = Helper(nb_read, "lock_holder", path, str(option("ms", 80.0)))
    with open(path, "w") as ledger, scripted(nb_read) as truth:
        gevent.spawn(bookkeeper, truth, holder, ledger, option("times", 6)).get()


if __name__ == "__main__":
    main()
