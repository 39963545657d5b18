"""The demo around a stand-in for greenscope: exit codes, signals, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "docs" / "demo" / "demo.py"
STAND_IN = """#!{python}
import signal, sys
try:
    print("attached to", sys.argv[2], flush=True)
    {action}
except KeyboardInterrupt:
    print("report after Ctrl-C", flush=True)
"""


class Demo:
    """A running demo whose greenscope does `action`; `shop_pid` is known once it attached."""

    def __init__(self, directory: Path, python: str, action: str) -> None:
        stand_in = directory / "greenscope"
        stand_in.write_text(STAND_IN.format(python=sys.executable, action=action))
        stand_in.chmod(0o755)
        self.process = subprocess.Popen(
            [sys.executable, DEMO, "--greenscope", str(stand_in), "--python", python],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(directory)},
            start_new_session=True,
            # A shell that runs the tests in the background has made SIGINT ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout

    def wait_attached(self) -> int:
        """The shop's pid, from what the stand-in prints."""
        for line in self.output:
            if line.startswith("attached to "):
                return int(line.split()[2])
        raise AssertionError(f"the demo ended with {self.process.wait()} before it attached")


@pytest.fixture
def started() -> Iterator[list[Demo]]:
    """Append the demo here; it is ended by its pid if a test fails half-way."""
    demos: list[Demo] = []
    yield demos
    for demo in demos:
        if demo.process.poll() is None:
            demo.process.terminate()
        demo.process.communicate()


def check_gone(shop_pid: int, directory: Path) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(shop_pid, 0)
    assert list(directory.glob("greenscope-demo-*")) == []


def test_the_demo_exits_with_the_code_of_attach(
    tmp_path: Path, target_python: str, started: list[Demo]
) -> None:
    started.append(demo := Demo(tmp_path, target_python, "sys.exit(3)"))
    shop_pid = demo.wait_attached()
    rest = demo.output.read()
    assert demo.process.wait() == 3
    assert "What the shop's customers saw" in rest
    check_gone(shop_pid, tmp_path)


def test_ctrl_c_ends_the_watch_and_still_prints_its_report(
    tmp_path: Path, target_python: str, started: list[Demo]
) -> None:
    started.append(demo := Demo(tmp_path, target_python, "signal.pause()"))
    shop_pid = demo.wait_attached()
    os.killpg(demo.process.pid, signal.SIGINT)
    rest = demo.output.read()
    assert demo.process.wait() == 0
    assert rest.count("report after Ctrl-C") == 1
    check_gone(shop_pid, tmp_path)


def test_a_terminated_demo_leaves_nothing_behind(
    tmp_path: Path, target_python: str, started: list[Demo]
) -> None:
    started.append(demo := Demo(tmp_path, target_python, "signal.pause()"))
    shop_pid = demo.wait_attached()
    demo.process.terminate()
    demo.output.read()
    assert demo.process.wait() == 128 + signal.SIGTERM
    check_gone(shop_pid, tmp_path)


def test_a_missing_greenscope_is_a_plain_message(tmp_path: Path, target_python: str) -> None:
    missing = str(tmp_path / "nothing-here")
    result = subprocess.run(
        [sys.executable, DEMO, "--greenscope", missing, "--python", target_python],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert result.returncode == 1
    assert result.stderr.startswith("demo: ")
    assert "nothing-here" in result.stderr
    assert list(tmp_path.glob("greenscope-demo-*")) == []
