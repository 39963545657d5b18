"""All benches one after the other: `python -m tests.bench [--quick] [--write-docs] [--json DIR]`.

Each is a process of its own. Takes less than ten minutes; without other load it means more.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

BENCHES = ("switch_cost", "overhead", "budget", "turns", "attach", "drain")
ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Gives the exit code of the first bench that fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: does it work at all?")
    parser.add_argument("--write-docs", action="store_true", help="refresh docs/overhead.md")
    parser.add_argument("--json", metavar="DIR", type=Path, help="a document for each bench")
    options = parser.parse_args()
    for name in BENCHES:
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", f"tests.bench.bench_{name}"]
        command += ["--quick"] * options.quick + ["--write-docs"] * options.write_docs
        if options.json:
            options.json.mkdir(parents=True, exist_ok=True)
            command += ["--json", str((options.json / f"{name}.json").resolve())]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
