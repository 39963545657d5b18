"""The kernel's own word that a process or its children mapped a program file.

perf's dummy event writes a record for each executable mapping, so that waiting for greenlet
to be imported needs no polling of /proc and nothing inside the target.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from greenscope.bpf import perf_event

PAGE = mmap.PAGESIZE
_DATA_PAGES = 16
# struct perf_event_mmap_page (include/uapi/linux/perf_event.h)
_DATA_HEAD = 1024 // 8
_DATA_TAIL = 1032 // 8
_HEADER = struct.Struct("<IHH")  # struct perf_event_header: type, misc, size
_RECORD_MMAP = 1
_MMAP = struct.Struct("<IIQQQ")  # pid, tid, address, length, page offset; then the file name


@dataclass(frozen=True, slots=True)
class MappedEvent:
    """A process mapped a file for execution; `path` as it sees it."""

    pid: int
    path: str


class MappingEvents:
    """Executable mappings made by one process and all that it forks from now on.

    Raises:
        PermissionMissing, BpfUnavailable: the kernel refuses the events.
    """

    def __init__(self, pid: int, cpus: list[int]) -> None:
        self._rings: list[mmap.mmap] = []
        self.fds: list[int] = []
        try:
            # An inherited event can only be mapped where it is bound to a CPU.
            for cpu in cpus:
                fd = perf_event.open_mappings(pid, cpu)
                self.fds.append(fd)
                self._rings.append(mmap.mmap(fd, PAGE * (1 + _DATA_PAGES), mmap.MAP_SHARED))
        except BaseException:
            self.close()
            raise

    def read(self) -> Iterator[MappedEvent]:
        """The events since the call before, CPU by CPU."""
        for ring in self._rings:
            with memoryview(ring).cast("Q") as words:
                head, tail = words[_DATA_HEAD], words[_DATA_TAIL]
                data = self._copy(ring, tail, head)
                words[_DATA_TAIL] = head
            yield from _parse(data)

    def close(self) -> None:
        """Ends the events."""
        for ring in self._rings:
            ring.close()
        for fd in self.fds:
            os.close(fd)
        self._rings, self.fds = [], []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def _copy(ring: mmap.mmap, tail: int, head: int) -> bytes:
        size = PAGE * _DATA_PAGES
        start, end = tail % size, head % size
        if head - tail >= size:
            return b""  # overrun while we slept: what is left cannot be told apart
        if start <= end:
            return ring[PAGE + start : PAGE + end]
        return ring[PAGE + start : PAGE + size] + ring[PAGE : PAGE + end]


def _parse(data: bytes) -> Iterator[MappedEvent]:
    at = 0
    while at + _HEADER.size <= len(data):
        kind, _, size = _HEADER.unpack_from(data, at)
        if size < _HEADER.size:
            return
        body = data[at + _HEADER.size : at + size]
        if kind == _RECORD_MMAP and len(body) > _MMAP.size:
            pid = _MMAP.unpack_from(body)[0]
            yield MappedEvent(pid, os.fsdecode(body[_MMAP.size :].split(b"\0", 1)[0]))
        at += size
