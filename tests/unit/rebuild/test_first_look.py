"""What the first look says of threads that are blocked, idle or running."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from greenscope.bpf import abi
from greenscope.model import Code, CodeOrigin
from greenscope.offsets.program import Program
from greenscope.offsets.rows import ROWS
from greenscope.rebuild import first_look as module
from greenscope.rebuild import stacks
from greenscope.rebuild.code import CodeObject
from greenscope.rebuild.first_look import FirstLook, first_look
from greenscope.rebuild.stacks import StackResolver
from greenscope.target.process import ThreadSyscall
from tests.probes.image import Image, place
from tests.unit.rebuild.resolvers import HUB_RUN, VIEW

OFFSETS = ROWS[3, 11]
PID = 100
NOW_NS = 5_000
EPOLL_WAIT, NANOSLEEP = 232, 230
NAMES = {EPOLL_WAIT: "epoll_wait", NANOSLEEP: "clock_nanosleep", -1: "-1"}
LOOP = Code("loop.run", HUB_RUN.file.replace("hub.py", "_ffi/loop.py"), 1, CodeOrigin.LIBRARY)
WORKER = Code("task", HUB_RUN.file.replace("hub.py", "threadpool.py"), 1, CodeOrigin.LIBRARY)
RUNS = ThreadSyscall(None, running=True)
FAULTS = ThreadSyscall(None, running=False)


def waits_in(number: int) -> ThreadSyscall:
    return ThreadSyscall(number, running=False)


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Any:
    """look(syscall, innermost, ..., outermost): the main thread's first look, and its stacks."""

    def looked(
        syscall: ThreadSyscall | None, *codes: Code, has_gevent: bool = True, tid: int = PID
    ) -> tuple[FirstLook, StackResolver]:
        named = {place(depth)[0]: code for depth, code in enumerate(codes)}
        monkeypatch.setattr(
            stacks,
            "read_code",
            lambda _memory, addr, _offsets: CodeObject(named[addr], b"", addr, OFFSETS.instr_kind),
        )
        monkeypatch.setattr(module, "thread_ids", lambda _pid: (tid,))
        monkeypatch.setattr(module, "thread_ns_ids", lambda _pid, thread: (thread, 7))
        monkeypatch.setattr(module, "thread_syscall", lambda _pid, _tid: syscall)
        image = Image(OFFSETS)
        tstate = image.put_stack([0x7000_0000 + 128 * depth for depth in range(len(codes))])
        program = SimpleNamespace(
            process=SimpleNamespace(pid=PID, own_pid=7),
            has_gevent=has_gevent,
            offsets=OFFSETS,
            thread_states=lambda _memory: {7: tstate},
        )
        memory = image.memory()
        resolver = StackResolver(memory, OFFSETS)
        [found] = first_look(
            cast(Program, program), memory, resolver, NAMES.__getitem__, NOW_NS, {}
        )
        return found, resolver

    return looked


def fields(thread: abi.Thread, *names: str) -> tuple[int, ...]:
    return tuple(getattr(thread, name) for name in names)


def test_running_thread_begins_with_a_hold_that_began_before(look: Any) -> None:
    found, _ = look(RUNS, VIEW)
    assert (found.tid, found.outermost_code) == (PID, 0)
    names = ("tgid", "hold_start_ns", "began_before", "stack_wanted", "off_since_ns", "role")
    assert fields(found.thread, *names) == (PID, NOW_NS, 1, 1, 0, abi.Role.UNKNOWN)


def test_thread_that_is_gone_meanwhile_is_as_if_it_ran(look: Any) -> None:
    found, _ = look(None, VIEW)
    assert fields(found.thread, "off_since_ns", "role") == (0, abi.Role.UNKNOWN)


def test_blocked_thread_has_its_stack_and_its_system_call(look: Any) -> None:
    found, resolver = look(waits_in(NANOSLEEP), VIEW, HUB_RUN)
    assert fields(found.thread, "off_since_ns", "off_kind", "off_nr") == (
        NOW_NS,
        abi.OffKind.BLOCKED,
        NANOSLEEP,
    )
    stack = resolver.by_id(found.thread.off_stack_id)
    assert [frame.code for frame in stack.frames] == [VIEW, HUB_RUN]
    assert found.outermost_code == place(1)[0]


def test_stack_ids_are_none_that_the_kernel_side_could_use(look: Any) -> None:
    found, _ = look(waits_in(NANOSLEEP), VIEW)
    assert found.thread.off_stack_id > 0
    assert found.thread.off_stack_id % 2 == 0


def test_thread_that_waits_outside_of_a_system_call_has_no_number(look: Any) -> None:
    found, _ = look(FAULTS, VIEW)
    assert fields(found.thread, "off_since_ns", "off_nr") == (NOW_NS, -1)


@pytest.mark.parametrize("innermost", [(), (LOOP,)])
def test_hub_that_polls_is_idle(look: Any, innermost: tuple[Code, ...]) -> None:
    found, _ = look(waits_in(EPOLL_WAIT), *innermost, HUB_RUN)
    assert fields(found.thread, "role", "has_hub", "idle") == (abi.Role.HUB, abi.Hub.SEEN, 1)


@pytest.mark.parametrize(
    ("syscall", "codes"),
    [
        (waits_in(NANOSLEEP), (HUB_RUN,)),
        (waits_in(EPOLL_WAIT), (VIEW, HUB_RUN)),  # a callback that polls by itself
        (FAULTS, (HUB_RUN,)),
    ],
)
def test_hub_that_is_blocked_otherwise_is_not_idle(
    look: Any, syscall: ThreadSyscall, codes: tuple[Code, ...]
) -> None:
    found, _ = look(syscall, *codes)
    assert fields(found.thread, "role", "has_hub", "idle") == (abi.Role.HUB, abi.Hub.SEEN, 0)


@pytest.mark.parametrize(
    ("outermost", "role"), [(VIEW, abi.Role.GREENLET), (WORKER, abi.Role.WORKER)]
)
def test_blocked_thread_that_is_no_hub_has_its_role(look: Any, outermost: Code, role: int) -> None:
    found, _ = look(waits_in(EPOLL_WAIT), outermost)
    assert fields(found.thread, "role", "idle") == (role, 0)


@pytest.mark.parametrize(("tid", "has_hub"), [(PID, abi.Hub.ASSUMED), (PID + 1, abi.Hub.NONE)])
def test_hub_is_assumed_on_the_main_thread(look: Any, tid: int, has_hub: int) -> None:
    """Whatever is imported: it may be another's than gevent's."""
    found, _ = look(RUNS, VIEW, tid=tid)
    assert found.thread.has_hub == has_hub


def test_thread_without_frames_has_no_role(look: Any) -> None:
    found, resolver = look(waits_in(NANOSLEEP))
    assert (found.outermost_code, found.thread.role) == (0, abi.Role.UNKNOWN)
    assert resolver.by_id(found.thread.off_stack_id).frames == ()


def test_thread_that_proc_does_not_show_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "thread_ids", lambda _pid: ())
    program = SimpleNamespace(
        process=SimpleNamespace(pid=PID), thread_states=lambda _memory: {7: 0x1000}
    )
    image = Image(OFFSETS)
    resolver = StackResolver(image.memory(), OFFSETS)
    looks = first_look(
        cast(Program, program), image.memory(), resolver, NAMES.__getitem__, NOW_NS, {}
    )
    assert looks == []
