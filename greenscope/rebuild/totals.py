"""Sums over greenlets and threads, as increments since the record before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from greenscope.bpf import abi
from greenscope.model import Code, GreenletTotals, ThreadTotals
from greenscope.rebuild.stacks import StackResolver, kind_of

Group = tuple[int, Code | None, bool]
"""(tid, kind, is the hub)."""


@dataclass(slots=True)
class _Sums:
    seen: int = 0
    ended: int = 0
    alive: int = 0
    switches: int = 0
    running_ns: int = 0
    waiting_ns: int = 0
    longest_hold_ns: int = 0


@dataclass(frozen=True, slots=True)
class GreenletState:
    """A greenlet's sums since it was first seen, dead or alive.

    `start_code` is the address of the code of the function that it was started with, 0 where
    only a stack of it may tell.
    """

    greenlet_id: int
    tid: int
    kind_stack_id: int
    start_code: int
    is_hub: bool
    switches: int
    running_ns: int
    waiting_ns: int
    longest_hold_ns: int


def ended_greenlet(event: abi.Event, tid: int) -> GreenletState:
    """From a GREENLET_END event (gs_events.h says which field carries what).

    `tid` is the thread's id as it is to be reported, here and below.
    """
    return GreenletState(
        greenlet_id=event.greenlet_id,
        tid=tid,
        kind_stack_id=event.stack_id,
        start_code=event.hold_id,
        is_hub=bool(event.flags & abi.FLAG_HUB),
        switches=event.gc_ns,
        running_ns=event.duration_ns,
        waiting_ns=event.blocked_ns,
        longest_hold_ns=event.preempted_ns,
    )


def living_greenlet(
    greenlet: abi.Greenlet, tid: int, now_ns: int, running_since_ns: int
) -> GreenletState:
    """From its entry in the map, with what has not ended yet counted up to `now_ns`.

    `running_since_ns`: begin of the present hold if it is the current greenlet, else 0.
    """
    unfinished_ns = max(0, now_ns - running_since_ns) if running_since_ns else 0
    waiting_ns = max(0, now_ns - greenlet.left_ns) if greenlet.left_ns else 0
    return GreenletState(
        greenlet_id=greenlet.id,
        tid=tid,
        kind_stack_id=greenlet.kind_stack_id,
        start_code=greenlet.start_code,
        is_hub=greenlet.role == abi.Role.HUB,
        switches=greenlet.switches,
        running_ns=greenlet.running_ns + unfinished_ns,
        waiting_ns=greenlet.waiting_ns + waiting_ns,
        longest_hold_ns=max(greenlet.longest_hold_ns, unfinished_ns),
    )


def _not_less(state: GreenletState, before: GreenletState | None) -> GreenletState:
    """What was counted up to an instant and then turned out to be less grows no further."""
    if before is None:
        return state
    running_ns = max(state.running_ns, before.running_ns)
    waiting_ns = max(state.waiting_ns, before.waiting_ns)
    if (running_ns, waiting_ns) == (state.running_ns, state.waiting_ns):
        return state
    return replace(state, running_ns=running_ns, waiting_ns=waiting_ns)


class GreenletBooks:
    """Adds greenlets up by kind. Memory: one entry per living greenlet and per kind."""

    def __init__(self, resolver: StackResolver) -> None:
        self._resolver = resolver
        self._reported: dict[int, GreenletState] = {}
        self._ended: dict[Group, _Sums] = {}
        self._missing: set[int] = set()
        self._waited_ns: dict[int, int] = {}

    def waited(self, greenlet_id: int, idle_ns: int) -> None:
        """So much of what the kernel side counted as its running was the hub's polling."""
        self._waited_ns[greenlet_id] = self._waited_ns.get(greenlet_id, 0) + idle_ns

    def _corrected(self, state: GreenletState) -> GreenletState:
        idle_ns = min(self._waited_ns.get(state.greenlet_id, 0), state.running_ns)
        if not idle_ns:
            return state
        return replace(
            state,
            running_ns=state.running_ns - idle_ns,
            waiting_ns=state.waiting_ns + idle_ns,
            longest_hold_ns=min(state.longest_hold_ns, state.running_ns - idle_ns),
        )

    def end(self, state: GreenletState) -> None:
        """A greenlet was freed."""
        state = self._corrected(state)
        self._waited_ns.pop(state.greenlet_id, None)
        before = self._reported.pop(state.greenlet_id, None)
        sums = self._add(self._ended, _not_less(state, before), before)
        sums.ended += 1

    def totals(self, living: Iterable[GreenletState]) -> Iterator[GreenletTotals]:
        """The increments since the call before, given every greenlet that lives now."""
        groups, self._ended = self._ended, {}
        reported = {}
        for found in map(self._corrected, living):
            before = self._reported.get(found.greenlet_id)
            state = _not_less(found, before)
            self._add(groups, state, before).alive += 1
            reported[state.greenlet_id] = state
        # The end of one that is gone is still in the ring; if not by the next time, it was lost.
        gone = self._reported.keys() - reported.keys() - self._missing
        self._reported = reported | {one: self._reported[one] for one in gone}
        self._missing = gone
        for (tid, kind, is_hub), sums in groups.items():
            yield GreenletTotals(
                tid=tid,
                kind=kind,
                is_hub=is_hub,
                seen=sums.seen,
                ended=sums.ended,
                alive=sums.alive,
                switches=sums.switches,
                running_ns=sums.running_ns,
                waiting_ns=sums.waiting_ns,
                longest_hold_ns=sums.longest_hold_ns,
            )

    def _kind(self, state: GreenletState) -> Code | None:
        code = self._resolver.code(state.start_code) if state.start_code else None
        if code is not None:
            return code.code
        return kind_of(self._resolver.by_id(state.kind_stack_id))

    def _add(
        self, groups: dict[Group, _Sums], state: GreenletState, before: GreenletState | None
    ) -> _Sums:
        kind = self._kind(state)
        sums = groups.setdefault((state.tid, kind, state.is_hub), _Sums())
        sums.seen += before is None
        sums.switches += state.switches - (before.switches if before else 0)
        sums.running_ns += state.running_ns - (before.running_ns if before else 0)
        sums.waiting_ns += state.waiting_ns - (before.waiting_ns if before else 0)
        sums.longest_hold_ns = max(sums.longest_hold_ns, state.longest_hold_ns)
        return sums


