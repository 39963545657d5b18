"""Putting holds together: the kernel side's events of one hold become one Hold.

A hold's length and its time off the CPU are exact; where its time on the CPU went is known
from samples. The pieces of a hold always add up to its length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from greenscope.bpf import abi
from greenscope.model import (
    REASON_CPU,
    REASON_FAULT,
    REASON_GC,
    REASON_PREEMPTED,
    SYSCALL_PREFIX,
    Code,
    Hold,
    HoldPiece,
    Reason,
    StackStatus,
)
from greenscope.rebuild.stacks import StackResolver, kind_of

MAX_UNCERTAINTY_NS = (1 << 31) - 1  # gs_event.nr holds it

Place = tuple[int, Reason]
"""Where time went: (stack id, reason)."""


@dataclass(slots=True)
class Spent:
    """Time at one place: nanoseconds and the number of samples or blocks behind it."""

    duration_ns: int = 0
    count: int = 0


@dataclass(slots=True)
class Evidence:
    """What was seen inside one hold so far, or since the hub polled in it last.

    `since_ns` is where that part begins, 0 for the hold's own begin. `earlier` are the parts
    before it, each with its end; the hub was polling between them, `idle_ns` in all. `saw_hub`
    says whether a stack showed it.
    """

    hold_id: int
    samples: dict[Place, int] = field(default_factory=dict)
    blocks: dict[Place, Spent] = field(default_factory=dict)
    since_ns: int = 0
    earlier: list[tuple[Evidence, int]] = field(default_factory=list)
    idle_ns: int = 0
    saw_hub: bool = False

    def add_sample(self, place: Place) -> None:
        """One tick of the CPU clock."""
        self.samples[place] = self.samples.get(place, 0) + 1

    def add_block(self, place: Place, duration_ns: int) -> None:
        """One stay off the CPU."""
        spent = self.blocks.setdefault(place, Spent())
        spent.duration_ns += duration_ns
        spent.count += 1

    def add_idle(self, from_ns: int, to_ns: int, saw_hub: bool) -> None:
        """The hub polled: what was seen so far is of a part that ended there."""
        part = Evidence(self.hold_id, self.samples, self.blocks, self.since_ns)
        self.earlier.append((part, from_ns))
        self.samples, self.blocks = {}, {}
        self.since_ns = to_ns
        self.idle_ns += to_ns - from_ns
        self.saw_hub |= saw_hub

    def parts(self, end_ns: int) -> list[tuple[Evidence, int]]:
        """All parts with their ends, given the end of the hold."""
        return [*self.earlier, (self, end_ns)]


@dataclass(frozen=True, slots=True)
class Judged:
    """What a HOLD event turned out to be.

    `idle_ns` of it the hub was polling, which the kernel side took for a hold as it did not
    know the hub yet; `saw_hub` says whether a stack showed it.
    """

    holds: tuple[Hold, ...]
    idle_ns: int = 0
    saw_hub: bool = False


def sample_reason(flags: int, nr: int, syscall_name: Callable[[int], str]) -> Reason:
    """Why the thread was on the CPU when the sampler met it."""
    if flags & abi.FLAG_GC:
        return REASON_GC
    # A negative number in kernel mode: a minor fault, or an interrupt that is none of the
    # thread's doing (both leave -1, arch/x86/include/asm/idtentry.h).
    in_syscall = flags & abi.FLAG_IN_SYSCALL and nr >= 0
    return SYSCALL_PREFIX + syscall_name(nr) if in_syscall else REASON_CPU


def block_reason(off_kind: int, nr: int, syscall_name: Callable[[int], str]) -> Reason:
    """Why the thread was off the CPU."""
    if off_kind == abi.OffKind.PREEMPTED:
        return REASON_PREEMPTED
    return REASON_FAULT if nr < 0 else SYSCALL_PREFIX + syscall_name(nr)


def spread(event: abi.Event, evidence: Evidence, fallback_stack_id: int) -> dict[Place, Spent]:
    """Divides a hold's length over the places seen in it.

    Blocks have exact lengths. The collector's time goes to the samples taken in it, the rest
    on the CPU to the other samples in equal parts. Where nothing was sampled it goes to the
    largest block, and in a hold without any evidence to the stack at its end.
    """
    pieces = {place: Spent(s.duration_ns, s.count) for place, s in evidence.blocks.items()}
    for preempted, total_ns in ((False, event.blocked_ns), (True, event.preempted_ns)):
        places = [p for p in pieces if (p[1] == REASON_PREEMPTED) == preempted]
        _share(pieces, {p: pieces[p].count for p in places}, total_ns - _total(pieces, places))
    if not any(reason == REASON_PREEMPTED for _, reason in pieces):
        _share(pieces, {(fallback_stack_id, REASON_PREEMPTED): 1}, event.preempted_ns, counts=True)
    rest_ns = event.duration_ns - _total(pieces, pieces)
    if rest_ns < 0:
        # A block that began in the hold before: what lies outside of this one is not its.
        _shrink(pieces, event.duration_ns)
        rest_ns = 0
    samples = _without_rare_syscalls(evidence.samples)
    collecting = {p: n for p, n in samples.items() if p[1] == REASON_GC}
    computing = {p: n for p, n in samples.items() if p[1] != REASON_GC}
    gc_ns = min(event.gc_ns, rest_ns) if collecting and computing else rest_ns
    if collecting:
        _share(pieces, collecting, gc_ns, counts=True)
        rest_ns -= gc_ns
    _share(pieces, computing, rest_ns, counts=True)
    return _complete(pieces, event.duration_ns, (fallback_stack_id, REASON_CPU))


def _total(pieces: dict[Place, Spent], places: Iterable[Place]) -> int:
    return sum(pieces[place].duration_ns for place in places)


def _share(
    pieces: dict[Place, Spent], weights: dict[Place, int], total_ns: int, counts: bool = False
) -> None:
    """Adds `total_ns` to the places by their weights, which are also counts if so said."""
    whole = sum(weights.values())
    for place, weight in weights.items():
        spent = pieces.setdefault(place, Spent())
        spent.duration_ns += max(0, total_ns) * weight // whole
        spent.count += weight if counts else 0


def _shrink(pieces: dict[Place, Spent], duration_ns: int) -> None:
    total_ns = _total(pieces, pieces)
    for spent in pieces.values():
        spent.duration_ns = spent.duration_ns * duration_ns // total_ns


def _without_rare_syscalls(samples: dict[Place, int]) -> dict[Place, int]:
    """Samples inside of system calls count as computing unless they are at least half.

    A loop that computes allocates memory too, and should not be named for its brk().
    """
    inside = sum(n for (_, reason), n in samples.items() if reason.startswith(SYSCALL_PREFIX))
    computing = sum(n for (_, reason), n in samples.items() if reason == REASON_CPU)
    if inside >= computing:
        return samples
    merged: dict[Place, int] = {}
    for (stack_id, reason), count in samples.items():
        place = (stack_id, REASON_CPU if reason.startswith(SYSCALL_PREFIX) else reason)
        merged[place] = merged.get(place, 0) + count
    return merged


def _complete(pieces: dict[Place, Spent], duration_ns: int, fallback: Place) -> dict[Place, Spent]:
    """Gives what is not charged yet to the largest piece, so that the sum is exact."""
    pieces = {place: spent for place, spent in pieces.items() if spent.duration_ns}
    missing_ns = duration_ns - _total(pieces, pieces)
    if not pieces:
        return {fallback: Spent(missing_ns, 1)}
    largest = max(pieces.values(), key=lambda spent: spent.duration_ns)
    largest.duration_ns += missing_ns
    return pieces


class HoldAssembler:
    """Collects the events of each thread's present hold; a finished hold comes out whole."""

    def __init__(
        self, resolver: StackResolver, syscall_name: Callable[[int], str], threshold_ns: int
    ) -> None:
        self._threshold_ns = threshold_ns
        self._resolver = resolver
        self._syscall_name = syscall_name
        self._evidence: dict[int, Evidence] = {}

    def sample(self, event: abi.Event) -> None:
        """A SAMPLE event."""
        reason = sample_reason(event.flags, event.nr, self._syscall_name)
        self._of(event.tid, event.hold_id).add_sample((event.stack_id, reason))

    def block(self, event: abi.Event) -> None:
        """A BLOCK event."""
        place = event.stack_id, block_reason(event.off_kind, event.nr, self._syscall_name)
        maybe_hub = bool(event.flags & (abi.FLAG_HUB | abi.FLAG_UNDECIDED))
        evidence = self._of(event.tid, event.hold_id)
        self._add_block(evidence, place, event.ktime_ns, event.duration_ns, maybe_hub)

    def _add_block(
        self, evidence: Evidence, place: Place, end_ns: int, duration_ns: int, maybe_hub: bool
    ) -> None:
        stack_id, reason = place
        syscall = reason.removeprefix(SYSCALL_PREFIX)
        stack = self._resolver.by_id(stack_id)
        unseen = maybe_hub and not stack.frames and syscall in abi.POLLS
        if unseen or self._resolver.is_idle(stack, syscall):
            evidence.add_idle(end_ns - duration_ns, end_ns, not unseen)
        elif stack_id:  # none: in the middle of a switch, where no frames are its own
            evidence.add_block(place, duration_ns)

    def hold(self, event: abi.Event, tid: int, is_open: bool = False) -> Judged:
        """What a HOLD event is; `tid` is the thread's id as it is to be reported."""
        evidence = self._of(event.tid, event.hold_id)
        self._evidence.pop(event.tid, None)
        if not evidence.idle_ns and not event.flags & abi.FLAG_UNDECIDED:
            return Judged((self._hold(event, evidence, tid, is_open),))
        parts = (self._part(event, *part) for part in evidence.parts(event.ktime_ns))
        holds = [
            self._hold(part, seen, tid, is_open and part.ktime_ns == event.ktime_ns)
            for part, seen in parts
            if part.duration_ns >= self._threshold_ns
        ]
        return Judged(tuple(holds), evidence.idle_ns, evidence.saw_hub)

    def _part(
        self, event: abi.Event, evidence: Evidence, end_ns: int
    ) -> tuple[abi.Event, Evidence]:
        """One part of a hold as if it were a hold by itself, by what is known of it alone."""
        start_ns = max(evidence.since_ns, event.ktime_ns - event.duration_ns)
        first = start_ns > evidence.since_ns
        blocks = evidence.blocks.items()
        off_ns = {
            preempted: sum(
                spent.duration_ns
                for (_, reason), spent in blocks
                if (reason == REASON_PREEMPTED) == preempted
            )
            for preempted in (False, True)
        }
        part = event._replace(
            flags=event.flags if first else event.flags & ~abi.FLAG_BEGAN_BEFORE,
            ktime_ns=end_ns,
            duration_ns=max(0, end_ns - start_ns),
            blocked_ns=off_ns[False],
            preempted_ns=off_ns[True],
            gc_ns=0,
        )
        return part, evidence

    def _hold(self, event: abi.Event, evidence: Evidence, tid: int, is_open: bool) -> Hold:
        pieces = spread(event, evidence, event.stack_id)
        off_ns = event.blocked_ns + event.preempted_ns
        hold = Hold(
            tid=tid,
            greenlet_id=event.greenlet_id,
            start_ktime_ns=event.ktime_ns - event.duration_ns,
            duration_ns=event.duration_ns,
            on_cpu_ns=max(0, event.duration_ns - off_ns),
            is_hub=bool(event.flags & abi.FLAG_HUB),
            is_open=is_open,
            began_before=bool(event.flags & abi.FLAG_BEGAN_BEFORE),
            pieces=tuple(
                HoldPiece(self._resolver.by_id(stack_id), reason, spent.duration_ns, spent.count)
                for (stack_id, reason), spent in pieces.items()
            ),
            uncertainty_ns=max(0, event.nr),
        )
        return replace(hold, kind=_kind(hold))

    def polled_as_hub(self, hold: Hold) -> bool:
        """Whether a part of it was the poll of what turned out to be a hub since."""
        return any(
            self._resolver.is_idle(piece.stack, piece.reason.removeprefix(SYSCALL_PREFIX))
            for piece in hold.pieces
        )

    def open_hold(self, tid: int, thread: abi.Thread, now_ns: int) -> abi.Event:
        """The HOLD event that the present hold of a thread would give if it ended now.

        A thread that is off the CPU has not come back to tell; its block is added here.
        """
        blocked_ns, preempted_ns = thread.blocked_ns, thread.preempted_ns
        if thread.off_since_ns:
            length_ns = max(0, now_ns - max(thread.off_since_ns, thread.hold_start_ns))
            reason = block_reason(thread.off_kind, thread.off_nr, self._syscall_name)
            place = (thread.off_stack_id, reason)
            maybe_hub = thread.role == abi.Role.HUB or bool(thread.undecided)
            evidence = self._of(tid, thread.hold_id)
            self._add_block(evidence, place, now_ns, length_ns, maybe_hub)
            if thread.off_kind == abi.OffKind.PREEMPTED:
                preempted_ns += length_ns
            else:
                blocked_ns += length_ns
        collecting_ns = now_ns - thread.gc_since_ns if thread.gc_since_ns else 0
        flags = abi.FLAG_HUB if thread.role == abi.Role.HUB else 0
        flags |= abi.FLAG_BEGAN_BEFORE if thread.began_before else 0
        flags |= abi.FLAG_UNDECIDED if thread.undecided else 0
        return abi.Event(
            kind=abi.EventKind.HOLD,
            flags=flags,
            off_kind=0,
            pad=0,
            nr=min(thread.uncertain_ns, MAX_UNCERTAINTY_NS),
            tid=tid,
            tgid=thread.tgid,
            ktime_ns=now_ns,
            hold_id=thread.hold_id,
            stack_id=thread.off_stack_id,
            duration_ns=now_ns - thread.hold_start_ns,
            greenlet_id=thread.greenlet_id,
            blocked_ns=blocked_ns,
            preempted_ns=preempted_ns,
            gc_ns=thread.gc_ns + collecting_ns,
        )

    def forget(self, tid: int) -> None:
        """Drops what was collected of a thread that ended."""
        self._evidence.pop(tid, None)

    def _of(self, tid: int, hold_id: int) -> Evidence:
        """The evidence of a thread's hold; that of an older one was of no blocking hold."""
        evidence = self._evidence.get(tid)
        if evidence is None or evidence.hold_id != hold_id:
            evidence = self._evidence[tid] = Evidence(hold_id)
        return evidence


def _kind(hold: Hold) -> Code | None:
    """The greenlet's kind, by any whole stack of it."""
    stacks = (piece.stack for piece in hold.pieces)
    return next((kind_of(s) for s in stacks if s.status is StackStatus.COMPLETE), None)
