"""Times, counts and places as people read them."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from rich.cells import cell_len, set_cell_size

from greenscope.model import SYSCALL_PREFIX, Reason

_UNITS: Final = ((1_000, "ns", 1), (1_000_000, "us", 1_000), (1_000_000_000, "ms", 1_000_000))
_REASONS: Final = {
    "cpu": "cpu",
    "gc": "garbage collection",
    "preempted": "preempted by other processes",
    "fault": "page fault",
    "unknown": "unknown reason",
}
_HOUR_S: Final = 3600


def duration(value_ns: int) -> str:
    """Three digits and a unit: 850 ns, 12.3 ms, 1.20 s, 2.50 h."""
    for limit_ns, unit, unit_ns in _UNITS:
        # What would be rounded up to 1000 belongs to the next unit.
        if value_ns < limit_ns * 0.9995:
            return f"{value_ns} ns" if unit_ns == 1 else f"{_digits(value_ns / unit_ns)} {unit}"
    seconds = value_ns / 1e9
    if seconds < _HOUR_S:
        return f"{_digits(seconds)} s"
    return f"{_digits(seconds / _HOUR_S)} h"


def round_duration(value_ns: int) -> str:
    """A duration that somebody chose: 10 ms, not 10.0 ms."""
    text, _, unit = duration(value_ns).partition(" ")
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"


def _digits(value: float) -> str:
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def count(number: int, one: str, many: str = "") -> str:
    """1 hold, 1,234 holds."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """61.2%, <0.1%."""
    return "<0.1%" if 0 < share < 0.0005 else f"{share:.1%}"


def reason_in_words(reason: Reason) -> str:
    """`system call clock_nanosleep` for syscall:clock_nanosleep, and so on."""
    if reason.startswith(SYSCALL_PREFIX):
        return f"system call {reason.removeprefix(SYSCALL_PREFIX)}"
    return _REASONS.get(reason, reason)


def printable(text: str) -> str:
    r"""The text without what would steer a terminal: a name in a target may hold anything."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def place(file: str, line: int) -> str:
    """file:line, or only the file where the line is not known."""
    return f"{file}:{line}" if line else file


def shortened_place(file: str, line: int, width: int, dots: str) -> str:
    """The place within `width` cells: parts in the middle of the path go first.

    The file's name and the line always stay, even where they are wider.
    """
    whole = place(file, line)
    if cell_len(whole) <= width:
        return whole
    parts = PurePath(file).parts
    for dropped in range(1, len(parts) - 1):
        # The first part ("/") stays while possible: it says that the path is absolute.
        kept = PurePath(*parts[dropped + 1 :])
        text = place(f"{parts[0]}{dots}/{kept}", line)
        if cell_len(text) <= width:
            return text
    return place(parts[-1] if parts else file, line)


def shortened(text: str, width: int, dots: str) -> str:
    """The text within `width` cells, without its middle."""
    if cell_len(text) <= width:
        return text
    head = max(0, (width - cell_len(dots)) // 2)
    tail = max(0, width - cell_len(dots) - head)
    # Counted in characters for the tail: what is wide may leave a cell free.
    end = text[len(text) - tail :] if tail else ""
    while cell_len(end) > tail:
        end = end[1:]
    return set_cell_size(text, head).rstrip() + dots + end
