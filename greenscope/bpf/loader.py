"""Compiles the programs in probes/, loads them and attaches them. The one module with bcc.

bcc is Debian's python3-bpfcc; PyPI's package of the same name is another project.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from greenscope.bpf import abi, perf_event, uprobe_link
from greenscope.bpf.bursts import BurstProbes
from greenscope.bpf.headers import ENVIRONMENT, find_kernel_headers
from greenscope.bpf.ring import PAGE, MappedRing
from greenscope.bpf.watches import MappedWatches
from greenscope.errors import BpfUnavailable
from greenscope.offsets.btf import kernel_btf

try:
    import bcc
    from bcc.syscall import syscalls as _syscalls
except ImportError:  # the agent's own check says what to install; see Kernel.__init__
    bcc = None
    _syscalls = {}

# One translation unit in this order: the maps first, as bcc rewrites map accesses in the main
# file only, then one file for each attach point.
SOURCES = ("maps", "unwatched", "switch", "lifecycle", "poll", "sampler", "sched", "gc")
# Programs for attach_uprobe(), verified with the rest, so that attaching is quick.
UPROBES = (
    "gs_on_switch",
    "gs_on_greenlet_created",
    "gs_on_greenlet_finished",
    "gs_on_greenlet_freed",
    "gs_on_poll",
    "gs_on_gc_start",
    "gs_on_gc_done",
)


@dataclass(frozen=True, slots=True)
class Part:
    """What only some modes need and the others do not wait for: more sources, more uprobes."""

    sources: tuple[str, ...]
    uprobes: tuple[str, ...] = ()


PARTS: dict[str, Part] = {
    "usdt": Part(sources=("usdt",)),
}
"""The parts, each compiled with -DGS_WITH_NAME; a source that two share comes once."""

MAX_PLACES = 1024
"""Places of USDT probes (struct gs_place) that one kernel side may have."""

# bcc's table ends before these (include/uapi/asm-generic/unistd.h).
_LATER_SYSCALLS = {425: "io_uring_setup", 426: "io_uring_enter", 441: "epoll_pwait2"}
_NUMBERS = {name: number for number, name in _LATER_SYSCALLS.items()} | {
    name.decode(): number for number, name in _syscalls.items()
}
_INSTALL_BCC = (
    "Install Debian's package with `apt-get install python3-bpfcc` and run greenscope with "
    "Debian's Python (`/usr/bin/python3 -m venv --system-site-packages`). PyPI's `bcc` is an "
    "unrelated project."
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes of the maps (entries) and rings (bytes, a power of two of pages)."""

    targets: int = 64
    threads: int = 512
    walks: int = 256
    greenlets: int = 65536
    stacks: int = 16384
    event_ring_bytes: int = 1 << 20
    stack_ring_bytes: int = 1 << 20


def probes_dir() -> Path:
    """Where the BPF sources lie, in a checkout as well as installed."""
    import_root = Path(__file__).resolve().parents[2]
    return import_root / "probes"


def syscall_name(number: int) -> str:
    """`clock_nanosleep` for 230; the number where it has no known name."""
    name = _syscalls.get(number)
    return name.decode() if name else _LATER_SYSCALLS.get(number, str(number))


