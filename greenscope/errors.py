"""Errors that stop a run. Each knows its exit code and what the user can do about it.

The codes are documented in docs/exit-codes.md; a code is never given a second meaning.
What can be missing without stopping the run is data (`StackStatus`, `Loss`), not an error.
"""

from __future__ import annotations

from typing import ClassVar


class GreenscopeError(Exception):
    """Base of all errors of greenscope: a message for the user and a hint what to do.

    `hint` is one or more full sentences, or "" when the message says it all.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(GreenscopeError):
    """The command line asks for something that makes no sense."""

    exit_code = 2


class TargetNotFound(GreenscopeError):
    """There is no such process, or it is gone, a zombie or a kernel thread."""

    exit_code = 3


class NotPython(GreenscopeError):
    """The process maps no CPython interpreter that greenscope can recognise."""

    exit_code = 4


class UnsupportedInterpreter(GreenscopeError):
    """CPython, but of a version or build that has no row in the offsets table."""

    exit_code = 5


class GreenletNotFound(GreenscopeError):
    """The process has not imported greenlet, or in a build without the needed symbols."""

    exit_code = 6


class PermissionMissing(GreenscopeError):
    """A capability, a mount or a kernel setting keeps greenscope from working."""

    exit_code = 7


class BpfUnavailable(GreenscopeError):
    """bcc, the kernel headers or a kernel feature is missing, or a probe does not load."""

    exit_code = 8


class RecordingError(GreenscopeError):
    """A recording cannot be read or written."""

    exit_code = 9


class CollectorError(GreenscopeError):
    """The collector cannot be reached, refuses the session, or cannot open its store."""

    exit_code = 10


class CommandFailed(GreenscopeError):
    """The command of `greenscope run` could not be started."""

    exit_code = 11
