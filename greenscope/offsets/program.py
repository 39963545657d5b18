"""What must be known of a target before its first probe: interpreter, greenlet, offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from greenscope.errors import NotPython, UnsupportedInterpreter
from greenscope.offsets.rows import ROWS
from greenscope.offsets.table import InterpreterOffsets, offsets_for
from greenscope.target.elf import ElfImage
from greenscope.target.greenlet import GreenletExtension, find_greenlet
from greenscope.target.maps import MappedFile, mapped_files, read_maps
from greenscope.target.memory import ProcessMemory
from greenscope.target.process import ProcessInfo, child_pids, inspect_process
from greenscope.target.python import MappedPython, find_python
from greenscope.target.threads import ThreadListOffsets, thread_states

_LIBC_NAMES = ("libc.so.6", "libc-2.", "libpthread", "ld-musl-", "libc.musl-")
_POLL_FUNCTIONS = ("epoll_wait", "epoll_pwait", "poll", "select")


@dataclass(frozen=True, slots=True)
class Program:
    """A gevent process and where everything is in it. Addresses are the target's."""

    process: ProcessInfo
    python: MappedPython
    offsets: InterpreterOffsets
    runtime_addr: int
    greenlet: GreenletExtension
    has_gevent: bool
    libc: MappedFile | None

    @property
    def tstate_addr(self) -> int:
        """Address of the pointer to the thread state that runs now; 0 where there is none."""
        field = self.offsets.runtime_tstate_current
        return 0 if field is None else self.runtime_addr + field

    def thread_states(self, memory: ProcessMemory) -> dict[int, int]:
        """{tid in the target's own namespace: address of its PyThreadState}."""
        native_thread_id = self.offsets.tstate_native_thread_id
        if native_thread_id is None:
            return {}
        offsets = ThreadListOffsets(
            runtime_interpreters_head=self.offsets.runtime_interpreters_head,
            interp_next=self.offsets.interp_next,
            interp_threads_head=self.offsets.interp_threads_head,
            tstate_next=self.offsets.tstate_next,
            tstate_native_thread_id=native_thread_id,
        )
        return thread_states(memory, self.runtime_addr, offsets)

    def poll_places(self) -> list[tuple[str, int]]:
        """(path, file offset) of libc's functions in which a loop waits for events."""
        if self.libc is None:
            return []
        path = self.libc.readable_path()
        places = []
        with ElfImage(path) as image:
            for name in _POLL_FUNCTIONS:
                symbol = image.symbol(name)
                offset = image.file_offset(symbol.address) if symbol else None
                if offset is not None:
                    behind = 4 if image.starts_with_endbr64(offset) else 0
                    places.append((path, offset + behind))
        return places


def inspect_program(pid: int) -> Program:
    """Everything about process `pid`, read from /proc and its files.

    Raises:
        TargetNotFound, PermissionMissing: it cannot be looked at.
        NotPython, UnsupportedInterpreter, GreenletNotFound: it cannot be traced.
    """
    process = inspect_process(pid)
    files = mapped_files(pid, read_maps(pid))
    python = find_python(files)
    if python is None:
        raise NotPython(f"process {pid} ({process.comm}) runs no CPython", _children_hint(pid))
    offsets = offsets_for(python.version, ROWS)
    return Program(
        process=process,
        python=python,
        offsets=offsets,
        runtime_addr=_runtime_addr(python),
        greenlet=find_greenlet(files),
        has_gevent=any("/gevent/" in file.path for file in files),
        libc=next((file for file in files if file.name.startswith(_LIBC_NAMES)), None),
    )


def _runtime_addr(python: MappedPython) -> int:
    with ElfImage(python.file.readable_path()) as image:
        symbol = image.symbol("_PyRuntime")
    if symbol is None:
        raise UnsupportedInterpreter(
            f"CPython {python.full_version} at {python.file.path} has no symbol _PyRuntime",
            "It is in .dynsym of every usual build; this one hides it.",
        )
    return symbol.address + python.load_bias


def _children_hint(pid: int) -> str:
    children: Sequence[int] = child_pids(pid)
    if not children:
        return "Give the pid of the Python process itself."
    listed = ", ".join(map(str, children[:8]))
    return f"If it is a wrapper, try one of its children: {listed}."
