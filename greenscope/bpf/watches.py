"""The map gs_watches in our own memory: read and written without a system call."""

from __future__ import annotations

import ctypes
import mmap

from greenscope.bpf import abi

_SIZE = ctypes.sizeof(abi.Watch)
_PHASE = abi.Watch.phase.offset
_ON_SINCE = abi.Watch.on_since_ns.offset
_FRESH_SINCE = abi.Watch.fresh_since.offset


class MappedWatches:
    """How the probes of each process stand. `fd` is the map's and stays the caller's."""

    def __init__(self, fd: int, entries: int) -> None:
        pages = -(-_SIZE * entries // mmap.PAGESIZE)
        self._memory = mmap.mmap(fd, pages * mmap.PAGESIZE)
        # As in ring.py: aligned accesses through a cast view are single loads and stores.
        self._words = memoryview(self._memory).cast("Q")

    def read(self, slot: int) -> abi.Watch:
        """A copy of one entry."""
        return abi.Watch.from_buffer_copy(self._memory, slot * _SIZE)

    def turn_off(self, slot: int) -> None:
        """The next phase of one entry, in which probes are off."""
        self._words[(slot * _SIZE + _PHASE) // 8] += 1

    def turn_on(self, slot: int, now_ns: int, births_missed: bool) -> None:
        """The next phase of one entry, in which probes are on."""
        base = slot * _SIZE
        phase = self._words[(base + _PHASE) // 8] + 1
        self._words[(base + _ON_SINCE) // 8] = now_ns
        if births_missed:
            self._words[(base + _FRESH_SINCE) // 8] = phase
        self._words[(base + _PHASE) // 8] = phase

    def clear(self) -> None:
        """As if no process had been watched yet."""
        self._memory[:] = bytes(len(self._memory))

    def close(self) -> None:
        """Unmaps it, or the map would stay in the kernel."""
        self._words.release()
        self._memory.close()
