"""What ran, by the ticks of the sampler: every tick that met a thread with a hub counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from greenscope.model import Code, RunningTotals, Stack, StackStatus
from greenscope.rebuild.stacks import kind_of

Place = tuple[int, Code | None, Code | None]
"""(tid, kind of greenlet, function)."""


class RunningBooks:
    """Adds ticks up; one is worth `period_ns` of CPU time. Memory: the places of one flush."""

    def __init__(self, period_ns: int) -> None:
        self._period_ns = period_ns
        self._ticks: Counter[Place] = Counter()

    def add(self, tid: int, stack: Stack) -> None:
        """A tick met this stack; `tid` is the thread's id as it is to be reported."""
        kind = kind_of(stack) if stack.status is StackStatus.COMPLETE else None
        frame = stack.blamed_frame()
        self._ticks[tid, kind, None if frame is None else frame.code] += 1

    def totals(self) -> Iterator[RunningTotals]:
        """Since the call before."""
        ticks, self._ticks = self._ticks, Counter()
        for (tid, kind, function), samples in ticks.items():
            yield RunningTotals(tid, kind, function, samples, samples * self._period_ns)
