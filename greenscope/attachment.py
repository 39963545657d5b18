"""Putting the probes of one watch in place, and then beginning it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from greenscope.bpf import abi
from greenscope.bpf.loader import Kernel
from greenscope.bpf.programs import Limits
from greenscope.budget.costs import Hits
from greenscope.errors import TargetNotFound
from greenscope.offsets.program import Program, poll_places
from greenscope.offsets.table import InstrKind
from greenscope.rebuild.first_look import FirstLook, first_look, host_thread_states, idle_since
from greenscope.rebuild.hubs import greenlet_self_offset, loop_codes, thread_hubs
from greenscope.rebuild.stacks import StackResolver
from greenscope.target.elf import ElfError
from greenscope.target.greenlet import GreenletPlaces, greenlet_places
from greenscope.target.memory import ProcessMemory

# A hold is sampled from half the threshold on, so that one that reaches it has been met.
SAMPLE_AGE_PART = 2
MIN_BLOCK_PART = 10


_TURNS = "turns of a loop that never sleeps, until it is first met"


@dataclass(frozen=True, slots=True)
class Options:
    """What the user can choose.

    `wait_stacks`: whether the stack at which a greenlet leaves is walked, which nothing is made
    of yet; `wait_walks` is what SAMPLED allows per thread and 10 ms. `budget` is the share of one
    CPU's time that the probes may take from the target, None for no limit. `hub_function`: the
    function that hands over to greenlets, where that is none that we know.
    """

    threshold_ns: int = 10_000_000
    sample_hz: int = 199
    wait_stacks: abi.WaitStacks = abi.WaitStacks.OFF
    wait_walks: int = 20
    service: str = ""
    limits: Limits = field(default_factory=Limits)
    budget: float | None = 0.02
    hub_function: str = ""


def attach_switch(kernel: Kernel, path: str, places: GreenletPlaces, pid: int) -> None:
    """Probes what greenlet does in one process, which may map the file later."""
    kernel.attach_in_bursts("gs_on_switch", path, places.switch, pid)
    if places.created is not None:
        kernel.attach_births("gs_on_greenlet_created", path, places.created, pid)
    # Either tells the end; the first when it happens, the second when memory is freed.
    if places.finished is not None:
        kernel.attach_births("gs_on_greenlet_finished", path, places.finished, pid)
    elif places.freed is not None:
        kernel.attach_births("gs_on_greenlet_freed", path, places.freed, pid)


class SwitchProbes:
    """The probes of one process that are put in place and taken away for the budget's sake.

    While they are off the phase in shared memory is odd, by which the kernel side knows that it
    is not told of everything. In the moments of turning it counts as off.
    """

    def __init__(self, kernel: Kernel, pid: int) -> None:
        self._bursts = kernel.bursts
        self._births = kernel.births
        self._births_too = False
        self._is_on = True
        self._watches = kernel.watches
        self._slot = kernel.slot_of(pid)

    def turn_on(self) -> None:
        """Raises what opening a probe does."""
        self._is_on = True
        if self._births_too:
            self._births.turn_on()
        self._bursts.turn_on()
        self._watches.turn_on(self._slot, time.monotonic_ns(), self._births_too)

    def turn_off(self) -> None:
        """Takes them away."""
        self._is_on = False
        self._watches.turn_off(self._slot)
        self._bursts.turn_off()
        if self._births_too:
            self._births.turn_off()

    @property
    def births_missed(self) -> bool:
        """Whether births and ends of greenlets are watched in bursts only."""
        return self._births_too

    def fresh_since(self) -> int:
        """Greenlets not seen since this phase may be others by now; 0: no birth was missed."""
        return int(self._watches.read(self._slot).fresh_since)

    def include_births(self) -> None:
        """From now on the probes at births and ends of greenlets are there when the others are."""
        self._births_too = True
        if not self._is_on:
            self._births.turn_off()

    def hits(self) -> Hits:
        """All hits since the watch began."""
        watch = self._watches.read(self._slot)
        return Hits(
            switches=watch.switches,
            walks=watch.walks,
            polls=watch.polls,
            births=watch.births,
            leaves=watch.leaves,
        )


class EarlyProbes:
    """Probes in a process that has not begun yet, so that its first switch is counted.

    Until the rest is attached, switches and greenlets are counted, and no stack is walked.
    """

    def __init__(self, kernel: Kernel, pid: int, files: Iterable[Path]) -> None:
        self._pid = pid
        self._files: set[tuple[int, int]] = set()
        for path in files:
            places = greenlet_places(str(path))
            if places is not None:
                attach_switch(kernel, str(path), places, pid)
                self._files.add(_identity(str(path)))
        if self._files:
            never_ns = (1 << 63) - 1
            dormant = abi.Target(
                threshold_ns=never_ns,
                sample_age_ns=never_ns,
                min_block_ns=never_ns,
                cframe_frame=-1,
            )
            kernel.add_target(pid, dormant, {})

    def covers(self, program: Program) -> bool:
        """Whether this is the process, and its greenlet is one of those that are probed."""
        path = program.greenlet.file.readable_path()
        return program.process.pid == self._pid and _identity(path) in self._files


def _identity(path: str) -> tuple[int, int]:
    stat = os.stat(path)
    return stat.st_dev, stat.st_ino


class Attachment:
    """The probes on one program.

    The kernel side's maps are the truth about what is traced; `kernel` stays the caller's, who
    removes every probe by closing it. `shed` is what could not be probed, and why. `early` are
    probes that are there already.
    """

    def __init__(
        self,
        program: Program,
        kernel: Kernel,
        options: Options,
        memory: ProcessMemory,
        resolver: StackResolver,
        early: EarlyProbes | None = None,
    ) -> None:
        self.shed: dict[str, str] = {}
        self._program = program
        self._kernel = kernel
        self._options = options
        self._memory = memory
        self._resolver = resolver
        self._is_early = early is not None and early.covers(program)
        self._polls_watched = False
        self._greenlet_self = 0

    def attach(self) -> None:
        """Fills the maps and attaches every probe.

        Raises:
            PermissionMissing, BpfUnavailable: a probe is refused; close the kernel then.
        """
        pid = self._program.process.pid
        kernel, program = self._kernel, self._program
        if not self._is_early:
            path = program.greenlet.file.readable_path()
            attach_switch(kernel, path, program.greenlet.places, pid)
        kernel.attach_sched()
        kernel.attach_sampler(self._options.sample_hz)
        self._attach_gc()
        self.watch_polls()
        self._begin()

    def _begin(self) -> None:
        """Starts the watch, all at once: what the probes met so far they left alone."""
        program = self._program
        hubs = thread_hubs(program, self._memory)
        self._greenlet_self = greenlet_self_offset(hubs.values(), self._memory, program.offsets)
        self.learn_roles(loop_codes(program, self._memory))
        self.learn_roles(hub.run_code for hub in hubs.values())
        if self._is_early:
            # Its threads are known since their first switch, and not to be written over.
            for tid, _, tstate in host_thread_states(program, self._memory):
                self._kernel.tstates[abi.u32(tid)] = abi.u64(tstate)
            self._kernel.add_target(program.process.pid, self._target(), {})
            return
        looks = first_look(
            program,
            self._memory,
            self._resolver,
            self._kernel.syscall_name,
            time.monotonic_ns(),
            hubs,
        )
        self.learn_roles(look.outermost_code for look in looks)
        pid = program.process.pid
        for look in looks:
            if look.hub is not None:
                address, greenlet = look.hub
                self._kernel.greenlets[abi.GreenletKey(addr=address, tgid=pid)] = greenlet
        threads = {look.tid: look.thread for look in looks}
        self._kernel.add_target(pid, self._target(), threads)
        self._look_again(looks)

    def _look_again(self, looks: Iterable[FirstLook]) -> None:
        """Finds the hubs that fell asleep after the first look and before the watch began."""
        for look in looks:
            if look.thread.off_since_ns:
                continue
            if not idle_since(
                look, self._program, self._memory, self._resolver, self._kernel.syscall_name
            ):
                continue
            # Read after /proc was: whoever has moved since then has told so by itself.
            now = self._kernel.threads.get(abi.u32(look.tid))
            if now is not None and not now.off_since_ns and now.hold_id == 0 and now.began_before:
                # Should it wake up meanwhile, it is found running (gs_wake_unseen).
                self._kernel.threads[abi.u32(look.tid)] = look.thread

    def _attach_gc(self) -> None:
        path = self._program.python.file.readable_path()
        functions = {"gc__start": "gs_on_gc_start", "gc__done": "gs_on_gc_done"}
        probes = [p for p in self._program.python.usdt_probes if p.name in functions]
        if not probes:
            self.shed["the reason gc"] = "this interpreter was built without dtrace probes"
        for probe in probes:
            self._kernel.attach_uprobe(
                functions[probe.name],
                path,
                probe.file_offset,
                self._program.process.pid,
                probe.semaphore_file_offset,
            )

    def _target(self) -> abi.Target:
        offsets, threshold_ns = self._program.offsets, self._options.threshold_ns
        pointer = offsets.instr_kind is InstrKind.POINTER
        return abi.Target(
            tstate_addr=self._program.tstate_addr,
            threshold_ns=threshold_ns,
            sample_age_ns=threshold_ns // SAMPLE_AGE_PART,
            min_block_ns=threshold_ns // MIN_BLOCK_PART,
            instr_mask=(1 << 64) - 1 if pointer else (1 << 32) - 1,
            tstate_frame=offsets.tstate_frame,
            cframe_frame=-1 if offsets.cframe_frame is None else offsets.cframe_frame,
            frame_code=offsets.frame_code,
            frame_previous=offsets.frame_previous,
            frame_instr=offsets.frame_instr,
            frame_owner=0 if offsets.frame_owner is None else offsets.frame_owner,
            shim_owner=abi.NO_SHIM if offsets.shim_owner is None else offsets.shim_owner,
            wait_stacks=self._options.wait_stacks,
            frame_span=offsets.frame_span,
            wait_walks=self._options.wait_walks,
            tstate_version=offsets.tstate_version,
            greenlet_self=self._greenlet_self,
            # struct _greenlet of greenlet.h: weakreflist precedes dict.
            greenlet_dict=offsets.object_size + 8,
            object_type=offsets.object_type,
            dict_keys=offsets.dict_keys,
            dict_values=offsets.dict_values,
            values_items=offsets.values_items,
            keys_log2_index_bytes=offsets.keys_log2_index_bytes,
            keys_kind=offsets.keys_kind,
            keys_nentries=offsets.keys_nentries,
            keys_indices=offsets.keys_indices,
            text_data=offsets.unicode_ascii_size,
            # PyMethodObject (Include/cpython/classobject.h): the function comes first.
            method_function=offsets.object_size,
            function_code=offsets.function_code,
            function_type=self._program.function_type_addr,
            method_type=self._program.method_type_addr,
        )

    def learn_starts(self) -> None:
        """Lets greenlets be named by what they were started with, once a hub of gevent is there.

        It tells where greenlet::Greenlet has its object. To be called again until then.
        """
        if self._greenlet_self:
            return
        hubs = thread_hubs(self._program, self._memory)
        offsets = self._program.offsets
        self._greenlet_self = greenlet_self_offset(hubs.values(), self._memory, offsets)
        if self._greenlet_self:
            self._kernel.add_target(self._program.process.pid, self._target(), {})

    def learn_roles(self, code_addrs: Iterable[int]) -> None:
        """Tells the kernel side what a greenlet with this outermost code is."""
        for code_addr in code_addrs:
            role = self._resolver.role_at(code_addr)
            if role is not None:
                self._kernel.roles[abi.u64(code_addr)] = abi.u8(role)

    def watch_polls(self, hub_is_busy: bool = False) -> None:
        """Probes where the hub's loop polls, which ends its hold at each turn (poll.bpf.c).

        To be called until gevent is there, which a command of `greenscope run` imports later.
        Where its own functions cannot be probed, libc's are, which is too dear to do before a
        busy hub is met.
        """
        if self._polls_watched:
            return
        # A target that ends meanwhile is told of by its own descriptor.
        with contextlib.suppress(TargetNotFound, ElfError):
            self._find_polls(hub_is_busy)

    def _find_polls(self, hub_is_busy: bool) -> None:
        pid = self._program.process.pid
        polls = poll_places(pid)
        if polls.cheap:
            self.shed.pop(_TURNS, None)
        elif polls.places:
            self.shed[_TURNS] = "gevent's loop is stripped of its symbols (docs/decisions/0004)"
        if polls.cheap or hub_is_busy:
            self._polls_watched = True
            for path, offset in polls.places:
                self._kernel.attach_in_bursts("gs_on_poll", path, offset, pid)
