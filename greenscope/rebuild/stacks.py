"""Named stacks: resolves each code object once, while it is still alive, and keeps it."""

from __future__ import annotations

import re

from greenscope.bpf.abi import Role, WalkStatus
from greenscope.model import Code, Frame, Stack, StackStatus
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
_WORKER_FILE = "/gevent/threadpool.py"
_LOOP_FILES = ("/gevent/_ffi/loop.py", "/gevent/libuv/loop.py", "/gevent/libev/corecffi.py")

_BOOTSTRAP = re.compile(r"<frozen runpy>|/lib(?:64)?/python\d\.\d+/(?:runpy|threading)\.py$")

LOST_STACK = Stack((), StackStatus.LOST)
NO_STACK = Stack((), StackStatus.NO_FRAMES)


def role_of(code: Code) -> Role:
    """What a greenlet is whose outermost code this is (LOOP: not a greenlet, see abi.Role)."""
    if code.file.endswith(_HUB[0]) and code.function in _HUB[1]:
        return Role.HUB
    if code.file.endswith(_WORKER_FILE):
        return Role.WORKER
    if code.file.endswith(_LOOP_FILES):
        return Role.LOOP
    return Role.GREENLET


def kind_of(stack: Stack) -> Code | None:
    """The function that a greenlet was started with: its outermost frame.

    What the interpreter runs before the function that was meant (`python -m`, a thread's
    bootstrap, which a patched one has as a greenlet) is skipped. None: no frame.
    """
    for frame in reversed(stack.frames):
        if not _BOOTSTRAP.search(frame.code.file):
            return frame.code
    return stack.frames[-1].code if stack.frames else None


def is_idle_stack(stack: Stack) -> bool:
    """Whether a thread that polls here waits for its hub's events, with no callback running."""
    if not stack.frames:
        return False
    innermost, outermost = stack.frames[0].code, stack.frames[-1].code
    return role_of(outermost) is Role.HUB and role_of(innermost) in (Role.HUB, Role.LOOP)


class StackResolver:
    """Turns raw stacks of one process into named ones.

    `by_id` answers for the ids in events. Code objects are read when a stack first arrives,
    milliseconds after it was taken.
    """

    def __init__(self, memory: ProcessMemory, offsets: InterpreterOffsets) -> None:
        self._memory = memory
        self._offsets = offsets
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
        if stack_id:
            self._stacks[stack_id] = stack
        return stack

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
