"""Greenlets that hand over as fast as it goes, and one that sometimes holds the hub.

`greenlets`, each `depth` frames deep, for `seconds`; with `work_us` each computes so long at each
turn, by which the number of switches a second is chosen. Every `pause_ms` the holder computes for
`hold_ms`, or sleeps so long without giving way, in turns; with `hub=1` both are done by callbacks
of the loop. With `contexts=1` each turn also runs a function in a context of its own (PEP 567).
The figure `turns` counts the hand-overs, of which each is a switch to the hub and one back;
`longest_gap_ns` is the longest time between two of them beside the acts.
"""

from __future__ import annotations

import time
from contextvars import Context, copy_context
from time import monotonic_ns
from typing import Callable, Optional

import gevent
from gevent.os import nb_read

from truth import Truth, option, scripted, sleep_reason


class Crowd:
    def __init__(self, until_ns: int, work_ns: int, context: Optional[Context]) -> None:
        self.turns = 0
        self.longest_gap_ns = 0
        self.last_ns = monotonic_ns()
        self._until_ns = until_ns
        self._work_ns = work_ns
        self._context = context

    def note(self) -> int:
        now_ns = monotonic_ns()
        self.longest_gap_ns = max(self.longest_gap_ns, now_ns - self.last_ns)
        self.last_ns = now_ns
        return now_ns

    def hand_over(self) -> None:
        sleep, work_ns, until_ns = gevent.sleep, self._work_ns, self._until_ns
        now_ns = self.note()
        while now_ns < until_ns:
            while work_ns and monotonic_ns() - now_ns < work_ns:
                pass
            if self._context is not None:
                self._context.run(int)
            sleep(0)
            self.turns += 1
            now_ns = self.note()

    def descend(self, frames: int) -> None:
        if frames > 1:
            self.descend(frames - 1)
        else:
            self.hand_over()


def compute(truth: Truth, duration_ns: int) -> None:
    total = 0
    with truth.act("cpu", "holder"):
        deadline_ns = monotonic_ns() + duration_ns
        while monotonic_ns() < deadline_ns:  # GUILTY
            total += 1  # GUILTY


def stop_all(truth: Truth, duration_ns: int) -> None:
    with truth.act(sleep_reason(), "holder"):
        time.sleep(duration_ns / 1e9)  # GUILTY


class Holder:
    def __init__(self, truth: Truth, crowd: Crowd, pause_s: float, hold_ns: int) -> None:
        self._truth = truth
        self._crowd = crowd
        self._pause_s = pause_s
        self._hold_ns = hold_ns

    def run(self, until_ns: int, in_hub: bool) -> None:
        loop = gevent.get_hub().loop
        while monotonic_ns() + 2 * self._hold_ns + 2e9 * self._pause_s < until_ns:
            for act in (compute, stop_all):
                gevent.sleep(self._pause_s)
                if in_hub:
                    loop.run_callback(self._do, act)
                else:
                    self._do(act)

    def _do(self, act: Callable[[Truth, int], None]) -> None:
        self._crowd.note()
        act(self._truth, self._hold_ns)
        self._crowd.last_ns = monotonic_ns()


def main() -> None:
    with scripted(nb_read) as truth:
        until_ns = monotonic_ns() + int(option("seconds", 4.0) * 1e9)
        context = copy_context() if option("contexts", 0) else None
        crowd = Crowd(until_ns, int(option("work_us", 0.0) * 1e3), context)
        depth = option("depth", 20)
        greenlets = [gevent.spawn(crowd.descend, depth) for _ in range(option("greenlets", 50))]
        hold_ns = int(option("hold_ms", 0.0) * 1e6)
        if hold_ns:
            pause_s = option("pause_ms", 100.0) / 1e3
            one = Holder(truth, crowd, pause_s, hold_ns)
            greenlets.append(gevent.spawn(one.run, until_ns, bool(option("hub", 0))))
        gevent.joinall(greenlets, raise_error=True)
        truth.figure("turns", crowd.turns)
        truth.figure("longest_gap_ns", crowd.longest_gap_ns)


if __name__ == "__main__":
    main()
