"""The hub runs short callbacks on end and its loop never sleeps: busy, but no hold is long.

gevent looks at the clock after each 50 callbacks of one turn of its loop, so they are
short. A check watcher, which the loop runs once a turn after it polled, keeps the longest turn.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Any, List

import gevent
from gevent.event import Event
from gevent.os import nb_read

from truth import option, scripted

STEP_NS = 100_000


def step(loop: Any, left: List[int], finished: Event) -> None:
    """A tenth of a millisecond of work, and the next step asked for."""
    deadline_ns = monotonic_ns() + STEP_NS
    while monotonic_ns() < deadline_ns:
        pass
    left[0] -= 1
    if left[0]:
        loop.run_callback(step, loop, left, finished)
    else:
        finished.set()


def main() -> None:
    loop = gevent.get_hub().loop
    turns: List[int] = []
    with scripted(nb_read) as truth:
        check = loop.check()
        check.start(lambda: turns.append(monotonic_ns()))
        finished = Event()
        loop.run_callback(step, loop, [option("steps", 15_000)], finished)
        finished.wait()
        check.stop()
        check.close()
        truth.figure("turns", len(turns))
        truth.figure("longest_hold_ns", max(b - a for a, b in zip(turns, turns[1:])))


if __name__ == "__main__":
    main()
