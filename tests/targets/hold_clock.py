"""Times every hold of a thread from inside, by greenlet.settrace."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

import gevent
import greenlet

from truth import Truth


class HoldClock:
    """The longest and the sum of holds on this thread, the hub's time left out."""

    def __init__(self) -> None:
        self.hub = gevent.get_hub()
        self.since_ns = monotonic_ns()
        self.longest_ns = self.total_ns = self.switches = 0

    def __call__(self, event: str, args: Any) -> None:
        origin, target = args
        now_ns = monotonic_ns()
        if origin is not target:
            self.switches += 1
        if origin is not self.hub:
            self.total_ns += now_ns - self.since_ns
            self.longest_ns = max(self.longest_ns, now_ns - self.since_ns)
        self.since_ns = now_ns

    def start(self) -> None:
        self.since_ns = monotonic_ns()
        greenlet.settrace(self)

    def stop(self) -> None:
        greenlet.settrace(None)

    def write(self, truth: Truth) -> None:
        truth.figure("longest_hold_ns", self.longest_ns)
        truth.figure("total_hold_ns", self.total_ns)
        truth.figure("traced_switches", self.switches)
