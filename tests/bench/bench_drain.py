"""How many events a second the agent takes from the ring, against bcc's callback per record.

The ring is filled once by a program whose every hold is an event, then taken again and again by
each way: the consumer's position is ours to set back.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from greenscope.bpf import abi
from greenscope.bpf.builder import Builder
from greenscope.bpf.loader import Kernel
from greenscope.bpf.programs import Built, Order
from greenscope.offsets.program import inspect_program
from greenscope.tracer import Options, Tracer
from tests.bench import report
from tests.bench.child import Child
from tests.bench.spread import Spread, spread

EVERY_HOLD_NS = 0
FILL_S = 0.5
TURNS = 60


class RingKernel(Kernel):
    """A kernel side whose event ring can be taken in other ways, and more than once.

    It has bcc in this process.
    """

    def _build(self, order: Order) -> Built:
        self._bpf = (builder := Builder(order)).bpf
        return dataclasses.replace(
            builder.built,
            programs={name: os.dup(fd) for name, fd in builder.built.programs.items()},
            maps={name: os.dup(fd) for name, fd in builder.built.maps.items()},
        )

    def rewind(self, position: int) -> None:
        """Makes what was taken since `position` be there again."""
        self.events._consumer_position[0] = position

    @property
    def position(self) -> int:
        """How far the ring was taken, in bytes since its start."""
        return self.events._consumer_position[0]

    def open_bcc(self, callback: Callable[[object, int, int], None]) -> Callable[[], None]:
        """bcc's consumer of the same ring; gives what takes all that is there."""
        self._bpf["gs_events"].open_ring_buffer(callback)
        consume: Callable[[], None] = self._bpf.ring_buffer_consume
        return consume


@dataclass(frozen=True, slots=True)
class Way:
    """One way to take the ring."""

    name: str
    text: str
    take: Callable[[], object]


def ways(kernel: RingKernel, tracer: Tracer) -> list[Way]:
    """Ours, and bcc's."""

    def as_events() -> list[abi.Event]:
        return [abi.Event._make(fields) for fields in kernel.events.fixed(abi.EVENT)]

    taken: list[abi.Event] = []

    def on_record(_context: object, data: int, size: int) -> None:
        taken.append(abi.Event._make(abi.EVENT.unpack_from(ctypes.string_at(data, size))))

    consume = kernel.open_bcc(on_record)

    def by_callback() -> None:
        taken.clear()
        consume()

    return [
        Way("sweep", "mapped ring, one sweep: tuples", lambda: kernel.events.fixed(abi.EVENT)),
        Way("events", "the same, decoded to events", as_events),
        Way("tracer", "Tracer.poll(): named holds", tracer.poll),
        Way("callback", "bcc's callback per record, decoded to events", by_callback),
    ]


def fill(child: Child, kernel: RingKernel) -> int:
    """Fills the empty ring, which has the usual size; gives the number of records."""
    begin = kernel.position
    child.ask(f"window {FILL_S}")
    count = len(kernel.events.fixed(abi.EVENT))
    kernel.rewind(begin)
    return count


def measure(quick: bool) -> report.Result:
    """Fills, stops the switches by ending the window, and takes."""
    kernel = RingKernel()
    options = Options(budget=None, threshold_ns=EVERY_HOLD_NS)
    rates: dict[str, list[float]] = {}
    with Child("workload") as child, Tracer(inspect_program(child.pid), kernel, options) as tracer:
        child.ask("window 0.2", tracer)
        tracer.poll()
        all_ways = ways(kernel, tracer)
        count = fill(child, kernel)
        for _ in range(TURNS // 10 if quick else TURNS):
            for way in all_ways:
                begin = kernel.position
                took_ns = timed(way.take)
                if (kernel.position - begin) < count * abi.EVENT.size:
                    raise RuntimeError(f"{way.name} left records in the ring")
                kernel.rewind(begin)
                rates.setdefault(way.name, []).append(count * 1e9 / took_ns)
        tracer.finish("measured")
    return summary(all_ways, rates, count, live(1.0 if quick else 5.0))


def timed(call: Callable[[], object]) -> int:
    """CPU ns of this thread that a call takes."""
    begin_ns = time.thread_time_ns()
    call()
    return time.thread_time_ns() - begin_ns


def live(seconds: float) -> tuple[float, int]:
    """Events a second of a program that makes all it can, into a ring of the usual size, and
    how many of them were lost: they are decoded as they come.
    """
    options = Options(budget=None, threshold_ns=EVERY_HOLD_NS)
    with Child("workload") as child:
        kernel = Kernel()
        with Tracer(inspect_program(child.pid), kernel, options) as tracer:
            child.ask("window 0.2", tracer)
            lost = kernel.lost()[abi.LossKind.EVENTS]
            child.begin(f"window {seconds}")
            begin_ns, count = time.monotonic_ns(), 0
            while not child.has_answer():
                count += len([abi.Event._make(f) for f in kernel.events.fixed(abi.EVENT)])
            count += len(kernel.events.fixed(abi.EVENT))
            took_ns = time.monotonic_ns() - begin_ns
            lost = kernel.lost()[abi.LossKind.EVENTS] - lost
    return count * 1e9 / took_ns, lost


def summary(
    all_ways: list[Way], rates: dict[str, list[float]], count: int, seen: tuple[float, int]
) -> report.Result:
    """The rates as a table."""
    rows = [
        (
            way.text,
            spread(rate / 1e6 for rate in rates[way.name]).text(2),
            ratio(rates, way).text(1),
        )
        for way in all_ways
    ]
    live_rate, lost = seen
    rows.append((f"live, lost {lost}: all that one program makes", f"{live_rate / 1e6:.2f}", ""))
    columns = ("way", "million events/s", "x bcc")
    title = f"Taking {count:,} events of {abi.EVENT.size} bytes on one core; medians (quartiles)"
    figures: dict[str, object] = {
        way.name: {
            "events_per_s": spread(rates[way.name]).document(),
            "ratio": ratio(rates, way).document(),
        }
        for way in all_ways
    }
    figures["live"] = {"events_per_s": live_rate, "lost": lost}
    return report.Result("drain", (report.Table(title, columns, tuple(rows)),), (), figures)


def ratio(rates: dict[str, list[float]], way: Way) -> Spread:
    """Against bcc's callback in the same turn."""
    pairs = zip(rates[way.name], rates["callback"], strict=True)
    return spread(mine / bcc for mine, bcc in pairs)


if __name__ == "__main__":
    sys.exit(report.run("drain", measure))
