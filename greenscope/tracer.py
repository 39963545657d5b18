"""One attach to one process, from the target's memory to records.

Reads top to bottom as the data flows: target -> offsets -> programs in the kernel -> rings ->
rebuilding -> records. The target is only read.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from greenscope.attachment import Attachment, EarlyProbes, Options, SwitchProbes
from greenscope.bpf import abi
from greenscope.bpf.loader import Kernel
from greenscope.budget.accounts import Accounts
from greenscope.budget.calibration import hit_cost_ns
from greenscope.budget.costs import Hits
from greenscope.budget.governor import Governor
from greenscope.errors import BpfUnavailable
from greenscope.model import Hold, Loss, Record, Session, SessionEnd, Shed
from greenscope.offsets.program import Program
from greenscope.rebuild.frames import decode_stack
from greenscope.rebuild.holds import HoldAssembler
from greenscope.rebuild.hubs import hub_children, thread_hubs
from greenscope.rebuild.running import RunningBooks
from greenscope.rebuild.stacks import StackResolver
from greenscope.rebuild.totals import (
    GreenletBooks,
    GreenletState,
    ThreadBooks,
    all_switches,
    ended_greenlet,
    living_greenlet,
)
from greenscope.target.memory import LiveMemory
from greenscope.target.process import thread_name, thread_ns_ids
from greenscope.target.threads import read_pointer

__all__ = ["Options", "Progress", "Tracer"]

FLUSH_INTERVAL_NS = 1_000_000_000
LIVING_INTERVAL_NS = 10_000_000_000  # reading every living greenlet costs the agent's time
_BIRTHS = "births and ends of greenlets between bursts"
MAX_ASSUMED = 256  # holds kept of a thread on which no hub was seen yet


@dataclass(slots=True)
class Progress:
    """How far a watch is, for the running line."""

    watched_ns: int = 0
    switches: int = 0
    holds: int = 0
    lost: int = 0


class Tracer:
    """Watches one program; a context manager, whose end removes every probe.

    `kernel` has its programs compiled already, which is the slow part, and is closed by the
    tracer. Between enter and exit call `poll()` and hand the records on; `finish()` gives the
    last ones.

    Raises (on entering):
        PermissionMissing, BpfUnavailable: a probe is refused.
    """

    def __init__(
        self,
        program: Program,
        kernel: Kernel,
        options: Options,
        early: EarlyProbes | None = None,
    ) -> None:
        self.program = program
        self.progress = Progress()
        self._kernel = kernel
        self._options = options
        self._memory = LiveMemory(program.process.pid)
        self._resolver = StackResolver(self._memory, program.offsets, options.hub_function)
        self._attachment = Attachment(program, kernel, options, self._memory, self._resolver, early)
        self._assembler = HoldAssembler(self._resolver, kernel.syscall_name, options.threshold_ns)
        self._greenlets = GreenletBooks(self._resolver)
        self._threads = ThreadBooks()
        self._running = RunningBooks(1_000_000_000 // options.sample_hz)
        self._hubs: set[int] = set()  # threads on which a hub was found, though not by a probe
        self._assumed: dict[int, deque[Hold]] = {}
        self._overflowed: Counter[int] = Counter()  # by thread: what _assumed had no room for
        self._own_tids: dict[int, int] = {}
        self._switches_of_ended = 0
        self._saw_hub = False
        self._dropped = 0
        self._lost: dict[abi.LossKind, int] = dict.fromkeys(abi.LossKind, 0)
        self._last_flush_ns = self._last_living_ns = time.monotonic_ns()
        self._accounts = Accounts(self._last_flush_ns, 0.0)
        self._probes: SwitchProbes | None = None
        self._governor: Governor | None = None
        self.session = self._describe()

    def __enter__(self) -> Self:
        try:
            bare_ns = self._calibrate()
            self._attachment.attach()
            self.session = self._describe()
            self._begin_budget(bare_ns)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._governor is not None:
            self._governor.stop()
        self._kernel.close()
        self._memory.close()

    def _calibrate(self) -> float:
        """What a hit costs here, before the target has one; 0 where that cannot be measured."""
        try:
            return hit_cost_ns(self._kernel.open_bare)
        except BpfUnavailable as error:
            self._attachment.shed["what the probes cost the target"] = error.message
            return 0.0

    def _begin_budget(self, bare_ns: float) -> None:
        share = self._options.budget if bare_ns else None
        self._accounts = Accounts(self.session.start_ktime_ns, bare_ns, share)
        self._probes = SwitchProbes(self._kernel, self.program.process.pid)
        if share is not None:
            self._governor = Governor(self._probes, bare_ns, share)
            self._governor.start()

    def _describe(self) -> Session:
        program, process = self.program, self.program.process
        return Session(
            session_id=secrets.token_hex(16),
            service=self._options.service or process.comm,
            host=socket.gethostname(),
            pid=process.pid,
            process_start_ticks=process.start_ticks,
            executable=process.executable,
            python_version=program.python.full_version,
            greenlet_version=program.greenlet.version,
            threshold_ns=self._options.threshold_ns,
            sample_hz=self._options.sample_hz,
            start_ktime_ns=time.monotonic_ns(),
            start_unix_ns=time.time_ns(),
        )

    # Draining: the rings' file descriptors become readable when something arrives.

    @property
    def fds(self) -> tuple[int, int]:
        """File descriptors to wait on for `poll()`; they stay the tracer's."""
        return self._kernel.events.fd, self._kernel.stacks.fd

    def poll(self) -> list[Record]:
        """What arrived since the call before; sums once a second. Never blocks."""
        if self._governor is not None:
            self._governor.check()
        records: list[Record] = list(self._drain())
        now_ns = time.monotonic_ns()
        self.progress.watched_ns = now_ns - self.session.start_ktime_ns
        if now_ns - self._last_flush_ns >= FLUSH_INTERVAL_NS:
            records.extend(self._flush(now_ns, final=False))
        return records

    def finish(self, ended: str) -> list[Record]:
        """Ends the watch: the rest of the events, open holds, sums, and the end itself."""
        if self._governor is not None:
            self._governor.stop()
        now_ns = time.monotonic_ns()
        records: list[Record] = list(self._drain())
        records.extend(self._open_holds(now_ns))
        records.extend(self._flush(now_ns, final=True))
        if self._probes is not None and self._probes.births_missed:
            self._attachment.shed[_BIRTHS] = "they alone would be over the budget"
        for what, why in self._attachment.shed.items():
            records.append(Shed(what, why, self.session.start_ktime_ns, now_ns))
        if not self._saw_hub:
            records.extend(hub_children(self.program.process.pid))
        records.append(SessionEnd(now_ns, ended))
        return records

    def _drain(self) -> Iterator[Hold]:
        # Events before stacks: a stack is sent before the first event that names it, so the
        # stacks that are there after the events were taken contain all of theirs.
        events = self._kernel.events.fixed(abi.EVENT)
        for record in self._kernel.stacks.records():
            raw = decode_stack(record, self.program.offsets.shim_owner)
            if raw.tick_tid:
                stack = self._resolver.add_as(raw, 0)
                self._running.add(self._own_tid(raw.tick_tid), stack)
                continue
            self._resolver.add(raw)
            innermost = [code for code, _ in raw.frames[:1]]
            self._attachment.learn_roles([raw.outermost_code, *innermost])
        self._accept_dispatchers()
        for fields in events:
            event = abi.Event._make(fields)
            if event.kind == abi.EventKind.SAMPLE:
                self._assembler.sample(event)
                stack = self._resolver.by_id(event.stack_id)
                self._running.add(self._own_tid(event.tid), stack)
                if event.flags & abi.FLAG_HUB:
                    self._attachment.watch_polls(hub_is_busy=True)
                if event.flags & abi.FLAG_UNWATCHED and self._governor is not None:
                    self._governor.see_stuck()
            elif event.kind == abi.EventKind.BLOCK:
                self._assembler.block(event)
            elif event.kind == abi.EventKind.GREENLET_END:
                self._greenlets.end(ended_greenlet(event, self._own_tid(event.tid)))
            else:
                yield from self._hold(event)

    def _accept_dispatchers(self) -> None:
        """Makes a loop of asyncio a hub where greenlets switch; what the user named is one."""
        if not self._resolver.dispatchers:
            return
        if not (self._options.hub_function or (self._probes and self._probes.hits().switches)):
            return
        self._attachment.learn_roles(self._resolver.accept_dispatchers())
        # Its polls were taken for holds until now.
        for waiting in self._assumed.values():
            kept = [hold for hold in waiting if not self._assembler.polled_as_hub(hold)]
            waiting.clear()
            waiting.extend(kept)

    def _hold(self, event: abi.Event) -> Iterator[Hold]:
        """Names a finished hold; on a thread where no hub was seen yet it waits for one."""
        for hold in self._judge(event):
            if event.flags & abi.FLAG_ASSUMED and event.tid not in self._hubs:
                waiting = self._assumed.setdefault(event.tid, deque(maxlen=MAX_ASSUMED))
                self._overflowed[event.tid] += len(waiting) == MAX_ASSUMED
                waiting.append(hold)
                continue
            yield from self._release_assumed(event.tid)
            self.progress.holds += 1
            yield hold

    def _judge(self, event: abi.Event, is_open: bool = False) -> tuple[Hold, ...]:
        """The holds in a HOLD event; what the hub polled meanwhile goes to its own account."""
        judged = self._assembler.hold(event, self._own_tid(event.tid), is_open)
        if judged.saw_hub:
            self._hubs.add(event.tid)
        if judged.idle_ns:
            self._greenlets.waited(event.greenlet_id, judged.idle_ns)
        is_hub = event.flags & abi.FLAG_HUB
        counted = 0 if event.flags & abi.FLAG_UNDECIDED else 1
        self._threads.correct(
            event.tid,
            holds=0 if is_open else len(judged.holds) - counted,
            hub_idle_ns=judged.idle_ns if is_hub else 0,
            other_idle_ns=0 if is_hub else judged.idle_ns,
        )
        return judged.holds

    # Sums and endings.

    def _flush(self, now_ns: int, final: bool) -> Iterator[Record]:
        living_due = final or now_ns - self._last_living_ns >= LIVING_INTERVAL_NS
        threads = {key.value: thread for key, thread in self._kernel.threads.items()}
        self._find_hubs(threads)
        if not final:
            for thread in threads.values():
                if thread.undecided:
                    thread.hold_start_ns = now_ns  # to be counted once it is settled
        if living_due:
            self._last_living_ns = now_ns
            yield from self._greenlets.totals(self._living(threads, now_ns))
        switches = sum(all_switches(thread) for thread in threads.values())
        self.progress.switches = self._switches_of_ended + switches
        self.progress.watched_ns = now_ns - self.session.start_ktime_ns
        for tid, thread in threads.items():
            if thread.has_hub == abi.Hub.SEEN:
                self._saw_hub = True
                yield from self._release_assumed(tid)
                if not final:
                    self._attachment.watch_polls()
                    self._attachment.learn_starts()
            name = thread_name(thread.tgid, tid)
            yield self._threads.totals(tid, self._own_tid(tid), name, thread, now_ns)
            if thread.exited:
                self._switches_of_ended += all_switches(thread)
                self._forget_thread(tid)
        yield from self._running.totals()
        hits = Hits() if self._probes is None else self._probes.hits()
        yield from self._accounts.records(now_ns, hits)
        yield from self._losses(now_ns)
        self._last_flush_ns = now_ns

    def _find_hubs(self, threads: dict[int, abi.Thread]) -> None:
        """Marks the threads that have a hub of which no probe has told, by the target's memory."""
        unseen = [tid for tid, thread in threads.items() if thread.has_hub != abi.Hub.SEEN]
        if unseen and not self._hubs.issuperset(unseen):
            found = thread_hubs(self.program, self._memory)
            self._hubs.update(tid for tid in unseen if self._own_tid(tid) in found)
        for tid in self._hubs & threads.keys():
            threads[tid].has_hub = abi.Hub.SEEN

    def _release_assumed(self, tid: int) -> Iterator[Hold]:
        self._dropped += self._overflowed.pop(tid, 0)
        for hold in self._assumed.pop(tid, ()):
            self.progress.holds += 1
            yield hold

    def _forget_thread(self, tid: int) -> None:
        del self._kernel.threads[abi.u32(tid)]
        self._threads.forget(tid)
        self._assembler.forget(tid)
        self._assumed.pop(tid, None)
        self._overflowed.pop(tid, None)
        self._hubs.discard(tid)
        self._own_tids.pop(tid, None)

    def _own_tid(self, tid: int) -> int:
        """A thread's id in the target's own PID namespace, which is what its logs show."""
        if tid not in self._own_tids:
            self._own_tids[tid] = thread_ns_ids(self.program.process.pid, tid)[-1]
        return self._own_tids[tid]

    def _living(self, threads: dict[int, abi.Thread], now_ns: int) -> Iterator[GreenletState]:
        current = {
            thread.greenlet: thread.hold_start_ns
            for thread in threads.values()
            if thread.greenlet and not thread.idle and not thread.exited
        }
        fresh_since = self._probes.fresh_since() if self._probes is not None else 0
        for key, greenlet in self._kernel.greenlets.items():
            if greenlet.phase < fresh_since and greenlet.role != abi.Role.HUB:
                # Its end may have been missed: it is another one when it is seen again.
                self._kernel.greenlets.pop(key)
                continue
            own_tid = self._own_tid(greenlet.tid)
            yield living_greenlet(greenlet, own_tid, now_ns, current.get(key.addr, 0))

    def _open_holds(self, now_ns: int) -> Iterator[Hold]:
        """Holds that last longer than the watch."""
        threads = {key.value: thread for key, thread in self._kernel.threads.items()}
        self._find_hubs(threads)
        for tid, thread in threads.items():
            if thread.exited or (thread.has_hub != abi.Hub.SEEN and not thread.undecided):
                continue
            holds: tuple[Hold, ...] = ()
            matters = not thread.idle and thread.role != abi.Role.WORKER
            matters = matters and not self._has_switched_unseen(thread)
            if matters and now_ns - thread.hold_start_ns >= self._options.threshold_ns:
                event = self._assembler.open_hold(tid, thread, now_ns)
                holds = self._judge(event, is_open=True)
            if thread.has_hub == abi.Hub.SEEN or tid in self._hubs:
                yield from self._release_assumed(tid)
                self.progress.holds += len(holds)
                yield from holds

    def _has_switched_unseen(self, thread: abi.Thread) -> bool:
        """Whether a hold ended since the kernel side looked last, while the probe was off."""
        if not thread.phase & 1 or not thread.version:
            return False
        place: int = thread.tstate + self.program.offsets.tstate_version
        return read_pointer(self._memory, place) != int(thread.version)

    def _losses(self, now_ns: int) -> Iterator[Loss]:
        lost = self._kernel.lost()
        lost[abi.LossKind.EVENTS] += self._dropped
        for kind, count in lost.items():
            if count > self._lost[kind]:
                what = kind.name.lower()
                yield Loss(what, count - self._lost[kind], self._last_flush_ns, now_ns)
                self._lost[kind] = count
        self.progress.lost = sum(self._lost.values())
