"""Runs the suites one after the other, prints the count of each and a last line with the sum.

`python tests/suites.py [SUITE...]`: without arguments, all that exist. Fails when a test fails,
when a suite ran no test, and, with GREENSCOPE_REQUIRE_BPF=1, when a test that needs the kernel
was skipped. Each suite is a process of its own, so that nothing that one leaves
behind in the interpreter (bcc, gevent's patches) reaches the next.
"""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

HERE = Path(__file__).parent
SUITES = ("unit", "probes", "replay", "bpf", "collector", "e2e")
KERNEL_SUITES = ("bpf", "e2e")


@dataclass(frozen=True, slots=True)
class Outcome:
    suite: str
    passed: int
    failed: int
    skipped: int
    seconds: float


def run_suite(suite: str) -> Outcome:
    print(f"== {suite}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", HERE / suite]
        code = subprocess.run(command, cwd=HERE.parent, env=environment(), check=False).returncode
        found = list(ET.parse(report).iter("testsuite")) if report.exists() else []
    total, broken, skipped = (
        sum(int(row.get(name, 0)) for row in found for name in names)
        for names in (("tests",), ("failures", "errors"), ("skipped",))
    )
    passed = max(0, total - broken - skipped)
    if suite in KERNEL_SUITES and os.environ.get("GREENSCOPE_REQUIRE_BPF") == "1":
        broken += skipped
    # No test at all, an interrupted run or a crash of pytest itself is a failure too.
    failed = broken or int(code != 0 or passed + skipped == 0)
    return Outcome(suite, passed, failed, skipped, time.monotonic() - began)


def environment() -> dict[str, str]:
    """Ours, with the interpreter that targets run with: one that has gevent and no greenscope."""
    python = HERE.parent / ".venv-target" / "bin" / "python"
    default = {"GREENSCOPE_TARGET_PYTHON": str(python)} if python.exists() else {}
    return {**default, **os.environ}


def main(names: list[str]) -> int:
    unknown = [name for name in names if not (HERE / name).is_dir()]
    if unknown:
        print(f"there is no suite {', '.join(unknown)}", file=sys.stderr)
        return 2
    outcomes = [run_suite(name) for name in names or SUITES if (HERE / name).is_dir()]
    print("== counts")
    for row in outcomes:
        print(
            f"{row.suite:10} {row.passed:5} passed {row.failed:3} failed "
            f"{row.skipped:3} skipped  {row.seconds:6.1f} s"
        )
    failed = sum(row.failed for row in outcomes)
    print(f"{sum(row.passed for row in outcomes)} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
