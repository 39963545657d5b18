"""What cannot be watched is refused by name, with what to do and its own exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from greenscope import errors
from greenscope.target.elf import ElfImage
from tests.harness import run_target
from tests.harness.agent import COMMAND, run_cli
from tests.harness.users import AS_NOBODY

pytestmark = pytest.mark.bpf

# Reads one line and says so first: ready when it has spoken, ended by closing its input.
SPEAK_AND_WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"


@contextmanager
def waiting(command: Sequence[str]) -> Iterator[int]:
    """A process that has said that it is ready, and ends when the block does."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        assert process.stdin
        process.stdin.close()
        process.wait()


def check_refusal(pid: int, error: type[errors.GreenscopeError], *words: str) -> None:
    result = run_cli("attach", str(pid), "-d", "1s")
    assert result.returncode == error.exit_code, result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


def test_a_pid_that_is_nobodys() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    check_refusal(process.pid, errors.TargetNotFound, str(process.pid))


def test_a_kernel_thread() -> None:
    check_refusal(2, errors.TargetNotFound, "kernel thread")


def test_a_program_that_is_no_python() -> None:
    with waiting(["sh", "-c", "echo ready; read line"]) as pid:
        check_refusal(pid, errors.NotPython, "no CPython")


def test_python_without_greenlet() -> None:
    with waiting(["/usr/bin/python3", "-c", SPEAK_AND_WAIT]) as pid:
        check_refusal(pid, errors.GreenletNotFound, "greenlet")


def test_a_cpython_without_a_row_in_the_table(tmp_path: Path) -> None:
    """Case S9: another minor version is named, and none of its neighbours' offsets is used.

    It is the interpreter of the machine with another number in its Py_Version, which it does
    not read itself: so the test needs no interpreter that is not there, today or in ten years.
    """
    original = Path("/usr/bin/python3").resolve()
    image = bytearray(original.read_bytes())
    with ElfImage(str(original)) as elf:
        symbol = elf.symbol("Py_Version")
        assert symbol
        offset = elf.file_offset(symbol.address)
        assert offset
    image[offset : offset + 8] = (0x036300F0).to_bytes(8, "little")  # 3.99.0 final
    unknown = tmp_path / "python3.99"
    unknown.write_bytes(image)
    unknown.chmod(0o755)
    environment = ["env", "PYTHONHOME=/usr", f"PYTHONPATH=/usr/lib/{original.name}"]
    with waiting([*environment, str(unknown), "-c", SPEAK_AND_WAIT]) as pid:
        check_refusal(pid, errors.UnsupportedInterpreter, "unsupported CPython 3.99")


def test_a_user_without_rights_is_told_which() -> None:
    with run_target("idle_server") as target:
        result = subprocess.run(
            [*AS_NOBODY, *COMMAND, "attach", str(target.pid)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
    assert result.returncode == errors.PermissionMissing.exit_code, result.stderr
    assert "SYS_PTRACE" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_file_that_cannot_be_written_is_said_before_attaching(tmp_path: Path) -> None:
    with run_target("idle_server") as target:
        missing = tmp_path / "missing" / "file.gscope"
        result = run_cli("attach", str(target.pid), "-d", "1s", "-o", str(missing))
    assert result.returncode == errors.RecordingError.exit_code, result.stderr
    assert str(missing) in result.stderr


def test_a_collector_that_does_not_answer_is_said_before_attaching(tmp_path: Path) -> None:
    with run_target("idle_server") as target:
        nowhere = f"unix:{tmp_path}/nowhere"
        result = run_cli("attach", str(target.pid), "-d", "1s", "--collector", nowhere)
    assert result.returncode == errors.CollectorError.exit_code, result.stderr
    assert "nowhere" in result.stderr


def test_a_command_that_does_not_exist() -> None:
    result = run_cli("run", "--", "/nonexistent/command")
    assert result.returncode == errors.CommandFailed.exit_code, result.stderr
    assert "/nonexistent/command" in result.stderr


def test_a_command_that_never_imports_greenlet() -> None:
    result = run_cli("run", "--", sys.executable, "-c", "raise SystemExit(3)")
    assert result.returncode == errors.GreenletNotFound.exit_code, result.stderr
    assert "exit code 3" in result.stderr
