"""Named stacks: resolves each code object once, while it is still alive, and keeps it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from greenscope.bpf.abi import POLLS, SLEEPS, Role, WalkStatus
from greenscope.model import Code, CodeOrigin, Frame, Stack, StackStatus
from greenscope.offsets.table import InterpreterOffsets
from greenscope.rebuild.code import CodeObject, read_code
from greenscope.rebuild.frames import RawStack
from greenscope.target.memory import ProcessMemory

_STATUS = {
    WalkStatus.COMPLETE: StackStatus.COMPLETE,
    WalkStatus.TRUNCATED: StackStatus.TRUNCATED,
    WalkStatus.UNREADABLE: StackStatus.UNREADABLE,
}
# gevent's places that decide what a greenlet is (gevent/hub.py Hub.run; gevent/threadpool.py
# the loop of a native worker thread; gevent/_ffi/loop.py and gevent/libuv/loop.py the loop of
# the cffi builds). By file and name: co_qualname has the class, co_name has not.
_HUB = ("/gevent/hub.py", ("run", "Hub.run"))
# eventlet's hub (eventlet/hubs/hub.py BaseHub.run, eventlet/hubs/asyncio.py Hub.run).
_EVENTLET_HUBS = ("/eventlet/hubs/hub.py", "/eventlet/hubs/asyncio.py")
# Where asyncio dispatches. Under greenlets (SQLAlchemy's greenlet_spawn(), playwright's sync API)
# it does that at the bottom of a greenlet whose outermost function may be any: often <module>.
_ASYNCIO = ("/asyncio/base_events.py", ("run_forever", "BaseEventLoop.run_forever"))
# Frames that mean a callback runs: asyncio/events.py Handle._run, eventlet/hubs/timer.py.
_CALLBACKS = (("/asyncio/events.py", "Handle._run"), ("/eventlet/hubs/timer.py", "Timer.__call__"))
_WORKER_FILE = "/gevent/threadpool.py"
_LOOP_FILES = (
    "/gevent/_ffi/loop.py",
    "/gevent/libuv/loop.py",
    "/gevent/libev/corecffi.py",
    "/eventlet/hubs/epolls.py",
    "/eventlet/hubs/poll.py",
    "/eventlet/hubs/selects.py",
)

_BOOTSTRAP = re.compile(
    r"<frozen runpy>|/lib(?:64)?/python\d\.\d+/(?:runpy|threading)\.py$|/eventlet/greenthread\.py$"
)

LOST_STACK = Stack((), StackStatus.LOST)
NO_STACK = Stack((), StackStatus.NO_FRAMES)


def role_of(code: Code) -> Role:
    """What a greenlet is whose outermost code this is (LOOP: not a greenlet, see abi.Role)."""
    if is_gevent_hub(code):
        return Role.HUB
    if code.file.endswith(_EVENTLET_HUBS) and code.function in ("BaseHub.run", "Hub.run"):
        return Role.HUB
    if code.file.endswith(_WORKER_FILE):
        return Role.WORKER
    if code.file.endswith(_LOOP_FILES):
        return Role.LOOP
    return Role.GREENLET


def is_gevent_hub(code: Code) -> bool:
    """Whether this is Hub.run() of gevent."""
    return code.file.endswith(_HUB[0]) and code.function in _HUB[1]


def kind_of(stack: Stack) -> Code | None:
    """The function that a greenlet was started with: its outermost frame.

    What the interpreter runs before the function that was meant (`python -m`, a thread's
    bootstrap, which a patched one has as a greenlet) is skipped. None: no frame.
    """
    for frame in reversed(stack.frames):
        if not _BOOTSTRAP.search(frame.code.file):
            return frame.code
    return stack.frames[-1].code if stack.frames else None


def _runs_a_callback(frames: Iterable[Frame]) -> bool:
    """Whether frames further in than a dispatching one are of a callback."""
    return any(
        frame.code.origin is CodeOrigin.APPLICATION
        or any(
            frame.code.file.endswith(file) and frame.code.function == function
            for file, function in _CALLBACKS
        )
        for frame in frames
    )


class StackResolver:
    """Turns raw stacks of one process into named ones, and tells what their greenlets are.

    `by_id` answers for the ids in events. Code objects are read when a stack first arrives,
    milliseconds after it was taken. `hub_function` is a name that the user gave: the greenlet
    that has it on its stack is the hub.
    """

    def __init__(
        self, memory: ProcessMemory, offsets: InterpreterOffsets, hub_function: str = ""
    ) -> None:
        self._memory = memory
        self._offsets = offsets
        self._hub_function = hub_function
        # Outermost code, by address, of stacks that dispatch; and what of it was accepted.
        self.dispatchers: set[int] = set()
        self._accepted: set[Code] = set()
        # Innermost code of such stacks, from which alone it cannot be told what is going on.
        self._ambiguous: set[int] = set()
        self._codes: dict[int, CodeObject | None] = {}
        self._stacks: dict[int, Stack] = {}

    def add(self, raw: RawStack) -> Stack:
        """Resolves a stack of the kernel side and keeps it under its own id."""
        return self.add_as(raw, raw.stack_id)

    def add_as(self, raw: RawStack, stack_id: int) -> Stack:
        """Resolves a stack and keeps it under `stack_id` (0: not kept)."""
        status = _STATUS[raw.status]
        frames = []
        for code_addr, instr in raw.frames:
            code = self.code(code_addr)
            if code is None:
                status = StackStatus.UNRESOLVED
                continue
            frames.append(Frame(code.code, code.line(instr)))
        if not frames and status is StackStatus.COMPLETE:
            status = StackStatus.NO_FRAMES
        stack = Stack(tuple(frames), status)
        if any(self._dispatches(frame.code) for frame in frames):
            self._note_dispatcher(raw, stack)
        if stack_id:
            self._stacks[stack_id] = stack
        return stack

    def accept_dispatchers(self) -> set[int]:
        """Makes those that were met hubs from now on; gives the addresses of their code."""
        accepted, self.dispatchers = self.dispatchers, set()
        for code_addr in accepted:
            code = self.code(code_addr)
            if code is not None:
                self._accepted.add(code.code)
        return accepted

    def role_of(self, code: Code) -> Role:
        """What a greenlet is whose outermost code this is."""
        return Role.HUB if code in self._accepted else role_of(code)

    def role_at(self, code_addr: int) -> Role | None:
        """The same by the address, None where there is no code; UNKNOWN is for us to tell later."""
        code = self.code(code_addr) if code_addr else None
        if code is None or code_addr in self._ambiguous:
            return None if code is None else Role.UNKNOWN
        return self.role_of(code.code)

    def is_idle(self, stack: Stack, syscall: str) -> bool:
        """Whether a thread in this system call waits for its hub's events: no callback runs."""
        if syscall not in POLLS and syscall not in SLEEPS:
            return False
        if not stack.frames or self.role_of(stack.frames[-1].code) is not Role.HUB:
            return False
        innermost = role_of(stack.frames[0].code)
        if innermost is Role.LOOP:
            return True
        if innermost is Role.HUB:
            return syscall in POLLS
        for depth, frame in enumerate(stack.frames):
            if self._dispatches(frame.code) or frame.code.file.endswith(_EVENTLET_HUBS):
                return not _runs_a_callback(stack.frames[:depth])
        return False

    def _dispatches(self, code: Code) -> bool:
        """Whether this function hands over to greenlets, though it may be called by any."""
        if self._hub_function:
            name = code.function
            return name == self._hub_function or name.endswith(f".{self._hub_function}")
        return code.file.endswith(_ASYNCIO[0]) and code.function in _ASYNCIO[1]

    def _note_dispatcher(self, raw: RawStack, stack: Stack) -> None:
        """Not where a thread's bootstrap is outermost: all threads have that in common."""
        outermost = stack.frames[-1].code
        if stack.status is not StackStatus.COMPLETE or _BOOTSTRAP.search(outermost.file):
            return
        self._ambiguous.add(raw.frames[0][0])
        if outermost not in self._accepted:
            self.dispatchers.add(raw.outermost_code)

    def by_id(self, stack_id: int) -> Stack:
        """The stack of an id; 0 is the stack without frames, an unknown one was lost."""
        if not stack_id:
            return NO_STACK
        return self._stacks.get(stack_id, LOST_STACK)

    def code(self, code_addr: int) -> CodeObject | None:
        """The code object at an address, None when it cannot be read any more."""
        if code_addr not in self._codes:
            self._codes[code_addr] = read_code(self._memory, code_addr, self._offsets)
        return self._codes[code_addr]
