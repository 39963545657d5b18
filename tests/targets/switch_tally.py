"""Counts switches by greenlet.settrace, for the targets whose every switch must be counted."""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Dict

import greenlet

from truth import Truth


class SwitchTally:
    """Arrivals per greenlet label on this thread.

    greenlet calls the trace function for a switch to oneself too; nothing is switched then,
    so it is counted apart.
    """

    def __init__(self, label_of: Callable[[Any], str]) -> None:
        self._label_of = label_of
        self.arrivals: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.to_itself = 0

    def __call__(self, event: str, args: Any) -> None:
        origin, target = args
        if origin is target:
            self.to_itself += 1
            return
        self.events[event] += 1
        self.arrivals[self._label_of(target)] += 1

    @property
    def total(self) -> int:
        return sum(self.events.values())

    def start(self) -> None:
        greenlet.settrace(self)

    def stop(self) -> None:
        greenlet.settrace(None)

    def write(self, truth: Truth, did: Dict[str, int]) -> None:
        """`did` says how many of which things the script did, for the reader."""
        truth.figure("switches", self.total)
        truth.figure("switch_events", self.events["switch"])
        truth.figure("throw_events", self.events["throw"])
        truth.figure("switches_to_itself", self.to_itself)
        truth.figure("arrivals", dict(self.arrivals))
        truth.figure("did", did)
