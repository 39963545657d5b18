"""Attach, recording and collector give the same figures for the same session."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness import run_target
from tests.harness.agent import run_cli, watch_script

pytestmark = pytest.mark.bpf

COLLECTOR = (sys.executable, "-m", "collector")


@contextmanager
def collector(data: Path) -> Iterator[str]:
    """`greenscope-collector serve` on a unix socket; gives its address once it listens."""
    address = f"unix:{data}/test.sock"
    command = [*COLLECTOR, "serve", "--listen", "none", "--unix", f"{data}/test.sock"]
    with subprocess.Popen(
        [*command, "--data", str(data / "store")], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        for line in process.stderr:
            if "listening" in line:
                break
        else:
            pytest.fail("the collector ended before it listened")
        yield address
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
    assert process.returncode == 0


def ask(*arguments: str) -> Any:
    result = subprocess.run(
        [*COLLECTOR, "report", *arguments, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_attach_file_and_collector_report_the_same(tmp_path: Path) -> None:
    recording = tmp_path / "watch.gscope"
    with collector(tmp_path) as address, run_target("mixed_server") as target:
        attached = watch_script(target, "-o", str(recording), "--collector", address)
        target.quit()
        session_id = attached["session"]["session_id"]
        stored = ask("hotspots", "--collector", address, "--session", session_id)
        (listed,) = ask("sessions", "--collector", address)["sessions"]
    from_file = run_cli("report", str(recording), "--json")
    assert from_file.returncode == 0, from_file.stderr
    assert attached["hotspots"]
    assert json.loads(from_file.stdout) == attached
    assert stored["hotspots"] == attached["hotspots"]
    assert listed["session_id"] == session_id
