"""One greenlet computes in pure Python for 60 ms at a time, by the clock."""

from __future__ import annotations

from time import monotonic_ns

import gevent
from gevent.os import nb_read

from truth import Truth, option, scripted


def count_primes(truth: Truth, duration_ns: int) -> int:
    total = 0
    with truth.act("cpu", "cruncher"):
        deadline_ns = monotonic_ns() + duration_ns
        while monotonic_ns() < deadline_ns:  # GUILTY
            total += 1  # GUILTY
    return total


def cruncher(truth: Truth, times: int, duration_ns: int, pause_s: float) -> None:
    for _ in range(times):
        count_primes(truth, duration_ns)
        gevent.sleep(pause_s)


def main() -> None:
    with scripted(nb_read) as truth:
        duration_ns = int(option("ms", 60.0) * 1e6)
        pause_s = option("pause_ms", 10.0) / 1e3
        gevent.spawn(cruncher, truth, option("times", 10), duration_ns, pause_s).get()


if __name__ == "__main__":
    main()
