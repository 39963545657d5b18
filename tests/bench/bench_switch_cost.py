"""What one greenlet switch costs, against a bare uprobe at the same place.

Two greenlets that only switch to each other know their ns per switch; all variants take turns
in one process, so that what disturbs one disturbs all. From each the undisturbed switch of the
same turn is subtracted.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass

from greenscope.bpf import abi
from greenscope.offsets.program import inspect_program
from greenscope.tracer import Options, Tracer
from tests.bench import report
from tests.bench.bare_uprobe import CountProgram, SwitchUprobe
from tests.bench.child import Child
from tests.bench.kernels import LateSwitchKernel
from tests.bench.spread import Spread, spread

SHALLOW, DEEP = 20, 100
RATE = 10_000  # switches a second, of which the last column tells the share of a CPU
WINDOW_S = 0.15
SETTLE_S = 0.03


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to be watched; `waits` None is not at all (`bare`) or by the yardstick."""

    name: str
    text: str
    depth: int
    waits: abi.WaitStacks | None = None
    counts: bool = False


BARE = Variant("bare", "nobody watches", SHALLOW)
BARE_DEEP = Variant("bare_deep", "nobody watches", DEEP)
COUNT = Variant("count", "bare uprobe that counts", SHALLOW, counts=True)
OFF = Variant("no_stack", "attached, no stacks (default)", SHALLOW, abi.WaitStacks.OFF)
EXACT = Variant("every_stack", "attached, a stack at every switch", SHALLOW, abi.WaitStacks.EXACT)
EXACT_DEEP = Variant(
    "every_stack_deep", "attached, a stack at every switch", DEEP, abi.WaitStacks.EXACT
)
SAMPLED = Variant("sampled", "attached, stacks sampled", SHALLOW, abi.WaitStacks.SAMPLED)
VARIANTS = (BARE, COUNT, OFF, EXACT, SAMPLED, BARE_DEEP, EXACT_DEEP)

Turn = dict[str, float]
"""ns of CPU time per switch, by the name of the variant."""


class Bench:
    """One pair of greenlets and all that can be attached to it."""

    def __init__(self, child: Child, kernel: LateSwitchKernel, tracer: Tracer) -> None:
        self._child = child
        self._program = tracer.program
        self._kernel = kernel
        self._tracer = tracer
        self._count = CountProgram()

    def turn(self) -> Turn:
        """Every variant once."""
        return {variant.name: self._window(variant) for variant in VARIANTS}

    def _window(self, variant: Variant) -> float:
        with ExitStack() as stack:
            if variant.waits is not None:
                self._set_wait_stacks(variant.waits)
                stack.enter_context(SwitchUprobe(self._program, self._kernel.switch_program))
            elif variant.counts:
                stack.enter_context(SwitchUprobe(self._program, self._count.fd))
            # The agent learns the pair's stacks and roles before it counts.
            self._child.ask(f"{SETTLE_S} {variant.depth}", self._tracer)
            self._tracer.poll()
            hits = self._count.hits()
            answer = self._child.ask(f"{WINDOW_S} {variant.depth}", self._tracer)
            if variant.counts and self._count.hits() - hits < answer["switches"]:
                raise RuntimeError("the uprobe missed switches: it is not at the right place")
        return float(answer["cpu_ns"]) / float(answer["switches"])

    def _set_wait_stacks(self, waits: abi.WaitStacks) -> None:
        slot = abi.u32(0)
        target = self._kernel.targets[slot]
        target.wait_stacks = waits
        self._kernel.targets[slot] = target


def added(turn: Turn, variant: Variant) -> float:
    """ns that watching adds to a switch."""
    bare = BARE if variant.depth == SHALLOW else BARE_DEEP
    return turn[variant.name] - turn[bare.name]


def ratio(turns: list[Turn], variant: Variant) -> Spread:
    """What the variant adds, as a multiple of what the yardstick adds in the same turn."""
    return spread(added(turn, variant) / added(turn, COUNT) for turn in turns)


def measure(quick: bool) -> report.Result:
    """Plays all variants in turns."""
    with Child("pingpong") as child:
        kernel = LateSwitchKernel()
        with Tracer(inspect_program(child.pid), kernel, Options(budget=None)) as tracer:
            bench = Bench(child, kernel, tracer)
            bench.turn()  # warms caches on both sides
            turns = [bench.turn() for _ in range(5 if quick else 40)]
            tracer.finish("measured")
    return summary(turns)


def summary(turns: list[Turn]) -> report.Result:
    """The turns as a table and aims."""
    rows = tuple(
        (
            variant.text,
            str(variant.depth),
            spread(turn[variant.name] for turn in turns).text(0),
            spread(added(turn, variant) for turn in turns).text(0),
            ratio(turns, variant).text(2),
            f"{spread(added(turn, variant) for turn in turns).median * RATE / 1e7:.2f} %",
        )
        for variant in VARIANTS
    )
    columns = (
        "variant",
        "frames",
        "ns per switch",
        "ns added",
        "x bare uprobe",
        f"of a CPU at {RATE:,}/s",
    )
    title = f"Cost of a switch; medians of {len(turns)} turns (quartiles), CPU time"
    figures = {
        variant.name: {
            "depth": variant.depth,
            "ns_per_switch": spread(turn[variant.name] for turn in turns).document(),
            "added_ns": spread(added(turn, variant) for turn in turns).document(),
            "ratio": ratio(turns, variant).document(),
        }
        for variant in VARIANTS
    }
    aims = (
        report.Aim("no stack taken, x bare uprobe", 1.3, ratio(turns, OFF).median),
        report.Aim(
            f"a stack {SHALLOW} deep at every switch, x bare uprobe",
            2.5,
            ratio(turns, EXACT).median,
        ),
    )
    return report.Result("switch_cost", (report.Table(title, columns, rows),), aims, figures)


if __name__ == "__main__":
    sys.exit(report.run("switch_cost", measure))
