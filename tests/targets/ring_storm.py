"""Two greenlets switch to each other 100,000 times a second under a hub (`rate=0`: all it can).

Every switch ends a tiny hold: with a threshold of next to nothing and a tiny ring, most
events are lost and must be counted. The number of switches between ready and quit is known
exactly, because the main greenlet waits for the harness in a plain read.
"""

from __future__ import annotations

import os
from time import monotonic_ns
from typing import Any

import gevent
import greenlet

from truth import option, scripted

BATCH = 1000  # switches there and back between two naps


def echo() -> None:
    """Switch back for ever; ended by an exception from outside."""
    parent: Any = greenlet.getcurrent().parent
    while True:
        parent.switch()


def storm(duration_ns: int, switches_per_second: int) -> int:
    """Gives the number of switches made."""
    other = greenlet.greenlet(echo)
    switches = 0
    begin_ns = monotonic_ns()
    while monotonic_ns() < begin_ns + duration_ns:
        for _ in range(BATCH):
            other.switch()
        switches += 2 * BATCH
        early_s = seconds_early(begin_ns, switches, switches_per_second)
        if early_s > 0:
            gevent.sleep(early_s)
            switches += 2
    other.throw(greenlet.GreenletExit)
    return switches + 2


def seconds_early(begin_ns: int, switches: int, switches_per_second: int) -> float:
    """How far the storm is ahead of its rate."""
    if not switches_per_second:
        return 0.0
    return switches / switches_per_second - (monotonic_ns() - begin_ns) / 1e9


def main() -> None:
    with scripted(os.read) as truth:
        begin_ns = monotonic_ns()
        # main -> hub -> stormer, the storm, stormer -> hub -> main
        duration_ns = int(option("seconds", 2.0) * 1e9)
        switches = 4 + gevent.spawn(storm, duration_ns, option("rate", 100_000)).get()
        took_ns = monotonic_ns() - begin_ns
        truth.figure("switches", switches)
        truth.figure("switches_per_second", int(switches * 1e9 / took_ns))
    os._exit(0)


if __name__ == "__main__":
    main()
