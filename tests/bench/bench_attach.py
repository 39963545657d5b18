"""How long an attach takes from the start of the command to the first hold, step by step.

Each run is a process of its own, as a user's is. The target holds its hub again and again for
HOLD_MS, so the last step has to wait for one at most.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.bench import report
from tests.bench.child import Child
from tests.bench.spread import spread

HOLD_MS = 20
AIM_S = 2.0
ROOT = Path(__file__).resolve().parents[2]
STEPS = (
    "start Python",
    "import",
    "inspect the target",
    "build the kernel side",
    "attach",
    "first hold",
    "total",
)

Steps = dict[str, int]


def attach_once(pid: int) -> Steps:
    """ns of each step of a new process that attaches."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.attach_once", str(pid), str(time.monotonic_ns())],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        check=True,
        timeout=120,
    )
    steps: Steps = json.loads(done.stdout)
    return steps


def measure(quick: bool) -> report.Result:
    """Several runs against one target; the first, which fills caches, does not count."""
    with Child("workload") as child:
        child.ask(f"calibrate {2000 / HOLD_MS}")
        child.begin("window 600")
        attach_once(child.pid)
        runs = [attach_once(child.pid) for _ in range(2 if quick else 9)]
    return summary(runs)


def summary(runs: list[Steps]) -> report.Result:
    """The steps as a table."""
    rows = []
    figures = {}
    for step in STEPS:
        values = [run[step] / 1e6 for run in runs]
        rows.append((step, spread(values).text(0), f"{min(values):.0f}"))
        figures[step] = {"ms": spread(values).document(), "min_ms": min(values)}
    columns = ("step", "ms", "least ms")
    title = f"From the start of the command to the first hold; medians of {len(runs)} runs"
    total_s = spread(run["total"] / 1e9 for run in runs).median
    aims = (report.Aim("attach to first data", AIM_S, total_s, " s"),)
    return report.Result("attach", (report.Table(title, columns, tuple(rows)),), aims, figures)


if __name__ == "__main__":
    sys.exit(report.run("attach", measure))