class Kernel:
    """The loaded programs and their maps, with those of the `parts` (PARTS) that are wanted.

    Everything in the kernel ends with close(), and by the kernel's own doing when the process
    ends in any other way.

    Raises:
        BpfUnavailable: bcc, headers or BTF are missing, or a program does not load.
    """

    def __init__(self, limits: Limits | None = None, parts: Sequence[str] = ()) -> None:
        if bcc is None or not hasattr(bcc, "BPF"):
            raise BpfUnavailable("Debian's bcc for Python is not there", _INSTALL_BCC)
        self.limits = limits or Limits()
        self.parts = tuple(parts)
        self._stack = contextlib.ExitStack()
        self._programs: dict[str, int] = {}
        self._known: dict[int, int] = {}
        self._has_links = uprobe_link.is_reliable(os.uname().release)
        os.environ[ENVIRONMENT] = str(find_kernel_headers().path)
        self._bpf = self._compile()
        self._stack.callback(self._bpf.cleanup)
        self._link_walks()
        for function in (*UPROBES, *(f for part in self.parts for f in PARTS[part].uprobes)):
            self._program(function, bcc.BPF.KPROBE)
        self.targets = self._bpf.get_table(b"gs_targets", ctypes.c_uint32, abi.Target)
        self._slots = self._bpf.get_table(b"gs_slots", ctypes.c_uint32, ctypes.c_uint8)
        self.threads = self._bpf.get_table(b"gs_threads", ctypes.c_uint32, abi.Thread)
        self.greenlets = self._bpf.get_table(b"gs_greenlets", abi.GreenletKey, abi.Greenlet)
        self.roles = self._bpf.get_table(b"gs_roles", ctypes.c_uint64, ctypes.c_uint8)
        self.tstates = self._bpf.get_table(b"gs_tstates", ctypes.c_uint32, ctypes.c_uint64)
        self.watches = MappedWatches(self._bpf.get_table(b"gs_watches").map_fd, self.limits.targets)
        self._stack.callback(self.watches.close)
        self.bursts = BurstProbes()
        self._lost = self._bpf.get_table(b"gs_lost")
        self.events = self._ring("gs_events", self.limits.event_ring_bytes)
        self.stacks = self._ring("gs_stacks", self.limits.stack_ring_bytes)
        self._stack.callback(self.bursts.close)

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
        """See uprobe_link.open_uprobe(); the probe stays until close()."""
        self._stack.callback(os.close, self._open(function, path, offset, pid, ref_ctr_offset))

    def attach_in_bursts(self, function: str, path: str, offset: int, pid: int) -> None:
        """As attach_uprobe(), but the probe is one of `bursts`."""
        self.bursts.add(partial(self._open, function, path, offset, pid))

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
        self._bpf.get_table(b"gs_places", ctypes.c_uint32, abi.Place)[abi.u32(index)] = place

    def attach_sampler(self, hz: int) -> None:
        """Samples every CPU that is online."""
        program = self._program("gs_on_sample", bcc.BPF.PERF_EVENT)
        for cpu in online_cpus():
            self._stack.callback(os.close, perf_event.open_cpu_clock(program, hz, cpu))

    def attach_sched(self) -> None:
        """Follows the threads that are in the map `threads` on and off the CPU."""
        for tracepoint, function in (
            ("sched_switch", "gs_on_sched_switch"),
            ("sched_process_exit", "gs_on_thread_exit"),
        ):
            self._program(function, bcc.BPF.RAW_TRACEPOINT)
            try:
                self._bpf.attach_raw_tracepoint(tracepoint.encode(), function.encode())
            except Exception as error:  # bcc raises bare Exception
                raise BpfUnavailable(f"the kernel refuses the tracepoint {tracepoint}") from error

    def lost(self) -> dict[abi.LossKind, int]:
        """What the kernel side could not keep, since the start."""
        return {kind: sum(self._lost[ctypes.c_int(kind)]) for kind in abi.LossKind}

    def close(self) -> None:
        """Detaches everything; the rings and maps are gone after it."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _compile(self) -> Any:
        directory = probes_dir()
        extra = (source for part in self.parts for source in PARTS[part].sources)
        sources = dict.fromkeys((*SOURCES, *extra))
        text = b"\n".join((directory / f"{name}.bpf.c").read_bytes() for name in sources)
        # Without debug information, which only the verifier's complaints would show: bcc asks
        # for it, and it takes a sixth of the time to compile.
        flags = [f"-I{directory}", "-g0", *self._defines()]
        try:
            return bcc.BPF(text=text, cflags=flags)
        except Exception as error:  # bcc raises bare Exception
            raise BpfUnavailable(
                f"the BPF programs do not compile: {error}",
                "`greenscope doctor` checks bcc and the kernel headers.",
            ) from error

    def _defines(self) -> Iterator[str]:
        limits = self.limits
        btf = kernel_btf()
        numbers = {
            "GS_MAX_TARGETS": limits.targets,
            "GS_MAX_THREADS": limits.threads,
            "GS_MAX_WALKS": limits.walks,
            "GS_MAX_GREENLETS": limits.greenlets,
            "GS_MAX_STACKS": limits.stacks,
            "GS_EVENT_PAGES": limits.event_ring_bytes // PAGE,
            "GS_STACK_PAGES": limits.stack_ring_bytes // PAGE,
            "GS_MAX_PLACES": MAX_PLACES,
            "GS_TASK_PID": _offset(btf.member_offset("task_struct", "pid"), "pid"),
            # `state` was renamed in Linux 5.14.
            "GS_TASK_STATE": _offset(
                btf.member_offset("task_struct", "__state")
                or btf.member_offset("task_struct", "state"),
                "__state",
            ),
        }
        numbers |= {f"GS_WITH_{part.upper()}": 1 for part in self.parts}
        for name, value in numbers.items():
            yield f"-D{name}={value}"
        for name in abi.POLLS:
            yield f"-DGS_NR_{name.upper()}={_NUMBERS[name]}"

    def _link_walks(self) -> None:
        """Puts each walk program where its tail calls look for it."""
        for array, function, kind in (
            ("gs_switch_programs", "gs_on_switch_walk", bcc.BPF.KPROBE),
            ("gs_sampler_programs", "gs_on_sample_walk", bcc.BPF.PERF_EVENT),
            ("gs_sched_programs", "gs_on_sched_switch_walk", bcc.BPF.RAW_TRACEPOINT),
        ):
            self._bpf.get_table(array.encode())[ctypes.c_int(0)] = ctypes.c_int(
                self._program(function, kind)
            )

    def _open(
        self,
        function: str,
        path: str,
        offset: int,
        pid: int,
        ref_ctr_offset: int = 0,
        cookie: int | None = None,
    ) -> int:
        module = uprobe_link if self._has_links else perf_event
        program = self._program(function, bcc.BPF.KPROBE)
        fd: int = module.open_uprobe(program, path, offset, pid, ref_ctr_offset, cookie)
        return fd

    def _program(self, function: str, kind: int) -> int:
        """File descriptor of a program, loaded (and verified) when first asked for."""
        if function not in self._programs:
            try:
                for_links = self._has_links and kind == bcc.BPF.KPROBE
                attach_type = uprobe_link.ATTACH_TYPE if for_links else -1
                loaded = self._bpf.load_func(function.encode(), kind, attach_type=attach_type)
            except Exception as error:  # bcc raises bare Exception
                raise BpfUnavailable(
                    f"the kernel does not load {function}: {error}",
                    "`greenscope doctor` checks what the kernel offers.",
                ) from error
            self._programs[function] = loaded.fd
        return self._programs[function]

    def _ring(self, name: str, size_bytes: int) -> MappedRing:
        ring = MappedRing(self._bpf.get_table(name.encode()).map_fd, size_bytes)
        self._stack.callback(ring.close)
        return ring


def _offset(value: int | None, name: str) -> int:
    if value is None:
        raise BpfUnavailable(
            f"the kernel's BTF does not describe task_struct.{name}",
            "greenscope needs a kernel built with CONFIG_DEBUG_INFO_BTF.",
        )
    return value


def online_cpus() -> list[int]:
    """The numbers of the CPUs that are online, from a list like 0-3,8."""
    cpus: list[int] = []
    for part in Path("/sys/devices/system/cpu/online").read_text().strip().split(","):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return cpus
