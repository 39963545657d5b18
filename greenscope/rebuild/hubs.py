"""Which threads have a hub, found in the target's memory before any probe can tell.

gevent keeps the hub of a thread as attribute `hub` of a thread-local object
(gevent/_hub_local.py). CPython keeps the attributes that a `_thread._local` has in one thread
in a dict, which hangs by a `_localdummy` in the thread state's own dict, under a key that
begins with "thread.local." (Modules/_threadmodule.c, local_new() and _ldict()).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from greenscope.bpf.abi import Role
from greenscope.errors import GreenscopeError
from greenscope.model import HubProcess
from greenscope.offsets.program import Program, inspect_program
from greenscope.offsets.table import InterpreterOffsets
from greenscope.rebuild.code import read_code, read_text
from greenscope.rebuild.objects import dict_items, dict_value, method_code
from greenscope.rebuild.stacks import is_gevent_hub, role_of
from greenscope.target.memory import LiveMemory, ProcessMemory
from greenscope.target.process import child_pids, inspect_process
from greenscope.target.threads import read_pointer

_LOCAL_KEY = "thread.local."
# gevent's classes whose run() decides what a greenlet is (role_of()), by module.
_CLASSES = {
    "gevent.hub": "Hub",
    "gevent._ffi.loop": "AbstractLoop",
    "gevent.libuv.loop": "loop",
    "gevent.libev.corecffi": "loop",
}
_MAX_CHILDREN = 256
_GREENLET_SPAN = 256  # bytes of a greenlet::Greenlet that are looked at; it has less


@dataclass(frozen=True, slots=True)
class ThreadHub:
    """The hub of one thread. `tid` is in the target's own PID namespace.

    `run_code` is the address of the code that its greenlet was started with. `is_greenlet`: the hub
    is that greenlet itself, as gevent's; eventlet's has one.
    """

    tid: int
    hub_addr: int
    run_code: int
    is_greenlet: bool


def thread_hubs(program: Program, memory: ProcessMemory) -> dict[int, ThreadHub]:
    """{tid: its hub} of all threads that have one; racy as the list of threads is."""
    found = {}
    for tid, tstate in program.thread_states(memory).items():
        for hub_addr in _hub_candidates(memory, tstate, program.offsets):
            run_code = _hub_run(memory, hub_addr, program.offsets)
            if run_code is not None:
                code = read_code(memory, run_code, program.offsets)
                is_greenlet = code is not None and is_gevent_hub(code.code)
                found[tid] = ThreadHub(tid, hub_addr, run_code, is_greenlet)
    return found


def greenlet_self_offset(
    hubs: Iterable[ThreadHub], memory: ProcessMemory, offsets: InterpreterOffsets
) -> int:
    """Where a greenlet::Greenlet has the address of its Python object; 0: no hub tells.

    It is a C++ class (greenlet's TGreenlet.hpp, `_self`) of which no header is installed; what we
    look for is the one word that is the hub's own address.
    """
    for hub in hubs:
        address = greenlet_address(hub, memory, offsets) if hub.is_greenlet else None
        data = memory.read(address, _GREENLET_SPAN) if address else None
        words = struct.unpack(f"<{_GREENLET_SPAN // 8}Q", data) if data else ()
        if hub.hub_addr in words:
            return 8 * words.index(hub.hub_addr)
    return 0


def greenlet_address(
    hub: ThreadHub, memory: ProcessMemory, offsets: InterpreterOffsets
) -> int | None:
    """Of the greenlet::Greenlet of a hub that is a greenlet."""
    # struct _greenlet of greenlet.h (2.0 and later): weakreflist and dict precede pimpl.
    return read_pointer(memory, hub.hub_addr + offsets.object_size + 16)


def loop_codes(program: Program, memory: ProcessMemory) -> Iterator[int]:
    """Addresses of the code of gevent's hubs and loops, whether they run already or not.

    The compiled loop (libev/corecext) has no Python code.
    """
    offsets = program.offsets
    modules = _modules(program, memory)
    for key, module in dict_items(memory, modules, offsets) if modules else ():
        class_name = _CLASSES.get(read_text(memory, key, offsets) or "")
        if class_name is None:
            continue
        namespace = read_pointer(memory, module + offsets.module_dict)
        found = dict_value(memory, namespace, class_name, offsets) if namespace else None
        code_addr = method_code(memory, found, "run", offsets) if found else None
        if code_addr:
            yield code_addr


def hub_children(pid: int) -> Iterator[HubProcess]:
    """The descendants of a process that run a hub, parents first."""
    waiting = list(child_pids(pid))
    for _ in range(_MAX_CHILDREN):
        if not waiting:
            return
        child = waiting.pop(0)
        waiting.extend(child_pids(child))
        try:
            if has_hub(inspect_program(child)):
                yield HubProcess(child, inspect_process(child).comm)
        except GreenscopeError:
            continue  # it ended, or is none of ours to look at: nothing to tell of it


def has_hub(program: Program) -> bool:
    """Whether a thread of the program has a hub.

    Raises:
        GreenscopeError: its memory is closed to us.
    """
    with LiveMemory(program.process.pid) as memory:
        return bool(thread_hubs(program, memory))


def _modules(program: Program, memory: ProcessMemory) -> int | None:
    offsets = program.offsets
    interpreter = read_pointer(memory, program.runtime_addr + offsets.runtime_interpreters_head)
    return read_pointer(memory, interpreter + offsets.interp_modules) if interpreter else None


def _hub_candidates(
    memory: ProcessMemory, tstate: int, offsets: InterpreterOffsets
) -> Iterator[int]:
    """What this thread keeps as attribute `hub` of any thread-local object."""
    namespace = read_pointer(memory, tstate + offsets.tstate_dict)
    for key, dummy in dict_items(memory, namespace, offsets) if namespace else ():
        name = read_text(memory, key, offsets)
        if name is None or not name.startswith(_LOCAL_KEY):
            continue
        attributes = read_pointer(memory, dummy + offsets.object_size)
        hub = dict_value(memory, attributes, "hub", offsets) if attributes else None
        if hub:
            yield hub


def _hub_run(memory: ProcessMemory, hub_addr: int, offsets: InterpreterOffsets) -> int | None:
    """The code of a hub's run(), None where the object is no hub."""
    type_addr = read_pointer(memory, hub_addr + offsets.object_type)
    code_addr = method_code(memory, type_addr, "run", offsets) if type_addr else None
    code = read_code(memory, code_addr, offsets) if code_addr else None
    return code_addr if code is not None and role_of(code.code) is Role.HUB else None
