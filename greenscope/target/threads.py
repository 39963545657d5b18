"""The thread states of an interpreter, read from its memory.

The second way to a thread state: the list that starts at _PyRuntime. It needs no register of
the target and also finds threads that have released the GIL. The first way, the thread that
runs now, is the BPF side's (gs_target.tstate_addr).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from greenscope.target.memory import ProcessMemory

# No process has more; the lists are read while the target changes them, so both are bounded.
_MAX_INTERPRETERS = 256
_MAX_THREADS = 65536
_POINTER = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class ThreadListOffsets:
    """Where the list's fields are (offsets/table.py has the rows)."""

    runtime_interpreters_head: int
    interp_next: int
    interp_threads_head: int
    tstate_next: int
    tstate_native_thread_id: int


def read_pointer(memory: ProcessMemory, address: int) -> int | None:
    """The 8-byte word at an address, None when unreadable."""
    data = memory.read(address, 8)
    return None if data is None else int(_POINTER.unpack(data)[0])


def thread_states(
    memory: ProcessMemory, runtime_addr: int, offsets: ThreadListOffsets
) -> dict[int, int]:
    """{tid as the target sees it: address of its PyThreadState}, as far as readable.

    `runtime_addr` is the address of _PyRuntime. Racy by nature: a thread that starts or ends
    meanwhile may be missing.
    """
    found: dict[int, int] = {}
    interpreter = read_pointer(memory, runtime_addr + offsets.runtime_interpreters_head)
    for _ in range(_MAX_INTERPRETERS):
        if not interpreter:
            break
        tstate = read_pointer(memory, interpreter + offsets.interp_threads_head)
        while tstate and len(found) < _MAX_THREADS:
            tid = read_pointer(memory, tstate + offsets.tstate_native_thread_id)
            if tid is None or tid in found:
                break
            found[tid] = tstate
            tstate = read_pointer(memory, tstate + offsets.tstate_next)
        interpreter = read_pointer(memory, interpreter + offsets.interp_next)
    return found
