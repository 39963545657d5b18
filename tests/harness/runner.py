"""Starts a program of tests/targets, talks to it over two fifos, and always ends it.

The protocol is described in tests/targets/truth.py. Every wait is for an event or for the
target's end (a pidfd), bounded by a timeout whose error carries the target's stderr.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness.truth import TruthFile, read_truth

TARGETS = Path(__file__).resolve().parent.parent / "targets"
DEFAULT_TIMEOUT_S = 60.0
# Nothing is written to a disk while the target is watched: a slow one would hold its hub.
MEMORY_DIRECTORY = Path("/dev/shm")

Event = dict[str, Any]


class TargetError(Exception):
    """The target did not do what the protocol asks; the message carries its stderr."""


class TargetUnavailable(TargetError):
    """The target says that this machine cannot run it."""


@dataclass(frozen=True, slots=True)
class ExitReport:
    """How a target ended: its exit code, and the signals that its handlers received."""

    returncode: int
    signals: tuple[int, ...]


class RunningTarget:
    """One started target. `ready` is its first event, once `wait_ready` has returned."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], directory: Path) -> None:
        self.name = name
        self.pid = process.pid
        self.directory = directory
        self.ready: Event = {}
        self._process = process
        self._pending = b""
        self._events_fd = os.open(directory / "events", os.O_RDONLY | os.O_NONBLOCK)
        # Read and write: opening never blocks, and the target sees the end of file only when
        # the harness is gone.
        self._commands_fd = os.open(directory / "commands", os.O_RDWR)
        self._pid_fd = os.pidfd_open(process.pid)

    def wait_ready(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> Event:
        """Wait until the target is set up; gives its pid and thread id as it sees them."""
        self.ready = self.wait_event("ready", timeout_s)
        return self.ready

    def go(self) -> None:
        """Let the target begin its script."""
        if not self.ready:
            self.wait_ready()
        self.send("go")

    def wait_done(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Wait until the script has ended and the truth is written; the target lives on."""
        self.wait_event("done", timeout_s)

    def truth(self) -> TruthFile:
        """What the target did; there from `wait_done` on."""
        return read_truth(self.directory / "truth.jsonl")

    def send(self, word: str) -> None:
        """Send one command of the protocol."""
        os.write(self._commands_fd, word.encode() + b"\n")

    def quit(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> ExitReport:
        """Ask the target to exit, and wait until it has."""
        self.send("quit")
        bye = self.wait_event("bye", timeout_s)
        self._wait_exit(timeout_s)
        return ExitReport(self._process.returncode, tuple(bye["signals"]))

    def kill(self) -> None:
        """End the target now, by its pid (SIGKILL), and reap it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def stderr(self) -> str:
        """What the target wrote to stdout and stderr so far."""
        return (self.directory / "output").read_text(errors="replace")

    def wait_event(self, name: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> Event:
        """Wait for the next event, which must have this name."""
        event = self._next_event(name, timeout_s)
        if event["event"] == "unavailable":
            raise TargetUnavailable(f"{self.name}: {event['why']}")
        if event["event"] != name:
            raise TargetError(f"{self.name}: expected {name}, got {event}\n{self.stderr()}")
        return event

    def close(self) -> None:
        """End the target if it lives, and give back the descriptors."""
        self.kill()
        for fd in (self._events_fd, self._commands_fd, self._pid_fd):
            os.close(fd)

    def _next_event(self, name: str, timeout_s: float) -> Event:
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            ready = self._poll((self._events_fd, self._pid_fd), deadline, name)
            # Events first: a target that has ended may have left some in the fifo.
            data = os.read(self._events_fd, 65536) if self._events_fd in ready else b""
            if not data and self._pid_fd in ready:
                self._process.wait()
                raise TargetError(
                    f"{self.name}: exited with {self._process.returncode} "
                    f"before {name}\n{self.stderr()}"
                )
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        event: Event = json.loads(line)
        return event

    def _poll(self, fds: Sequence[int], deadline: float, what: str) -> list[int]:
        left_s = deadline - time.monotonic()
        ready, _, _ = select.select(fds, (), (), max(left_s, 0))
        if not ready:
            raise TargetError(f"{self.name}: no {what} in time\n{self.stderr()}")
        return list(ready)

    def _wait_exit(self, timeout_s: float) -> None:
        self._poll((self._pid_fd,), time.monotonic() + timeout_s, "exit")
        self._process.wait()


def default_python() -> str:
    """The interpreter that runs targets: GREENSCOPE_TARGET_PYTHON, else the one of the tests."""
    return os.environ.get("GREENSCOPE_TARGET_PYTHON") or sys.executable


@contextmanager
def run_target(
    name: str,
    python: str | None = None,
    env: Mapping[str, str] | None = None,
    args: Sequence[str] = (),
    wrapper: Sequence[str] = (),
) -> Iterator[RunningTarget]:
    """Start tests/targets/NAME.py and wait until it is ready; end it when the block ends.

    `args` are `option=value`. `env` is added to the environment. `wrapper` is a command that
    executes the rest of its arguments in place (as `unshare -n` does). Raises
    TargetUnavailable where the machine cannot run it. The target dies with the calling thread.
    """
    with ExitStack() as stack:
        directory = _control_directory(stack)
        command = [*wrapper, python or default_python(), str(TARGETS / f"{name}.py")]
        with open(directory / "output", "wb") as output:
            process = subprocess.Popen(
                [*command, str(directory), *args],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})},
                # Ctrl-C on the terminal is for the tests; the target is ended by its pid.
                start_new_session=True,
            )
        try:
            target = RunningTarget(name, process, directory)
        except OSError:
            process.kill()
            process.wait()
            raise
        stack.callback(target.close)
        target.wait_ready()
        yield target


def _control_directory(stack: ExitStack) -> Path:
    parent = MEMORY_DIRECTORY if MEMORY_DIRECTORY.is_dir() else None
    directory = Path(tempfile.mkdtemp(prefix="target-", dir=parent))
    stack.callback(shutil.rmtree, directory, ignore_errors=True)
    for fifo in ("events", "commands"):
        os.mkfifo(directory / fifo)
    return directory
