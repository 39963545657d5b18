"""One hold that lasts until the harness says so: for holds still open, and attach in mid-call.

The event `holding` comes right before the hold begins. `how=read` (default) and `how=cpu`
end at the command `release`; `how=sleep` ends after `seconds`, or never if the harness kills
the target. What follows the hold is ordinary: short naps and one more blocking act.
"""

from __future__ import annotations

import os
import threading
import time

import gevent
from gevent.os import nb_read

from truth import Truth, option, scripted, sleep_reason

RELEASE = b"release\n"


def sleep_long(truth: Truth, seconds: float) -> None:
    with truth.act(sleep_reason(), "holder", announced=True):
        time.sleep(seconds)  # GUILTY


def read_until_released(truth: Truth) -> None:
    fd = truth.control.commands_fd
    os.set_blocking(fd, True)
    with truth.act("syscall:read", "holder", announced=True):
        command = os.read(fd, len(RELEASE))  # GUILTY
    os.set_blocking(fd, False)
    assert command == RELEASE, command


def compute_until_released(truth: Truth) -> None:
    released: list[bytes] = []
    fd = truth.control.commands_fd
    os.set_blocking(fd, True)
    listener = threading.Thread(target=lambda: released.append(os.read(fd, len(RELEASE))))
    listener.start()
    total = 0
    with truth.act("cpu", "holder", announced=True):
        while not released:  # GUILTY
            total += 1  # GUILTY
    listener.join()
    os.set_blocking(fd, False)
    assert released == [RELEASE], released


def sleep_afterwards(truth: Truth) -> None:
    with truth.act(sleep_reason(), "holder"):
        time.sleep(0.04)  # GUILTY


def hold(truth: Truth, how: str) -> None:
    if how == "sleep":
        sleep_long(truth, option("seconds", 30.0))
    elif how == "cpu":
        compute_until_released(truth)
    else:
        read_until_released(truth)


def holder(truth: Truth, how: str) -> None:
    hold(truth, how)
    for _ in range(5):
        gevent.sleep(0.005)
    sleep_afterwards(truth)


def main() -> None:
    with scripted(nb_read) as truth:
        gevent.spawn(holder, truth, option("how", "read")).get()


if __name__ == "__main__":
    main()
