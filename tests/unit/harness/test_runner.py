"""What the harness does when a target misbehaves, and that it leaves nothing behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import (
    TargetError,
    TargetUnavailable,
    pending_signals,
    run_target,
    state_watch,
)
from tests.harness.runner import TARGETS

PREAMBLE = f"import os, sys, signal, time\nsys.path.insert(0, {str(TARGETS)!r})\n"
OBEDIENT = "from truth import scripted\nwith scripted(os.read) as truth:\n    {script}\n"


def program(directory: Path, text: str) -> str:
    """Its name as run_target takes it."""
    (directory / "program.py").write_text(PREAMBLE + text)
    return str(directory / "program")


def test_a_target_that_dies_before_ready_is_an_error_with_its_stderr(tmp_path: Path) -> None:
    name = program(tmp_path, "sys.exit('no such luck')")
    with (
        pytest.raises(TargetError, match=r"exited with 1 before ready\n(.|\n)*no such luck"),
        run_target(name, sys.executable),
    ):
        pytest.fail("it is not ready")


def test_a_target_that_fails_in_its_script_is_an_error_with_its_traceback(tmp_path: Path) -> None:
    name = program(tmp_path, OBEDIENT.format(script="raise ValueError('bad script')"))
    with run_target(name, sys.executable) as target:
        target.go()
        with pytest.raises(TargetError, match=r"before done\n(.|\n)*ValueError: bad script"):
            target.wait_done()


def test_a_target_that_takes_too_long_is_an_error_and_is_ended(tmp_path: Path) -> None:
    name = program(tmp_path, OBEDIENT.format(script="signal.pause()"))
    with run_target(name, sys.executable) as target:
        target.go()
        with pytest.raises(TargetError, match="no done in time"):
            target.wait_done(timeout_s=0.01)
    with pytest.raises(ProcessLookupError):
        os.kill(target.pid, 0)


def test_a_target_that_cannot_run_here_says_why(tmp_path: Path) -> None:
    name = program(tmp_path, "from truth import unavailable\nunavailable('no moon')")
    with pytest.raises(TargetUnavailable, match="no moon"), run_target(name, sys.executable):
        pytest.fail("it is not ready")


def test_a_target_ends_when_the_harness_does(tmp_path: Path) -> None:
    name = program(tmp_path, OBEDIENT.format(script="pass"))
    with run_target(name, sys.executable) as target:
        os.close(target._commands_fd)
        with pytest.raises(TargetError, match="the harness is gone"):
            target.wait_done()
        target._commands_fd = os.open(os.devnull, os.O_RDONLY)


def test_a_blocked_target_is_killed_when_its_harness_was(tmp_path: Path) -> None:
    name = program(tmp_path, OBEDIENT.format(script="signal.pause()"))
    harness = (
        "import pathlib, sys; from tests.harness import run_target, runner\n"
        f"runner.MEMORY_DIRECTORY = pathlib.Path({str(tmp_path)!r})\n"
        f"with run_target({name!r}, sys.executable) as target:\n"
        "    target.go(); print(target.pid, flush=True); sys.stdin.read()\n"
    )
    killed = subprocess.Popen(
        [sys.executable, "-c", harness],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=TARGETS.parent.parent,
    )
    assert killed.stdout is not None
    pid_fd = os.pidfd_open(int(killed.stdout.readline()))
    killed.kill()
    killed.communicate()
    ended, _, _ = select.select([pid_fd], [], [], 10)
    os.close(pid_fd)
    assert ended


def test_a_caught_signal_is_reported(tmp_path: Path) -> None:
    name = program(tmp_path, OBEDIENT.format(script="os.kill(os.getpid(), signal.SIGUSR1)"))
    with run_target(name, sys.executable) as target:
        target.go()
        target.wait_done()
        report = target.quit()
    assert (report.returncode, report.signals) == (0, (signal.SIGUSR1,))


def test_a_blocked_signal_is_pending(tmp_path: Path) -> None:
    blocked = "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})"
    name = program(tmp_path, OBEDIENT.format(script=blocked))
    with run_target(name, sys.executable) as target:
        target.go()
        target.wait_done()
        assert pending_signals(target.pid) == frozenset()
        os.kill(target.pid, signal.SIGUSR2)
        assert pending_signals(target.pid) == {signal.SIGUSR2}


def test_a_stopped_target_is_seen_as_stopped(tmp_path: Path) -> None:
    name = program(tmp_path, OBEDIENT.format(script="pass"))
    with run_target(name, sys.executable) as target:
        os.kill(target.pid, signal.SIGSTOP)
        # Returns when the kernel has stopped it.
        os.waitid(os.P_PID, target.pid, os.WSTOPPED | os.WNOWAIT)
        with state_watch(target.pid) as watch:
            watch.wait_rounds(3)
    assert watch.stopped >= 3
    assert watch.states == {"T"}
