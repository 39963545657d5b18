"""Two kinds of greenlets compute by one helper and by functions of their own, in short turns.

No turn is a long hold. The figure `cpu_ns` has the CPU time of each function by the thread's own
clock, `kinds_ns` that of each kind.
"""

from __future__ import annotations

from collections import Counter
from time import monotonic_ns, thread_time_ns
from typing import Callable
from typing import Counter as CounterOf

import gevent
from gevent.os import nb_read

from truth import option, scripted

CPU_NS: CounterOf[str] = Counter()
KINDS_NS: CounterOf[str] = Counter()


def helper(turns: int) -> None:
    total = 0
    for number in range(turns):
        total += number


def own(turns: int) -> None:
    total = 0
    for number in range(turns):
        total += number


def timed(kind: str, function: Callable[[int], None], turns: int) -> None:
    begin_ns = thread_time_ns()
    function(turns)
    spent_ns = thread_time_ns() - begin_ns
    CPU_NS[function.__name__] += spent_ns
    KINDS_NS[kind] += spent_ns


def frequent(until_ns: int, turns: int) -> None:
    while monotonic_ns() < until_ns:
        timed("frequent", own, 3 * turns)
        gevent.sleep(0)
        timed("frequent", helper, turns)
        gevent.sleep(0)


def rare(until_ns: int, turns: int) -> None:
    while monotonic_ns() < until_ns:
        timed("rare", helper, turns)
        gevent.sleep(0)


def main() -> None:
    with scripted(nb_read) as truth:
        until_ns = monotonic_ns() + int(option("seconds", 3.0) * 1e9)
        turns = option("turns", 2000)
        greenlets = [gevent.spawn(kind, until_ns, turns) for kind in (frequent, rare)]
        gevent.joinall(greenlets, raise_error=True)
        truth.figure("cpu_ns", dict(CPU_NS))
        truth.figure("kinds_ns", dict(KINDS_NS))


if __name__ == "__main__":
    main()
