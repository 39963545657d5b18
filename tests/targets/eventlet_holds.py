"""A greenlet of eventlet computes for 40 ms at a time, and sleeps in between."""

from __future__ import annotations

import os
from time import monotonic_ns

import eventlet

from truth import Truth, option, scripted


def compute(truth: Truth) -> None:
    total = 0
    with truth.act("cpu", "worker"):
        deadline_ns = monotonic_ns() + 40_000_000
        while monotonic_ns() < deadline_ns:  # GUILTY
            total += 1  # GUILTY


def worker(truth: Truth, times: int) -> None:
    for _ in range(times):
        eventlet.sleep(0.03)
        compute(truth)


def main() -> None:
    with scripted(os.read) as truth:
        eventlet.spawn(worker, truth, option("times", 10)).wait()


if __name__ == "__main__":
    main()
