"""Putting holds together: the kernel side's events of one hold become one Hold.

A hold's length and its time off the CPU are exact; where its time on the CPU went is known
from samples. The pieces of a hold always add up to its length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from greenscope.bpf import abi
from greenscope.model import (
    REASON_CPU,
    REASON_FAULT,
    REASON_GC,
    REASON_PREEMPTED,
    SYSCALL_PREFIX,
    Hold,
    HoldPiece,
    Reason,
)
from greenscope.rebuild.stacks import StackResolver

NO_SYSCALL = -1

Place = tuple[int, Reason]
"""Where time went: (stack id, reason)."""


@dataclass(slots=True)
class Spent:
    """Time at one place: nanoseconds and the number of samples or blocks behind it."""

    duration_ns: int = 0
    count: int = 0


@dataclass(slots=True)
class Evidence:
    """What was seen inside one hold so far."""

    hold_id: int
    samples: dict[Place, int] = field(default_factory=dict)
    blocks: dict[Place, Spent] = field(default_factory=dict)

    def add_sample(self, place: Place) -> None:
        """One tick of the CPU clock."""
        self.samples[place] = self.samples.get(place, 0) + 1

    def add_block(self, place: Place, duration_ns: int) -> None:
        """One stay off the CPU."""
        spent = self.blocks.setdefault(place, Spent())
        spent.duration_ns += duration_ns
        spent.count += 1


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

    def __init__(self, resolver: StackResolver, syscall_name: Callable[[int], str]) -> None:
        self._resolver = resolver
        self._syscall_name = syscall_name
        self._evidence: dict[int, Evidence] = {}

    def sample(self, event: abi.Event) -> None:
        """A SAMPLE event."""
        reason = sample_reason(event.flags, event.nr, self._syscall_name)
        self._of(event.tid, event.hold_id).add_sample((event.stack_id, reason))

    def block(self, event: abi.Event) -> None:
        """A BLOCK event."""
        if not event.stack_id:
            return  # in the middle of a switch, where no frames are its own; the sums have it
        reason = block_reason(event.off_kind, event.nr, self._syscall_name)
        self._of(event.tid, event.hold_id).add_block((event.stack_id, reason), event.duration_ns)

    def hold(self, event: abi.Event, tid: int, is_open: bool = False) -> Hold:
        """The Hold of a HOLD event; `tid` is the thread's id as it is to be reported."""
        evidence = self._of(event.tid, event.hold_id)
        self._evidence.pop(event.tid, None)
        pieces = spread(event, evidence, event.stack_id)
        off_ns = event.blocked_ns + event.preempted_ns
        return Hold(
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
            self._of(tid, thread.hold_id).add_block(place, length_ns)
            if thread.off_kind == abi.OffKind.PREEMPTED:
                preempted_ns += length_ns
            else:
                blocked_ns += length_ns
        collecting_ns = now_ns - thread.gc_since_ns if thread.gc_since_ns else 0
        flags = abi.FLAG_HUB if thread.role == abi.Role.HUB else 0
        flags |= abi.FLAG_BEGAN_BEFORE if thread.began_before else 0
        return abi.Event(
            kind=abi.EventKind.HOLD,
            flags=flags,
            off_kind=0,
            pad=0,
            nr=NO_SYSCALL,
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
