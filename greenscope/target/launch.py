"""Starting a command that waits until it is watched."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from greenscope.errors import CommandFailed

_EXEC_FAILED = 127
_SIGNALLED = 128


@dataclass(slots=True)
class HeldCommand:
    """A child process that has not executed its command yet. `pid` stays the same when it does."""

    pid: int
    command: tuple[str, ...]
    _go_fd: int
    _error_fd: int
    _exit_code: int | None = None

    def release(self) -> None:
        """Lets it execute the command.

        Raises:
            CommandFailed: it cannot be executed.
        """
        os.write(self._go_fd, b"x")
        os.close(self._go_fd)
        with os.fdopen(self._error_fd, "rb") as pipe:
            # Closed by a successful exec, which ends the read.
            error = pipe.read()
        if error:
            self.wait()
            raise CommandFailed(
                f"cannot run {self.command[0]}: {os.strerror(int(error))}",
                "Give the command after `--`, as you would type it in a shell.",
            )

    def wait(self) -> int:
        """Waits for its end; the exit code as a shell gives it (128 + N for signal N)."""
        if self._exit_code is None:
            _, status = os.waitpid(self.pid, 0)
            code = os.waitstatus_to_exitcode(status)
            self._exit_code = code if code >= 0 else _SIGNALLED - code
        return self._exit_code

    def has_ended(self) -> bool:
        """Whether it is over, without waiting."""
        if self._exit_code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self._exit_code = code if code >= 0 else _SIGNALLED - code
        return self._exit_code is not None

    def abandon(self) -> None:
        """Ends a child that was never released: it is still ours, not yet the command."""
        os.close(self._go_fd)
        os.close(self._error_fd)
        self.wait()


def hold(command: Sequence[str]) -> HeldCommand:
    """Forks a child that executes `command` when it is released.

    To be called before the process starts threads.
    """
    go_read, go_write = os.pipe2(os.O_CLOEXEC)
    error_read, error_write = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        os.close(go_write)
        os.close(error_read)
        _child(command, go_read, error_write)
    os.close(go_read)
    os.close(error_write)
    return HeldCommand(pid, tuple(command), go_write, error_read)


def _child(command: Sequence[str], go_fd: int, error_fd: int) -> NoReturn:
    """The child's side: Python's own signal settings are undone, as subprocess does."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        if os.read(go_fd, 1):
            os.execvp(command[0], list(command))
    except OSError as error:
        os.write(error_fd, str(error.errno).encode())
    finally:
        os._exit(_EXEC_FAILED)
