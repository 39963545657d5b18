"""What it costs to put a probe at a busy switch and to take it away: a perf event, or a link.

The program knows the longest time between two of its hand-overs, by its own clock; the control is
the same time without any probe.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from greenscope.bpf import links, perf_event
from greenscope.offsets.program import Program, inspect_program
from tests.bench import report
from tests.bench.bare_uprobe import CountProgram
from tests.bench.child import Child
from tests.bench.spread import Spread, spread

TURNS = 30
ON_S, OFF_S = 0.01, 0.05

OpenProbe = Callable[[int, str, int, int], int]
OPENERS: dict[str, OpenProbe] = {
    "perf event": perf_event.open_uprobe,
    "uprobe_multi link": links.open_uprobe,
}


@dataclass(frozen=True, slots=True)
class Turns:
    """Of one way: milliseconds, and the program's longest gap."""

    open_ms: Spread
    close_ms: Spread
    gap_ms: float
    hits: int


def turn(
    child: Child, program: Program, opener: OpenProbe, count: CountProgram, times: int
) -> Turns:
    """Puts the probe there and takes it away, again and again, under load."""
    opened, closed, hits = [], [], count.hits()
    path, place = program.greenlet.file.readable_path(), program.greenlet.places.switch
    child.begin("begin")
    for _ in range(times):
        times_s = [time.monotonic()]
        fd = opener(count.fd, path, place, program.process.pid)
        times_s.append(time.monotonic())
        time.sleep(ON_S)
        times_s.append(time.monotonic())
        os.close(fd)
        times_s.append(time.monotonic())
        time.sleep(OFF_S)
        opened.append(1e3 * (times_s[1] - times_s[0]))
        closed.append(1e3 * (times_s[3] - times_s[2]))
    answer = child.ask("end")
    gap_ms = answer["longest_gap_ns"] / 1e6
    return Turns(spread(opened), spread(closed), gap_ms, count.hits() - hits)


def control(child: Child, seconds: float) -> float:
    """The longest gap with nobody around, in milliseconds."""
    child.begin("begin")
    time.sleep(seconds)
    return float(child.ask("end")["longest_gap_ns"] / 1e6)


def measure(quick: bool) -> report.Result:
    """Both ways, and the control between them."""
    times = 3 if quick else TURNS
    rows, ways = [], {}
    with Child("gaps") as child:
        program = inspect_program(child.pid)
        for name, opener in OPENERS.items():
            quiet_ms = control(child, times * (ON_S + OFF_S))
            count = CountProgram(for_links=name != "perf event")
            turns = turn(child, program, opener, count, times)
            rows.append(
                (
                    name,
                    turns.open_ms.text(1),
                    turns.close_ms.text(1),
                    f"{turns.gap_ms:.1f}",
                    f"{quiet_ms:.1f}",
                )
            )
            ways[name] = {
                "open_ms": turns.open_ms.document(),
                "close_ms": turns.close_ms.document(),
                "longest_gap_ms": turns.gap_ms,
                "control_gap_ms": quiet_ms,
                "hits": turns.hits,
            }
    columns = ("probe", "open, ms", "close, ms", "program's longest gap, ms", "without a probe, ms")
    table = report.Table(f"A probe at a busy switch, {times} turns", columns, tuple(rows))
    return report.Result("turns", (table,), (), {"ways": ways})


if __name__ == "__main__":
    sys.exit(report.run("turns", measure))
