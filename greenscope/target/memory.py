"""Reading the target's memory, without stopping it: a live process or a recorded image."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

from greenscope.errors import PermissionMissing, TargetNotFound
from greenscope.target.process import PROC

MAX_READ_BYTES = 16 << 20
"""No structure that we read is larger; a longer wish comes from a damaged length field."""


class ProcessMemory(Protocol):
    """Memory of a target, by its own addresses."""

    def read(self, address: int, size: int) -> bytes | None:
        """Exactly `size` bytes, or None when any of them is unreadable."""


class LiveMemory:
    """Memory of a running process through /proc/PID/mem.

    Opened once: the kernel checks our rights then and binds the file to the address space of
    that moment, so a process that takes the pid later is never read by mistake. After an
    exec or the end of the target every read gives None. Nothing is attached by ptrace.

    Raises:
        TargetNotFound: there is no such process.
        PermissionMissing: its memory may not be read.
    """

    def __init__(self, pid: int) -> None:
        try:
            self._fd = os.open(f"{PROC}/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError as error:
            raise PermissionMissing(
                f"no permission to read the memory of process {pid}",
                "Run greenscope as root, or with the capabilities SYS_PTRACE and DAC_OVERRIDE.",
            ) from error
        except OSError as error:
            raise TargetNotFound(f"process {pid} is gone") from error

    def read(self, address: int, size: int) -> bytes | None:
        """Exactly `size` bytes, or None when any of them is unreadable."""
        # User addresses end below 1 << 63; pread takes a signed offset.
        if size < 0 or size > MAX_READ_BYTES or address <= 0 or address + size >= 1 << 63:
            return None
        try:
            data = os.pread(self._fd, size, address)
        except OSError:
            return None
        return data if len(data) == size else None

    def close(self) -> None:
        """Give the file back; later reads give None."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class RecordedMemory:
    """Memory from {address: bytes}; neighbouring pieces are read as one."""

    def __init__(self, pieces: Mapping[int, bytes]) -> None:
        self._pieces = dict(sorted(pieces.items()))
        self._starts = list(self._pieces)

    def read(self, address: int, size: int) -> bytes | None:
        """Exactly `size` bytes, or None when any of them is unreadable."""
        out = bytearray()
        while len(out) < size:
            at = address + len(out)
            index = bisect_right(self._starts, at) - 1
            if index < 0:
                return None
            start = self._starts[index]
            part = self._pieces[start][at - start : at - start + size - len(out)]
            if not part:
                return None
            out += part
        return bytes(out)
