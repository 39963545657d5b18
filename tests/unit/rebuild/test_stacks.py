from __future__ import annotations

import pytest

from greenscope.bpf.abi import Role, WalkStatus
from greenscope.model import Code, CodeOrigin, Frame, Stack, StackStatus
from greenscope.offsets.rows import ROWS
from greenscope.rebuild import stacks
from greenscope.rebuild.code import CodeObject
from greenscope.rebuild.frames import RawStack
from greenscope.rebuild.stacks import LOST_STACK, NO_STACK, StackResolver, kind_of, role_of
from greenscope.target.memory import RecordedMemory

OFFSETS = ROWS[3, 11]
SITE = "/srv/venv/lib/python3.11/site-packages/"
HUB_RUN = Code("Hub.run", SITE + "gevent/hub.py", 631, CodeOrigin.LIBRARY)
SWITCH = Code("WaitOperationsGreenlet.switch", SITE + "gevent/_waiter.py", 1, CodeOrigin.LIBRARY)
VIEW = Code("view", "/srv/app/views.py", 10, CodeOrigin.APPLICATION)
QUERY = Code("query", "/srv/app/models.py", 20, CodeOrigin.APPLICATION)
BOOTSTRAP = Code("Thread._bootstrap", "/usr/lib/python3.11/threading.py", 995, CodeOrigin.STDLIB)
SERVER = Code("BaseServer.handle", SITE + "gevent/baseserver.py", 30, CodeOrigin.LIBRARY)


def stack(*codes: Code) -> Stack:
    return Stack(tuple(Frame(code, code.first_line + 1) for code in codes))


@pytest.mark.parametrize(
    ("function", "file", "role"),
    [
        ("Hub.run", SITE + "gevent/hub.py", Role.HUB),
        ("run", SITE + "gevent/hub.py", Role.HUB),
        ("Hub.switch", SITE + "gevent/hub.py", Role.GREENLET),
        ("sleep", SITE + "gevent/hub.py", Role.GREENLET),
        ("run", "/srv/app/hub.py", Role.GREENLET),
        ("run", "/srv/mygevent/hub.py", Role.GREENLET),
        ("_WorkerGreenlet.__run_task", SITE + "gevent/threadpool.py", Role.WORKER),
        ("task", "/srv/notgevent/threadpool.py", Role.GREENLET),
        ("AbstractLoop.run", SITE + "gevent/_ffi/loop.py", Role.LOOP),
        ("loop.run", SITE + "gevent/libuv/loop.py", Role.LOOP),
        ("loop.run", SITE + "gevent/libev/corecffi.py", Role.LOOP),
        ("view", "/srv/app/views.py", Role.GREENLET),
    ],
)
def test_role_by_the_outermost_code(function: str, file: str, role: Role) -> None:
    assert role_of(Code(function, file, 1, CodeOrigin.LIBRARY)) is role


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        ((), None),
        ((SWITCH, QUERY, VIEW), VIEW),
        ((SWITCH, QUERY, VIEW, SERVER), SERVER),  # whichever handler runs
        ((VIEW, BOOTSTRAP), VIEW),
        ((BOOTSTRAP,), BOOTSTRAP),
        ((SWITCH, SERVER), SERVER),
        ((VIEW,), VIEW),
        ((QUERY, HUB_RUN), HUB_RUN),  # a hub callback of the application
    ],
)
def test_kind_is_the_function_that_the_greenlet_was_started_with(
    frames: tuple[Code, ...], kind: Code | None
) -> None:
    assert kind_of(stack(*frames)) == kind


class FakeCodes:
    """Code objects by address; counts how often each was read."""

    def __init__(self, codes: dict[int, Code]) -> None:
        self.codes = codes
        self.reads: list[int] = []

    def read(self, _memory: object, address: int, _offsets: object) -> CodeObject | None:
        self.reads.append(address)
        code = self.codes.get(address)
        if code is None:
            return None
        # One entry without columns that covers 8 units and goes one line further.
        return CodeObject(code, bytes([0x80 | 13 << 3 | 7, 2]), address, OFFSETS.instr_kind)


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> FakeCodes:
    fake = FakeCodes({0x1000: SWITCH, 0x2000: VIEW})
    monkeypatch.setattr(stacks, "read_code", fake.read)
    return fake


@pytest.fixture
def resolver(codes: FakeCodes) -> StackResolver:
    return StackResolver(RecordedMemory({}), OFFSETS)


def raw(stack_id: int, *addrs: int, status: WalkStatus = WalkStatus.COMPLETE) -> RawStack:
    return RawStack(stack_id, addrs[-1] if addrs else 0, tuple((a, a + 2) for a in addrs), status)


def test_stack_is_named_and_kept_under_its_id(resolver: StackResolver) -> None:
    named = resolver.add(raw(7, 0x1000, 0x2000))
    assert named == stack(SWITCH, VIEW)
    assert resolver.by_id(7) is named


def test_stack_that_never_came_is_lost(resolver: StackResolver) -> None:
    assert resolver.by_id(99) is LOST_STACK
    assert (LOST_STACK.frames, LOST_STACK.status) == ((), StackStatus.LOST)


def test_id_zero_is_the_stack_without_frames(resolver: StackResolver) -> None:
    resolver.add(raw(0, 0x1000))
    assert resolver.by_id(0) is NO_STACK
    assert (NO_STACK.frames, NO_STACK.status) == ((), StackStatus.NO_FRAMES)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (WalkStatus.COMPLETE, StackStatus.COMPLETE),
        (WalkStatus.TRUNCATED, StackStatus.TRUNCATED),
        (WalkStatus.UNREADABLE, StackStatus.UNREADABLE),
    ],
)
def test_status_of_the_walk_is_kept(
    resolver: StackResolver, status: WalkStatus, expected: StackStatus
) -> None:
    assert resolver.add(raw(7, 0x1000, status=status)).status is expected


def test_complete_walk_without_frames_says_so(resolver: StackResolver) -> None:
    assert resolver.add(raw(0)) == NO_STACK


def test_code_that_is_gone_is_left_out_and_marked(resolver: StackResolver) -> None:
    named = resolver.add(raw(7, 0x1000, 0x6666, 0x2000))
    assert named == Stack(stack(SWITCH, VIEW).frames, StackStatus.UNRESOLVED)


def test_each_code_object_is_read_once(resolver: StackResolver, codes: FakeCodes) -> None:
    for stack_id in (7, 9):
        resolver.add(raw(stack_id, 0x1000, 0x2000, 0x6666))
    assert codes.reads == [0x1000, 0x2000, 0x6666]


def test_stack_can_be_kept_under_an_id_of_ours(resolver: StackResolver) -> None:
    named = resolver.add_as(raw(0, 0x2000), 4)
    assert resolver.by_id(4) is named
