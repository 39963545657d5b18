"""What a process has in the kernel and in its target, seen from outside."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import select
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from greenscope.offsets.program import Program, inspect_program
from greenscope.target.elf import ElfImage
from greenscope.target.maps import MappedFile
from greenscope.target.memory import LiveMemory

# The kernel frees programs and maps after grace periods, which a busy machine stretches.
GONE_TIMEOUT_S = 60.0
BREAKPOINT = b"\xcc"
_SYS_BPF = 321  # arch/x86/entry/syscalls/syscall_64.tbl
# enum bpf_cmd (include/uapi/linux/bpf.h): BPF_*_GET_NEXT_ID
_GET_NEXT_ID = {"prog_id": 11, "map_id": 12, "link_id": 31}
_ID = re.compile(r"^(prog_id|map_id|link_id):\s*(\d+)$", re.MULTILINE)

_libc = ctypes.CDLL(None, use_errno=True)

BpfObject = tuple[str, int]
"""(prog_id, map_id or link_id; the id)."""


def bpf_objects(pid: int | str) -> frozenset[BpfObject]:
    """The BPF programs, maps and links that a process has a file descriptor of."""
    found: set[BpfObject] = set()
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            text = info.read_text()
        except FileNotFoundError:
            continue  # the descriptor of the directory itself
        found |= {(kind, int(number)) for kind, number in _ID.findall(text)}
    return frozenset(found)


def perf_events(pid: int | str) -> int:
    """How many perf events (probes, clocks) a process has open."""
    links = (os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink())
    return sum(link == "anon_inode:[perf_event]" for link in links)


def is_in_kernel(thing: BpfObject) -> bool:
    """Whether the kernel still knows a program, map or link by its id.

    Only the ids are asked for. Opening one by its id would take a reference, and giving that
    back while the kernel is about to free an array of programs makes it keep the array for
    ever (prog_array_map_clear() counts a reference for work that is already under way).
    """
    kind, number = thing
    attributes = (ctypes.c_uint32 * 3)(number - 1)  # start_id, next_id, open_flags
    size = ctypes.c_uint32(ctypes.sizeof(attributes))
    if _libc.syscall(_SYS_BPF, _GET_NEXT_ID[kind], attributes, size) == 0:
        return attributes[1] == number
    if ctypes.get_errno() != errno.ENOENT:
        raise OSError(ctypes.get_errno(), f"bpf() for the ids behind {kind} {number}")
    return False


def wait_until(condition: Callable[[], bool]) -> bool:
    """Whether a condition comes true in time.

    The kernel frees maps and programs behind a grace period, of whose end it tells nobody.
    """
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        select.select((), (), (), 0.01)
    return True


@dataclass(frozen=True, slots=True)
class Footprint:
    """The places in a target's memory that the kernel changes while it is probed."""

    memory: LiveMemory
    semaphores: tuple[int, ...]
    switch: int

    def semaphore_counts(self) -> list[int]:
        """The values of the semaphores of python's gc probes: 0 where nobody listens."""
        values = [self.memory.read(address, 2) for address in self.semaphores]
        return [int.from_bytes(value, "little") for value in values if value is not None]

    def has_breakpoint(self) -> bool:
        """Whether a uprobe is at greenlet's switch."""
        return self.memory.read(self.switch, 1) == BREAKPOINT

    def is_untouched(self) -> bool:
        """Whether the target's memory is as it was."""
        return not self.has_breakpoint() and not any(self.semaphore_counts())


def footprint(pid: int) -> Footprint:
    """Of a target, before or while it is probed."""
    program = inspect_program(pid)
    return Footprint(
        memory=LiveMemory(pid),
        semaphores=tuple(_semaphores(program)),
        switch=_address(program.greenlet.file, program.greenlet.places.switch),
    )


def _semaphores(program: Program) -> Iterator[int]:
    for probe in program.python.usdt_probes:
        if probe.name in ("gc__start", "gc__done") and probe.semaphore_file_offset:
            yield _address(program.python.file, probe.semaphore_file_offset)


def _address(file: MappedFile, offset: int) -> int:
    """Where the byte at an offset of a file lies in the target's memory."""
    with ElfImage(file.readable_path()) as image:
        bias = file.load_bias(image.segments)
        assert bias is not None
        for segment in image.segments:
            if segment.offset <= offset < segment.offset + segment.file_size:
                return offset - segment.offset + segment.address + bias
    raise AssertionError(f"{file.path} loads nothing from offset {offset}")
