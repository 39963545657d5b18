"""Which code a part of a hold is charged to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from greenscope.model import (
    REASON_CPU,
    REASON_FAULT,
    REASON_PREEMPTED,
    SYSCALL_PREFIX,
    Hold,
    HoldPiece,
    Reason,
    Stack,
)

_T = TypeVar("_T")

NO_FRAME_FUNCTION = "(no Python frame)"
# What a function suffers while it computes.
_SUFFERED = (REASON_PREEMPTED, REASON_FAULT)

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


def charges_of(hold: Hold, threshold_ns: int) -> dict[Blame, Charge]:
    """Divides a hold among the code to blame; the charges sum up to its pieces.

    So that noise names no innocent code and a function is not listed over and over:

    - What a function suffered (preempted, faults) goes to what it did, where that alone was a
      blocking hold or is the larger part; else the hold is the machine's doing, and what it
      did goes to what it suffered.
    - Computing around a call that takes at least four fifths of a function's time goes to that
      call.
    - What is less than a fifth of the hold and also shorter than the threshold, so that it
      would have been no blocking hold by itself, goes to the hold's largest charge.
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
    frame = piece.stack.blamed_frame()
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
        suffered = [blame for blame in blames if blame.reason in _SUFFERED]
        doing = [blame for blame in blames if blame.reason not in _SUFFERED]
        if suffered and doing:
            done_ns, suffered_ns = _sum(charges, doing), _sum(charges, suffered)
            long_enough = done_ns >= threshold_ns or done_ns >= suffered_ns
            to, what = (doing, suffered) if long_enough else (suffered, doing)
            _move(charges, what, _largest(charges, to))
        _fold_computing(charges, doing, threshold_ns)


def _fold_computing(charges: dict[Blame, Charge], blames: list[Blame], threshold_ns: int) -> None:
    left = [blame for blame in blames if blame in charges]
    if not left:
        return
    main = _largest(charges, left)
    limit_ns = _sum(charges, left) * MINOR_PART
    small = [blame for blame in left if blame != main and charges[blame].total_ns < limit_ns]
    minor = [b for b in small if b.reason == REASON_CPU or charges[b].total_ns < threshold_ns]
    _move(charges, minor, main)


def _sum(charges: dict[Blame, Charge], blames: list[Blame]) -> int:
    return sum(charges[blame].total_ns for blame in blames)


def _largest(charges: dict[Blame, Charge], blames: Iterable[Blame]) -> Blame:
    return min(blames, key=lambda blame: (-charges[blame].total_ns, _order(blame)))


def _move(charges: dict[Blame, Charge], blames: list[Blame], to: Blame) -> None:
    """Adds charges to another one, which keeps its own line where the code is another."""
    for blame in blames:
        same_code = (blame.function, blame.file) == (to.function, to.file)
        charges[to].take(charges.pop(blame), same_code)


def _fold_small(charges: dict[Blame, Charge], duration_ns: int, threshold_ns: int) -> None:
    if not charges:
        return
    largest = _largest(charges, charges)
    limit_ns = min(duration_ns * MINOR_PART, threshold_ns)
    small = [b for b, charge in charges.items() if b != largest and charge.total_ns < limit_ns]
    _move(charges, small, largest)


def _order(blame: Blame) -> tuple[str, str, str, int]:
    return blame.function, blame.file, blame.reason, blame.line


def _add_all(sums: dict[_T, int], more: dict[_T, int]) -> None:
    for key, value in more.items():
        sums[key] = sums.get(key, 0) + value