def unwatched_switches(thread: abi.Thread) -> int:
    """Estimate of the switches that no probe saw (probes/unwatched.bpf.c).

    greenlet's own count of them, less the part by which it was too large where the probe saw
    them all.
    """
    counted: int = thread.switches + max(0, thread.drift)
    unseen: int = thread.unwatched_switches
    return round(unseen * thread.switches / counted) if counted else unseen


def all_switches(thread: abi.Thread) -> int:
    """Those that the probe saw, and the estimate of the rest."""
    seen: int = thread.switches
    return seen + unwatched_switches(thread)


@dataclass(slots=True)
class _ThreadReported:
    switches: int = 0
    holds: int = 0
    holding_ns: int = 0
    hub_ns: int = 0
    idle_ns: int = 0
    unwatched_ns: int = 0
    unwatched_switches: int = 0

    def not_less(self, before: _ThreadReported) -> _ThreadReported:
        """As _not_less() for greenlets: a hold may turn out to be the hub's."""
        return replace(
            self,
            holding_ns=max(self.holding_ns, before.holding_ns),
            hub_ns=max(self.hub_ns, before.hub_ns),
            idle_ns=max(self.idle_ns, before.idle_ns),
            unwatched_ns=max(self.unwatched_ns, before.unwatched_ns),
            unwatched_switches=max(self.unwatched_switches, before.unwatched_switches),
        )


class ThreadBooks:
    """Adds the threads up."""

    def __init__(self) -> None:
        self._reported: dict[int, _ThreadReported] = {}
        self._corrections: dict[int, _ThreadReported] = {}

    def correct(self, host_tid: int, holds: int, hub_idle_ns: int, other_idle_ns: int) -> None:
        """Blocking holds that the kernel side did not count, and idle time that it mistook.

        It took it for the hub's running, or for another greenlet's.
        """
        it = self._corrections.setdefault(host_tid, _ThreadReported())
        it.holds += holds
        it.hub_ns -= hub_idle_ns
        it.holding_ns -= other_idle_ns
        it.idle_ns += hub_idle_ns + other_idle_ns

    def totals(
        self, host_tid: int, tid: int, name: str, thread: abi.Thread, now_ns: int
    ) -> ThreadTotals:
        """The increments of one thread; what has not ended yet counts up to `now_ns`.

        `host_tid` is its id for us, `tid` for the target itself.
        """
        since = thread.off_since_ns if thread.idle else thread.hold_start_ns
        open_ns = 0 if thread.exited else max(0, now_ns - since)
        is_hub = thread.role == abi.Role.HUB
        # Begun before or since the last look: who runs now, and how long, is not known.
        is_unwatched = bool(thread.phase & 1) and not thread.idle
        unwatched_ns, open_ns = (open_ns, 0) if is_unwatched else (0, open_ns)
        before = self._reported.setdefault(host_tid, _ThreadReported())
        more = self._corrections.get(host_tid, _ThreadReported())
        holding_ns = thread.holding_ns + (0 if is_hub or thread.idle else open_ns)
        hub_ns = thread.hub_ns + (open_ns if is_hub and not thread.idle else 0)
        idle_ns = thread.idle_ns + (open_ns if thread.idle else 0)
        now = _ThreadReported(
            switches=thread.switches,
            holds=thread.holds + more.holds,
            holding_ns=max(0, holding_ns + more.holding_ns),
            hub_ns=max(0, hub_ns + more.hub_ns),
            idle_ns=idle_ns + more.idle_ns,
            unwatched_ns=thread.unwatched_ns + unwatched_ns,
            unwatched_switches=unwatched_switches(thread),
        ).not_less(before)
        matters = thread.has_hub == abi.Hub.SEEN and not thread.idle and not thread.undecided
        open_hold_ns = open_ns if matters else 0
        self._reported[host_tid] = now
        return ThreadTotals(
            tid=tid,
            name=name,
            has_hub=thread.has_hub == abi.Hub.SEEN,
            switches=now.switches - before.switches,
            holds=now.holds - before.holds,
            holding_ns=now.holding_ns - before.holding_ns,
            hub_ns=now.hub_ns - before.hub_ns,
            idle_ns=now.idle_ns - before.idle_ns,
            longest_hold_ns=max(thread.longest_hold_ns, open_hold_ns),
            unwatched_ns=now.unwatched_ns - before.unwatched_ns,
            unwatched_switches=now.unwatched_switches - before.unwatched_switches,
        )

    def forget(self, tid: int) -> None:
        """A thread ended; its tid may come back as another thread's."""
        self._reported.pop(tid, None)
        self._corrections.pop(tid, None)
