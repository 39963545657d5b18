"""How much slower a busy gevent program gets: watched by greenscope, and by other tools.

Windows of work alternate in one process, a bare one before and after each that is watched; the
ratio of a window is its throughput by that of its two neighbours. The windows are short, because
the speed of a virtual CPU changes from second to second; of each tool's windows the half counts
whose two neighbours differ least.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from greenscope.bpf.abi import WaitStacks
from greenscope.offsets.program import inspect_program
from greenscope.tracer import Options, Tracer
from tests.bench import report
from tests.bench.child import Answer, Child
from tests.bench.kernels import ReusableKernel
from tests.bench.spread import Spread, spread

RATES = (1_000, 10_000, 50_000)
ROUNDS = {1_000: 3, 10_000: 6, 50_000: 3}  # the aim is for the second
WINDOW_S = 0.3
SETTLE_S = 0.1
EVERY_STACK = Options(budget=None, wait_stacks=WaitStacks.EXACT)
AIM = 0.98
AIM_RATE = 10_000


Watch = Callable[[Child], AbstractContextManager[Tracer | None]]


class Unavailable(Exception):
    """A tool that is compared is not installed."""


class Greenscope:
    """An attach with these options; compiled once, attached anew for each window."""

    _kernel: ReusableKernel | None = None

    def __init__(self, options: Options) -> None:
        self._options = options

    @contextmanager
    def __call__(self, child: Child) -> Iterator[Tracer]:
        if Greenscope._kernel is None:
            Greenscope._kernel = ReusableKernel()
        kernel = Greenscope._kernel
        kernel.forget()
        with Tracer(inspect_program(child.pid), kernel, self._options) as tracer:
            yield tracer


@contextmanager
def py_spy(child: Child) -> Iterator[None]:
    """py-spy record at 100 Hz, from the moment on when it says that it samples."""
    beside = Path(sys.executable).with_name("py-spy")
    command = str(beside) if beside.exists() else shutil.which("py-spy")
    if command is None:
        raise Unavailable("py-spy")
    options = ["--rate", "100", "--format", "raw", "--output", os.devnull, "--pid", str(child.pid)]
    with subprocess.Popen(
        [command, "record", *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            assert process.stdout is not None
            while b"Sampling process" not in process.stdout.readline():
                if process.poll() is not None:
                    raise RuntimeError(f"py-spy ended with {process.returncode}")
            yield None
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()


def inside(name: str) -> Watch:
    """A profiler that the workload itself switches on."""

    @contextmanager
    def switched_on(child: Child) -> Iterator[None]:
        if "unavailable" in child.ask(f"profiler {name} on"):
            raise Unavailable(name)
        yield None
        child.ask(f"profiler {name} off")

    return switched_on


@dataclass(frozen=True, slots=True)
class Tool:
    """One way to be watched. `often` of its windows are in a round."""

    name: str
    text: str
    watch: Watch
    often: int = 1


TOOLS = (
    Tool("attached", "greenscope attach --budget none", Greenscope(Options(budget=None)), often=8),
    Tool("every_stack", "the same, a stack at every switch", Greenscope(EVERY_STACK), often=2),
    Tool("py_spy", "py-spy record, 100 Hz", py_spy, often=2),
    Tool("monitor", "gevent's monitor thread", inside("monitor"), often=2),
    Tool("yappi", "yappi, greenlets, wall clock", inside("yappi")),
    Tool("cprofile", "cProfile", inside("cprofile")),
)


@dataclass(frozen=True, slots=True)
class Ratios:
    """Throughput in one window by that of its neighbours, per CPU second and per second."""

    cpu: float
    wall: float
    drift: float  # how much the neighbours differ, as a part of the second


@dataclass(slots=True)
class Run:
    """What one rate gave."""

    rate: int
    bare: list[Answer]
    ratios: dict[str, list[Ratios]]
    missing: set[str]

    def column(self, name: str, what: str) -> Spread | None:
        """The spread of `cpu` or `wall` of a tool; None where it is not installed."""
        if name in self.missing:
            return None
        calm = sorted(self.ratios[name], key=lambda ratios: ratios.drift)
        return spread(getattr(ratios, what) for ratios in calm[: (len(calm) + 1) // 2])

    def bare_rate(self) -> Spread:
        """Switches per CPU second with nobody watching."""
        return spread(2e9 / answer["cpu_ns"] for answer in self.bare)


def window(child: Child, tracer: Tracer | None = None) -> Answer:
    """One window, after a short one in which caches warm and the agent learns the stacks."""
    child.ask(f"window {SETTLE_S}", tracer)
    return child.ask(f"window {WINDOW_S}", tracer)


def watched_window(child: Child, tool: Tool) -> Answer:
    """A window while the tool watches."""
    with tool.watch(child) as watching:
        if watching is None:
            return window(child)
        answer = window(child, watching)
        watching.finish("counted")
        if watching.progress.switches < answer["switches"]:
            raise RuntimeError("the watch missed switches")
        return answer


def ratios_of(watched: Answer, before: Answer, after: Answer) -> Ratios:
    """The window against the mean of its neighbours."""

    def ratio(clock: str) -> float:
        return float((before[clock] + after[clock]) / 2 / watched[clock])

    drift = abs(float(before["cpu_ns"] / after["cpu_ns"]) - 1)
    return Ratios(cpu=ratio("cpu_ns"), wall=ratio("wall_ns"), drift=drift)


def measure_rate(child: Child, rate: int, rounds: int) -> Run:
    """All tools in turns at one rate."""
    child.ask(f"calibrate {rate}")
    run = Run(rate, [window(child)], {tool.name: [] for tool in TOOLS}, set())
    turns = [tool for tool in TOOLS for _ in range(tool.often)]
    for tool in turns * rounds:
        if tool.name in run.missing:
            continue
        try:
            watched = watched_window(child, tool)
        except Unavailable:
            run.missing.add(tool.name)
            continue
        run.bare.append(window(child))
        run.ratios[tool.name].append(ratios_of(watched, *run.bare[-2:]))
    return run


def measure(quick: bool) -> report.Result:
    """All rates, each in the same process."""
    with Child("workload") as child:
        runs = [measure_rate(child, rate, 1 if quick else ROUNDS[rate]) for rate in RATES]
    return summary(runs)


def summary(runs: list[Run]) -> report.Result:
    """The ratios as two tables: by CPU time and by the clock on the wall."""
    aims = []
    for run in runs:
        value = run.column("attached", "cpu")
        if run.rate == AIM_RATE and value is not None:
            what = f"attached at {AIM_RATE:,} switches/s, throughput per CPU second"
            aims.append(
                report.Aim(
                    what,
                    AIM,
                    value.median,
                    at_least=True,
                    noise=value.high - value.low,
                    resolution=2 * (1 - AIM),
                )
            )
    tables = (
        _table("Throughput per CPU second of the program, bare = 1", runs, "cpu"),
        _table("Throughput per second, bare = 1: what stops it counts too", runs, "wall"),
    )
    return report.Result("overhead", tables, tuple(aims), {"rates": [_document(r) for r in runs]})


def _table(title: str, runs: list[Run], what: str) -> report.Table:
    columns = ("watched by", *(f"{run.rate:,} switches/s" for run in runs))
    bare = ("nobody: switches per CPU second", *(run.bare_rate().text(0) for run in runs))
    rows = [bare]
    for tool in TOOLS:
        values = [run.column(tool.name, what) for run in runs]
        texts = ("not installed" if value is None else value.text(3) for value in values)
        rows.append((tool.text, *texts))
    text = f"{title}; medians (quartiles) of the calmer half of windows"
    return report.Table(text, columns, tuple(rows))


def _document(run: Run) -> dict[str, object]:
    tools = {}
    for tool in TOOLS:
        cpu, wall = run.column(tool.name, "cpu"), run.column(tool.name, "wall")
        if cpu is not None and wall is not None:
            tools[tool.name] = {"cpu": cpu.document(), "wall": wall.document()}
    return {"rate": run.rate, "bare_rate": run.bare_rate().document(), "tools": tools}


if __name__ == "__main__":
    sys.exit(report.run("overhead", measure))
