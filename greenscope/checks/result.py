"""The answer of one check, as data."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from greenscope.errors import GreenscopeError


class Status(enum.Enum):
    """How a check came out; only FAIL keeps greenscope from working."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """`found` is what there is; `advice` what to do about it ("" when there is nothing to do).

    `exit_code` is that of errors.py for the failure, 0 where the check did not fail.
    """

    name: str
    status: Status
    found: str
    advice: str = ""
    exit_code: int = 0


def ok(name: str, found: str) -> Check:
    """A check that found what is needed."""
    return Check(name, Status.OK, found)


def warn(name: str, found: str, advice: str) -> Check:
    """Something that narrows what greenscope can do, or may."""
    return Check(name, Status.WARN, found, advice)


def fail(name: str, found: str, advice: str, error: type[GreenscopeError]) -> Check:
    """Something without which an attach would end with `error`."""
    return Check(name, Status.FAIL, found, advice, error.exit_code)


def fail_with(name: str, error: GreenscopeError) -> Check:
    """The same from an error that was raised: its message and its hint."""
    return Check(name, Status.FAIL, error.message, error.hint, error.exit_code)


def exit_code_of(checks: Iterable[Check]) -> int:
    """The exit code of the first failure; checks are ordered from cause to consequence."""
    return next((check.exit_code for check in checks if check.status is Status.FAIL), 0)
