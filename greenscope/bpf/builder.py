"""Compiles the programs in probes/ and loads them. The one module with bcc.

Run as a program by handover.py: the compiler takes over 100 MB, which the kernel side does not
need once it is there. bcc is Debian's python3-bpfcc; PyPI's package of the same name is another
project.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any

from greenscope.bpf import abi, handover
from greenscope.bpf.headers import ENVIRONMENT, find_kernel_headers
from greenscope.bpf.links import ATTACH_TYPE
from greenscope.bpf.programs import (
    MAPS,
    MAX_PLACES,
    PARTS,
    SAMPLER,
    SOURCES,
    TRACEPOINTS,
    UPROBES,
    WALKS,
    Built,
    Order,
    probes_dir,
)
from greenscope.bpf.ring import PAGE
from greenscope.errors import BpfUnavailable, GreenscopeError
from greenscope.offsets.btf import kernel_btf

try:
    import bcc
    from bcc.syscall import syscalls as _syscalls
except ImportError:  # the agent's own check says what to install; see Builder
    bcc = None
    _syscalls = {}

# bcc's table ends before these (include/uapi/asm-generic/unistd.h).
_LATER_SYSCALLS = {425: "io_uring_setup", 426: "io_uring_enter", 441: "epoll_pwait2"}
SYSCALLS: dict[int, str] = _LATER_SYSCALLS | {
    number: name.decode() for number, name in _syscalls.items()
}
_INSTALL_BCC = (
    "Install Debian's package with `apt-get install python3-bpfcc` and run greenscope with "
    "Debian's Python (`/usr/bin/python3 -m venv --system-site-packages`). PyPI's `bcc` is an "
    "unrelated project."
)


class Builder:
    """One kernel side, which ends with `bpf` unless somebody else has its descriptors open.

    Raises:
        BpfUnavailable: bcc, headers or BTF are missing, or a program does not load.
    """

    def __init__(self, order: Order) -> None:
        if bcc is None or not hasattr(bcc, "BPF"):
            raise BpfUnavailable("Debian's bcc for Python is not there", _INSTALL_BCC)
        self._order = order
        os.environ[ENVIRONMENT] = str(find_kernel_headers().path)
        self.bpf = self._compile()
        self.built = self._load()

    def _compile(self) -> Any:
        directory = probes_dir()
        extra = (source for part in self._order.parts for source in PARTS[part].sources)
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
        limits = self._order.limits
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
        numbers |= {f"GS_WITH_{part.upper()}": 1 for part in self._order.parts}
        for name, value in numbers.items():
            yield f"-D{name}={value}"
        by_name = {name: number for number, name in SYSCALLS.items()}
        for name in (*abi.POLLS, *abi.SLEEPS):
            yield f"-DGS_NR_{name.upper()}={by_name[name]}"

    def _load(self) -> Built:
        """Loads (and verifies) every program, so that attaching is quick."""
        more = [function for part in self._order.parts for function in PARTS[part].uprobes]
        programs = {name: self._program(name, bcc.BPF.KPROBE) for name in (*UPROBES, *more)}
        programs[SAMPLER] = self._program(SAMPLER, bcc.BPF.PERF_EVENT)
        for function in TRACEPOINTS.values():
            programs[function] = self._program(function, bcc.BPF.RAW_TRACEPOINT)
        self._link_walks()
        names = (*MAPS, *(name for part in self._order.parts for name in PARTS[part].maps))
        maps = {name: self.bpf.get_table(name.encode()).map_fd for name in names}
        return Built(programs, maps, SYSCALLS)

    def _link_walks(self) -> None:
        """Puts each walk program where its tail calls look for it."""
        kinds = (bcc.BPF.KPROBE, bcc.BPF.PERF_EVENT, bcc.BPF.RAW_TRACEPOINT)
        for (array, function), kind in zip(WALKS.items(), kinds, strict=True):
            table = self.bpf.get_table(array.encode())
            table[ctypes.c_int(0)] = ctypes.c_int(self._program(function, kind))

    def _program(self, function: str, kind: int) -> int:
        """File descriptor of a program."""
        for_links = self._order.for_links and kind == bcc.BPF.KPROBE
        attach_type = ATTACH_TYPE if for_links else -1
        try:
            loaded = self.bpf.load_func(function.encode(), kind, attach_type=attach_type)
        except Exception as error:  # bcc raises bare Exception
            raise BpfUnavailable(
                f"the kernel does not load {function}: {error}",
                "`greenscope doctor` checks what the kernel offers.",
            ) from error
        fd: int = loaded.fd
        return fd


def _offset(value: int | None, name: str) -> int:
    if value is None:
        raise BpfUnavailable(
            f"the kernel's BTF does not describe task_struct.{name}",
            "greenscope needs a kernel built with CONFIG_DEBUG_INFO_BTF.",
        )
    return value


def main(fd: int) -> None:
    """Builds what is ordered on a socket and hands it over there."""
    # Whoever ordered it may have ended meanwhile: then it ends here as well.
    with contextlib.suppress(ConnectionError), socket.socket(fileno=fd) as channel:
        order = handover.read_order(channel)
        try:
            builder = Builder(order)
        except GreenscopeError as error:
            handover.send_failure(channel, error)
        else:
            handover.send_built(channel, builder.built)


if __name__ == "__main__":
    main(int(sys.argv[1]))
