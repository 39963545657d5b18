"""What a hit of a uprobe costs on this machine, measured on ourselves.

A loop of a few machine instructions, in a file of its own that only this process maps, is run
with a probe on its `nop`: the same instruction that <sys/sdt.h> leaves at a USDT place, which
the kernel emulates as it does the `push` at greenlet's switch.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import statistics
import time
from collections.abc import Callable, Iterator

from greenscope.errors import BpfUnavailable

HITS = 2_000
ROUNDS = 5
# x86-64: nop; dec %edi; jne back to the nop; ret.
# AArch64: nop; subs w0, w0, #1; b.ne back to the nop; ret.
_LOOPS = {
    "x86_64": bytes.fromhex("90 ffcf 75fb c3"),
    "aarch64": bytes.fromhex("1f2003d5 00040071 c1ffff54 c0035fd6"),
}
_MAP_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)

OpenProbe = Callable[[str, int, int], int]
"""(path, file offset, pid): puts a probe there and gives its file descriptor."""


def hit_cost_ns(open_probe: OpenProbe) -> float:
    """CPU time that one hit takes, of a probe that finds nothing to do.

    The median of some short rounds, as other work disturbs any one of them. Takes some
    10 ms.

    Raises:
        BpfUnavailable: there is no such loop for this machine.
        GreenscopeError: what `open_probe` raises.
    """
    code = _LOOPS.get(os.uname().machine)
    if code is None:
        raise BpfUnavailable(f"probes cannot be calibrated on {os.uname().machine}")
    fd = os.memfd_create("greenscope-calibration")
    try:
        os.write(fd, code.ljust(mmap.PAGESIZE, b"\0"))
        with _mapped(fd) as address:
            return _measure(address, fd, open_probe)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _mapped(fd: int) -> Iterator[int]:
    """Address of the first page of a file. Not writable: the kernel probes no such mapping."""
    size = mmap.PAGESIZE
    address = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, fd, 0)
    if address == _MAP_FAILED:
        number = ctypes.get_errno()
        raise BpfUnavailable(f"no executable memory to calibrate with: {os.strerror(number)}")
    try:
        yield address
    finally:
        _libc.munmap(address, size)


def _measure(address: int, fd: int, open_probe: OpenProbe) -> float:
    loop = ctypes.CFUNCTYPE(None, ctypes.c_uint32)(address)
    probe_fd = open_probe(f"/proc/{os.getpid()}/fd/{fd}", 0, os.getpid())
    try:
        loop(HITS)  # the first hits make the kernel's own copy of the instruction
        return statistics.median(_round(loop) for _ in range(ROUNDS))
    finally:
        os.close(probe_fd)


def _round(loop: Callable[[int], None]) -> float:
    begin_ns = time.thread_time_ns()
    loop(HITS)
    return (time.thread_time_ns() - begin_ns) / HITS
