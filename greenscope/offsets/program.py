"""What must be known of a target before its first probe: interpreter, greenlet, offsets."""

from __future__ import annotations

import re
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

_GEVENT_MODULE = re.compile(r"/gevent/.*\.so$")
_LOOP_MODULE = re.compile(r"/(?:libev|libuv)/[^/]*\.so$")
_LIBC_NAMES = ("libc.so.6", "libc-2.", "ld-musl-", "libc.musl-")
# Where a loop waits for events. gevent's wheels carry libev and libuv with their .symtab, and
# these begin with a push. libc's own begin with a compare, which the kernel must single-step,
# at twelve times the cost of a push; they serve where a distribution has stripped the others.
_LOOP_POLLS = ("epoll_poll", "poll_poll", "select_poll", "uv__io_poll")
_LIBC_POLLS = ("epoll_wait", "epoll_pwait", "poll", "select")


@dataclass(frozen=True, slots=True)
class PollPlaces:
    """(path, file offset) of each function in which a hub's loop polls.

    `cheap`: a probe there costs no more than one at the switch.
    """

    places: tuple[tuple[str, int], ...]
    cheap: bool


@dataclass(frozen=True, slots=True)
class Program:
    """A gevent process and where everything is in it. Addresses are the target's.

    `function_type_addr` and `method_type_addr` are of PyFunction_Type and PyMethod_Type, 0 where
    the interpreter hides them.
    """

    process: ProcessInfo
    python: MappedPython
    offsets: InterpreterOffsets
    runtime_addr: int
    greenlet: GreenletExtension
    has_gevent: bool
    function_type_addr: int = 0
    method_type_addr: int = 0

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


def poll_places(pid: int) -> PollPlaces:
    """Where the turns of a hub's loop can be seen, by what the process has loaded by now.

    None at all where gevent is not loaded.
    """
    files = mapped_files(pid, read_maps(pid))
    gevent = [file for file in files if _GEVENT_MODULE.search(file.path)]
    loops = [file for file in gevent if _LOOP_MODULE.search(file.path)]
    places = [place for file in loops for place in _functions(file, _LOOP_POLLS)]
    if places or not gevent:
        return PollPlaces(tuple(places), cheap=bool(places))
    libc = [file for file in files if file.name.startswith(_LIBC_NAMES)]
    return PollPlaces(tuple(p for file in libc for p in _functions(file, _LIBC_POLLS)), cheap=False)


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
    symbols = _addresses(python, ("_PyRuntime", "PyFunction_Type", "PyMethod_Type"))
    runtime_addr, function_type_addr, method_type_addr = symbols
    if not runtime_addr:
        raise UnsupportedInterpreter(
            f"CPython {python.full_version} at {python.file.path} has no symbol _PyRuntime",
            "It is in .dynsym of every usual build; this one hides it.",
        )
    return Program(
        process=process,
        python=python,
        offsets=offsets,
        runtime_addr=runtime_addr,
        function_type_addr=function_type_addr,
        method_type_addr=method_type_addr,
        greenlet=find_greenlet(files),
        has_gevent=any(_GEVENT_MODULE.search(file.path) for file in files),
    )


def _addresses(python: MappedPython, names: Sequence[str]) -> list[int]:
    """Of the interpreter's symbols, 0 for one that it has not."""
    with ElfImage(python.file.readable_path()) as image:
        symbols = [image.symbol(name) for name in names]
    return [0 if symbol is None else symbol.address + python.load_bias for symbol in symbols]


def _functions(file: MappedFile, names: Sequence[str]) -> list[tuple[str, int]]:
    """(path, file offset for an entry probe) of those functions that the file has."""
    path = file.readable_path()
    with ElfImage(path) as image:
        offsets = [image.entry_offset(name) for name in names]
    return [(path, offset) for offset in offsets if offset is not None]


def _children_hint(pid: int) -> str:
    children: Sequence[int] = child_pids(pid)
    if not children:
        return "Give the pid of the Python process itself."
    listed = ", ".join(map(str, children[:8]))
    return f"If it is a wrapper, try one of its children: {listed}."
