"""The numbers that stand for kinds and enumerations. Never reused; docs/record-format.md."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from greenscope.model import REASON_CPU, REASON_GC, CodeOrigin, HoldPiece, StackStatus

SCHEMA_VERSION: Final = 1
"""Raised when a field's meaning changes; not for new kinds and not for fields at the end."""

MAX_BATCH_BYTES: Final = 8 << 20
"""No batch is longer than this, neither compressed nor decompressed."""


class Kind(enum.IntEnum):
    """First field of everything in a batch: definitions below 16, records from 16 on."""

    STRING = 0
    CODE = 1
    FRAME = 2
    STACK = 3
    THREAD = 4
    GREENLET_KIND = 5
    PLACE = 6

    SESSION = 16
    HOLDS = 17
    GREENLET_TOTALS = 18
    THREAD_TOTALS = 19
    LOSS = 20
    SHED = 21
    SESSION_END = 22
    RUNNING_TOTALS = 23
    AGENT_COST = 24
    STOLEN_TIME = 25
    HUB_PROCESS = 26


class HoldFlag(enum.IntFlag):
    """Bits of a hold's flags."""

    IS_HUB = 1
    IS_OPEN = 2
    BEGAN_BEFORE = 4


ORIGIN_NUMBERS: Final = {
    CodeOrigin.APPLICATION: 0,
    CodeOrigin.LIBRARY: 1,
    CodeOrigin.STDLIB: 2,
}
STATUS_NUMBERS: Final = {
    StackStatus.COMPLETE: 0,
    StackStatus.TRUNCATED: 1,
    StackStatus.UNREADABLE: 2,
    StackStatus.UNRESOLVED: 3,
    StackStatus.NO_FRAMES: 4,
    StackStatus.LOST: 5,
}
_ORIGINS = {number: origin for origin, number in ORIGIN_NUMBERS.items()}
_STATUSES = {number: status for status, number in STATUS_NUMBERS.items()}


def origin_of(number: int) -> CodeOrigin:
    """The origin of a number; one from a newer writer counts as a library: never blamed first."""
    return _ORIGINS.get(number, CodeOrigin.LIBRARY)


def status_of(number: int) -> StackStatus:
    """The status of a number; one from a newer writer says that the stack is partial."""
    return _STATUSES.get(number, StackStatus.UNREADABLE)


def off_cpu_pieces_ns(pieces: Iterable[HoldPiece]) -> int:
    """What a hold's pieces let expect of its time off the CPU; records tell the difference."""
    return sum(p.duration_ns for p in pieces if p.reason not in (REASON_CPU, REASON_GC))
