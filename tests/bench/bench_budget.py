"""How much slower a busy gevent program gets under the default budget, however fast it switches.

Windows of work alternate in one process: bare, watched, bare. The ratio of a window is its
throughput by that of its two neighbours, over the whole window, as a burst is a small part of it.
A window is watched from a while before it begins: the burst that is given in advance is over by
then. The control is a window in which nobody watches either, which tells what the others' figures
are worth on this machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from greenscope.tracer import Options, Tracer
from tests.bench import report
from tests.bench.bench_overhead import Greenscope, Unavailable, py_spy
from tests.bench.child import Answer, Child
from tests.bench.spread import Spread, spread

RATES = (10_000, 50_000, 1_800_000)
ROUNDS = 10
WINDOW_S = 2.0
BEFORE_S = 1.5
AIM = 0.975


@contextmanager
def greenscope(child: Child, options: Options) -> Iterator[Tracer]:
    """An attach whose first burst is over when the block begins."""
    with Greenscope(options)(child) as tracer:
        child.ask(f"window {BEFORE_S}", tracer)
        yield tracer


def watching(child: Child, name: str) -> AbstractContextManager[Tracer | None]:
    """One way to be watched."""
    match name:
        case "budget":
            return greenscope(child, Options())
        case "unlimited":
            return greenscope(child, Options(budget=None))
        case "py_spy":
            return py_spy(child)
    return nullcontext()


WAYS = {
    "control": "nobody, the control",
    "budget": "greenscope attach",
    "unlimited": "greenscope attach --budget none",
    "py_spy": "py-spy record, 100 Hz",
}


@dataclass(frozen=True, slots=True)
class Run:
    """What one rate gave: the ratios of each way, and of the bare windows the switches a second."""

    rate: int
    ratios: dict[str, list[float]]
    bare: list[float]

    def column(self, name: str) -> Spread | None:
        """None where the tool is not installed."""
        return spread(self.ratios[name]) if self.ratios[name] else None


def window(child: Child, tracer: Tracer | None = None) -> Answer:
    """One window."""
    return child.ask(f"window {WINDOW_S}", tracer)


def measure_rate(child: Child, rate: int, rounds: int) -> Run:
    """All ways in turns at one rate."""
    child.ask(f"calibrate {rate}")
    run = Run(rate, {name: [] for name in WAYS}, [])
    before = window(child)
    for _ in range(rounds):
        for name in WAYS:
            try:
                with watching(child, name) as tracer:
                    watched = window(child, tracer)
            except Unavailable:
                continue
            after = window(child)
            neighbours = (before["mean_wall_ns"] + after["mean_wall_ns"]) / 2
            run.ratios[name].append(neighbours / watched["mean_wall_ns"])
            run.bare.append(2e9 / after["mean_wall_ns"])
            before = after
    return run


def measure(quick: bool) -> report.Result:
    """All rates, each in the same process."""
    with Child("workload") as child:
        runs = [measure_rate(child, rate, 1 if quick else ROUNDS) for rate in RATES]
    return summary(runs)


def summary(runs: list[Run]) -> report.Result:
    """One table, and an aim for each rate."""
    columns = ("watched by", *(f"{run.rate:,} switches/s" for run in runs))
    bare = ("nobody: switches per second", *(spread(run.bare).text(0) for run in runs))
    rows = [bare]
    aims = []
    for name, text in WAYS.items():
        values = [run.column(name) for run in runs]
        texts = ("not installed" if value is None else value.text(3) for value in values)
        rows.append((text, *texts))
    for run in runs:
        control, value = run.column("control"), run.column("budget")
        if control is not None and value is not None:
            what = f"attached at {run.rate:,} switches/s, throughput by the clock"
            noise = control.high - control.low
            aims.append(
                report.Aim(
                    what, AIM, value.median, at_least=True, noise=noise, resolution=2 * (1 - AIM)
                )
            )
    title = "Throughput per second over whole windows, bare = 1; medians (quartiles)"
    table = report.Table(title, columns, tuple(rows))
    return report.Result("budget", (table,), tuple(aims), {"rates": [_document(r) for r in runs]})


def _document(run: Run) -> dict[str, object]:
    columns = {name: run.column(name) for name in WAYS}
    return {
        "rate": run.rate,
        "bare_rate": spread(run.bare).document(),
        "ways": {name: it.document() for name, it in columns.items() if it is not None},
    }


if __name__ == "__main__":
    sys.exit(report.run("budget", measure))
