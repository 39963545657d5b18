"""The kernel side: its maps and rings, and attaching its programs.

They are compiled and loaded by a process of its own (builder.py), so that the agent does not
hold the compiler's memory for as long as it watches.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from greenscope.bpf import abi, handover, links, perf_event
from greenscope.bpf.bursts import BurstProbes
from greenscope.bpf.maps import BpfMap, CpuCounters
from greenscope.bpf.programs import SAMPLER, TRACEPOINTS, Built, Limits, Order
from greenscope.bpf.ring import MappedRing
from greenscope.bpf.watches import MappedWatches


class Kernel:
    """The loaded programs and their maps, with those of the `parts` (PARTS) that are wanted.

    Everything in the kernel ends with close(), and by the kernel's own doing when the process
    ends in any other way.

    Raises:
        BpfUnavailable: bcc, headers or BTF are missing, or a program does not load.
    """

    def __init__(self, limits: Limits | None = None, parts: Sequence[str] = ()) -> None:
        self.limits = limits or Limits()
        self.parts = tuple(parts)
        self._has_links = links.is_reliable(os.uname().release)
        self._known: dict[int, int] = {}
        self._stack = contextlib.ExitStack()
        self._built = self._build(Order(self.limits, self.parts, self._has_links))
        for fd in self._built.fds:
            self._stack.callback(os.close, fd)
        maps = self._built.maps
        u8, u32, u64 = ctypes.c_uint8, ctypes.c_uint32, ctypes.c_uint64
        self.targets = BpfMap(maps["gs_targets"], u32, abi.Target)
        self._slots = BpfMap(maps["gs_slots"], u32, u8)
        self.threads = BpfMap(maps["gs_threads"], u32, abi.Thread)
        self.greenlets = BpfMap(maps["gs_greenlets"], abi.GreenletKey, abi.Greenlet)
        self.roles = BpfMap(maps["gs_roles"], u64, u8)
        self.tstates = BpfMap(maps["gs_tstates"], u32, u64)
        self._sent_stacks = BpfMap(maps["gs_sent_stacks"], u64, u8)
        self._lost = CpuCounters(maps["gs_lost"])
        self.watches = MappedWatches(maps["gs_watches"], self.limits.targets)
        self._stack.callback(self.watches.close)
        self.events = self._ring("gs_events", self.limits.event_ring_bytes)
        self.stacks = self._ring("gs_stacks", self.limits.stack_ring_bytes)
        self.bursts = BurstProbes()
        self._stack.callback(self.bursts.close)
        self.births = BurstProbes()
        self._stack.callback(self.births.close)

    def _build(self, order: Order) -> Built:
        return handover.build(order)

    def syscall_name(self, number: int) -> str:
        """`clock_nanosleep` for 230; the number where it has no known name."""
        return self._built.syscall_name(number)

    def add_target(self, pid: int, target: abi.Target, threads: Mapping[int, abi.Thread]) -> None:
        """Lets the programs trace a process, whose known threads ({tid: state}) come first.

        The order matters: once the process is known, a thread that is not gets a new entry at
        its first switch, which must not be written over. A second call for the same process
        replaces `target`.
        """
        known = self._known.get(pid)
        slot = len(self._known) if known is None else known
        self.targets[abi.u32(slot)] = target
        for tid, thread in threads.items():
            thread.slot = slot
            self.threads[abi.u32(tid)] = thread
        self._slots[abi.u32(pid)] = abi.u8(slot)
        self._known[pid] = slot

    def attach_uprobe(
        self, function: str, path: str, offset: int, pid: int, ref_ctr_offset: int = 0
    ) -> None:
        """See links.open_uprobe(); the probe stays until close()."""
        self._stack.callback(os.close, self._open(function, path, offset, pid, ref_ctr_offset))

    def attach_in_bursts(self, function: str, path: str, offset: int, pid: int) -> None:
        """As attach_uprobe(), but the probe is one of `bursts`."""
        self.bursts.add(partial(self._open, function, path, offset, pid))

    def attach_births(self, function: str, path: str, offset: int, pid: int) -> None:
        """As attach_uprobe(), but the probe is one of `births`."""
        self.births.add(partial(self._open, function, path, offset, pid))

    def slot_of(self, pid: int) -> int:
        """Where a process that add_target() was told of is in `targets` and `watches`."""
        return self._known[pid]

    def open_bare(self, path: str, offset: int, pid: int) -> int:
        """A probe that finds nothing to do, as its process is not traced, to measure it.

        Gives a file descriptor, which is the caller's; closing it removes the probe.
        """
        return self._open("gs_on_poll", path, offset, pid)

    def open_place(
        self, function: str, path: str, offset: int, pid: int, ref_ctr_offset: int, index: int
    ) -> int:
        """A probe at a USDT place whose operands are in set_place(index).

        Gives a file descriptor, which is the caller's; closing it removes the probe.
        """
        return self._open(function, path, offset, pid, ref_ctr_offset, index)

    def set_place(self, index: int, place: abi.Place) -> None:
        """Tells the programs the operands of a place (parts `calls` and `trace`)."""
        places = BpfMap(self._built.maps["gs_places"], ctypes.c_uint32, abi.Place)
        places[abi.u32(index)] = place

    def attach_sampler(self, hz: int) -> None:
        """Samples every CPU that is online."""
        program = self._built.programs[SAMPLER]
        for cpu in online_cpus():
            self._stack.callback(os.close, perf_event.open_cpu_clock(program, hz, cpu))

    def attach_sched(self) -> None:
        """Follows the threads that are in the map `threads` on and off the CPU."""
        for tracepoint, function in TRACEPOINTS.items():
            fd = links.open_raw_tracepoint(self._built.programs[function], tracepoint)
            self._stack.callback(os.close, fd)

    def lost(self) -> dict[abi.LossKind, int]:
        """What the kernel side could not keep, since the start."""
        return {kind: self._lost[kind] for kind in abi.LossKind}

    def close(self) -> None:
        """Detaches everything; the rings and maps are gone after it."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(
        self,
        function: str,
        path: str,
        offset: int,
        pid: int,
        ref_ctr_offset: int = 0,
        cookie: int | None = None,
    ) -> int:
        module = links if self._has_links else perf_event
        program = self._built.programs[function]
        fd: int = module.open_uprobe(program, path, offset, pid, ref_ctr_offset, cookie)
        return fd

    def _ring(self, name: str, size_bytes: int) -> MappedRing:
        ring = MappedRing(self._built.maps[name], size_bytes)
        self._stack.callback(ring.close)
        return ring


def online_cpus() -> list[int]:
    """The numbers of the CPUs that are online, from a list like 0-3,8."""
    cpus: list[int] = []
    for part in Path("/sys/devices/system/cpu/online").read_text().strip().split(","):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return cpus
