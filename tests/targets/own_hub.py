"""A dispatcher of its own over greenlet: polls with select, and switches to whoever is due."""

from __future__ import annotations

import os
import select
from time import monotonic_ns
from typing import List, Tuple

from greenlet import getcurrent, greenlet

from truth import Truth, option, scripted

WAITING: List[Tuple[int, greenlet]] = []


def pause(seconds: float) -> None:
    current = getcurrent()
    WAITING.append((monotonic_ns() + int(seconds * 1e9), current))
    current.parent.switch()


def compute(truth: Truth) -> None:
    total = 0
    with truth.act("cpu", "worker"):
        deadline_ns = monotonic_ns() + 40_000_000
        while monotonic_ns() < deadline_ns:  # GUILTY
            total += 1  # GUILTY


def worker(truth: Truth, times: int) -> None:
    for _ in range(times):
        pause(0.03)
        compute(truth)


def dispatch() -> None:
    while WAITING:
        WAITING.sort(key=lambda entry: entry[0])
        due_ns, one = WAITING.pop(0)
        left_s = (due_ns - monotonic_ns()) / 1e9
        if left_s > 0:
            select.select([], [], [], left_s)
        one.switch()


def main() -> None:
    with scripted(os.read) as truth:
        greenlet(worker).switch(truth, option("times", 10))
        dispatch()


if __name__ == "__main__":
    main()
