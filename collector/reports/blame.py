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
MINOR_PART = 0.2


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


def charges_of(hold: Hold, threshold_ns: int) -> dict[Blame, Charge]:
    """Divides a hold among the code to blame; the charges sum up to its pieces.

    So that noise names no innocent code and a function is not listed over and over: what it
    suffered (preempted, faults) goes to what it did, where it did that for at least a quarter
    of both; computing around a call that takes at least four fifths of a function's time goes
    to that call; and what is less than a fifth and also shorter than the threshold, so that it
    would not have been a blocking hold by itself, goes to the largest charge.
    """
    charges: dict[Blame, Charge] = {}
    for piece in hold.pieces:
        blame, charge = _charge(piece)
        if blame in charges:
            charges[blame].take(charge, same_code=True)
        else:
            charges[blame] = charge
    _fold_minor_reasons(charges, threshold_ns)
    _fold_small(charges, hold.duration_ns, threshold_ns)
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


def _fold_minor_reasons(charges: dict[Blame, Charge], threshold_ns: int) -> None:
    """Leaves each function of a hold with the reasons that matter for it."""
    functions: dict[tuple[str, str], list[Blame]] = {}
    for blame in charges:
        functions.setdefault((blame.function, blame.file), []).append(blame)
    for blames in functions.values():
        doing = [blame for blame in blames if blame.reason not in _SUFFERED]
        if not doing:
            continue
        main = min(doing, key=lambda blame: (-charges[blame].total_ns, _order(blame)))
        main_ns = charges[main].total_ns
        whole_ns = sum(charges[blame].total_ns for blame in blames)
        for blame in blames:
            part_ns = charges[blame].total_ns
            suffered = blame.reason in _SUFFERED and part_ns <= SUFFERED_LIMIT * main_ns
            minor = part_ns < whole_ns * MINOR_PART and (
                blame.reason == REASON_CPU or part_ns < threshold_ns
            )
            if blame != main and (suffered or minor):
                charges[main].take(charges.pop(blame), same_code=True)


def _fold_small(charges: dict[Blame, Charge], duration_ns: int, threshold_ns: int) -> None:
    if not charges:
        return
    largest = min(charges, key=lambda blame: (-charges[blame].total_ns, _order(blame)))
    for blame in list(charges):
        total_ns = charges[blame].total_ns
        small = total_ns < duration_ns * MINOR_PART and total_ns < threshold_ns
        if small and blame != largest:
            same_code = (blame.function, blame.file) == (largest.function, largest.file)
            charges[largest].take(charges.pop(blame), same_code)


def _order(blame: Blame) -> tuple[str, str, str, int]:
    return blame.function, blame.file, blame.reason, blame.line


def _add_all(sums: dict[_T, int], more: dict[_T, int]) -> None:
    for key, value in more.items():
        sums[key] = sums.get(key, 0) + value
