"""Which code a part of a hold is charged to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from greenscope.model import (
    REASON_CPU,
    REASON_FAULT,
    REASON_PREEMPTED,
    SYSCALL_PREFIX,
    CodeOrigin,
    Frame,
    Hold,
    HoldPiece,
    Reason,
    Stack,
)

_T = TypeVar("_T")

NO_FRAME_FUNCTION = "(no Python frame)"
# These packages switch and poll on behalf of others; what they do is somebody else's doing.
_SWITCHING_PACKAGES = ("/gevent/", "/greenlet/")
# What a function suffers while it computes.
_SUFFERED = (REASON_PREEMPTED, REASON_FAULT)

# A loop that wanted to compute is to blame even where others ran for most of its time; a hold
# in which it hardly ran at all is the machine's doing.
SUFFERED_LIMIT = 3
SMALL_PART = 0.05
SMALL_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class Blame:
    """What hotspots are grouped by. `line` is 0 unless the reason is a system call."""

    function: str
    file: str
    reason: Reason
    line: int


@dataclass(frozen=True, slots=True)
class Detail:
    """Where exactly, within a Blame: the blamed frame's line, and the stack."""

    line: int
    stack: Stack


@dataclass(slots=True)
class Charge:
    """What one hold charges to one Blame; `reasons` and `details` sum up to `total_ns`.

    Except that time taken over from other code is not among the details.
    """

    total_ns: int
    reasons: dict[Reason, int]
    details: dict[Detail, int]

    def take(self, other: Charge, same_code: bool) -> None:
        """Adds another charge to this one."""
        self.total_ns += other.total_ns
        _add_all(self.reasons, other.reasons)
        if same_code:
            _add_all(self.details, other.details)


def blamed_frame(stack: Stack) -> Frame | None:
    """The innermost frame of the application; without one, of a library; else the innermost."""
    for frame in stack.frames:
        if frame.code.origin is CodeOrigin.APPLICATION:
            return frame
    for frame in stack.frames:
        if frame.code.origin is CodeOrigin.LIBRARY and not _switches(frame.code.file):
            return frame
    return stack.frames[0] if stack.frames else None


def _switches(file: str) -> bool:
    return any(package in file for package in _SWITCHING_PACKAGES)


def charges_of(hold: Hold) -> dict[Blame, Charge]:
    """Divides a hold among the code to blame; the charges sum up to its pieces.

    So that noise names no innocent code, a function's time of being preempted and of page
    faults goes to its own computing where that is at least a quarter of both, and what is less than 5 %
    of the hold and less than 1 ms goes to the hold's largest charge.
    """
    charges: dict[Blame, Charge] = {}
    for piece in hold.pieces:
        blame, charge = _charge(piece)
        if blame in charges:
            charges[blame].take(charge, same_code=True)
        else:
            charges[blame] = charge
    _fold_suffered(charges)
    _fold_small(charges, hold.duration_ns)
    return charges


def _charge(piece: HoldPiece) -> tuple[Blame, Charge]:
    frame = blamed_frame(piece.stack)
    function, file, line = NO_FRAME_FUNCTION, "", 0
    if frame is not None:
        function, file, line = frame.code.function, frame.code.file, frame.line
    key_line = line if piece.reason.startswith(SYSCALL_PREFIX) else 0
    duration_ns = piece.duration_ns
    charge = Charge(
        duration_ns, {piece.reason: duration_ns}, {Detail(line, piece.stack): duration_ns}
    )
    return Blame(function, file, piece.reason, key_line), charge


def _fold_suffered(charges: dict[Blame, Charge]) -> None:
    for blame in [blame for blame in charges if blame.reason in _SUFFERED]:
        computing = charges.get(Blame(blame.function, blame.file, REASON_CPU, 0))
        if computing is not None and charges[blame].total_ns <= SUFFERED_LIMIT * computing.total_ns:
            computing.take(charges.pop(blame), same_code=True)


def _fold_small(charges: dict[Blame, Charge], duration_ns: int) -> None:
    if not charges:
        return
    largest = min(charges, key=lambda blame: (-charges[blame].total_ns, _order(blame)))
    for blame in list(charges):
        total_ns = charges[blame].total_ns
        small = total_ns < duration_ns * SMALL_PART and total_ns < SMALL_NS
        if small and blame != largest:
            same_code = (blame.function, blame.file) == (largest.function, largest.file)
            charges[largest].take(charges.pop(blame), same_code)


def _order(blame: Blame) -> tuple[str, str, str, int]:
    return blame.function, blame.file, blame.reason, blame.line


def _add_all(sums: dict[_T, int], more: dict[_T, int]) -> None:
    for key, value in more.items():
        sums[key] = sums.get(key, 0) + value
