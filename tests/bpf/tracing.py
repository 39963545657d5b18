"""Drives a Tracer in this process, as the command line does."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from greenscope.bpf.loader import Kernel
from greenscope.model import GreenletTotals, Hold, Loss, Record, ThreadTotals
from greenscope.offsets.program import inspect_program
from greenscope.tracer import Options, Tracer
from tests.harness import RunningTarget

R = TypeVar("R")


@dataclass(slots=True)
class Watch:
    """A tracer that is attached, and the records that it gave so far."""

    tracer: Tracer
    records: list[Record] = field(default_factory=list)

    def run_script(self, target: RunningTarget) -> None:
        """Lets the target do its script, draining the rings meanwhile."""
        target.go()
        self.drain_while(target.wait_done)

    def drain_while(self, wait: Callable[[], None]) -> None:
        """Drains the rings until `wait`, which runs in a thread of its own, returns."""
        done = os.eventfd(0)
        try:
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(wait)
                waiting.add_done_callback(lambda _: os.eventfd_write(done, 1))
                fds = (*self.tracer.fds, done)
                while done not in select.select(fds, (), ())[0]:
                    self.records += self.tracer.poll()
                waiting.result()
        finally:
            os.close(done)

    def finish(self) -> None:
        self.records += self.tracer.finish("duration")

    def of(self, kind: type[R]) -> list[R]:
        """The records of one kind."""
        return [record for record in self.records if isinstance(record, kind)]

    @property
    def switches(self) -> int:
        return sum(totals.switches for totals in self.of(ThreadTotals))

    @property
    def greenlets(self) -> list[GreenletTotals]:
        """Sums of greenlets that are no hub."""
        return [totals for totals in self.of(GreenletTotals) if not totals.is_hub]

    @property
    def losses(self) -> list[Loss]:
        return self.of(Loss)

    @property
    def holds(self) -> list[Hold]:
        return self.of(Hold)


@contextmanager
def watching(
    target: RunningTarget, options: Options | None = None, kernel: type[Kernel] = Kernel
) -> Iterator[Watch]:
    """Attaches to a target while the block runs."""
    options = options or Options(budget=None)
    tracer = Tracer(inspect_program(target.pid), kernel(options.limits), options)
    with tracer:
        yield Watch(tracer)
