"""What the threads of a target do at the moment when the watch begins.

No probe fires for a thread that is already blocked or idle, so its stack is walked here from
outside. A thread that runs tells by itself, at the next tick of the sampler or switch.
Which threads have a hub is read from memory (hubs.py): a hub that computes or polls when the
watch begins is known before its first event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from greenscope.bpf import abi
from greenscope.model import Stack
from greenscope.offsets.program import Program
from greenscope.offsets.table import InterpreterOffsets
from greenscope.rebuild.frames import RawStack, walk_thread
from greenscope.rebuild.hubs import ThreadHub, greenlet_address
from greenscope.rebuild.stacks import StackResolver
from greenscope.target.memory import ProcessMemory
from greenscope.target.process import thread_ids, thread_ns_ids, thread_syscall

# The kernel side's ids are odd.
_FIRST_STACK_ID = 2


@dataclass(frozen=True, slots=True)
class FirstLook:
    """One thread at the begin: the state for the kernel side's map, and its outermost code.

    `tid` is the one of our own PID namespace.
    `outermost_code` is 0 where the thread ran or had no frame. `hub` is the entry of the
    thread's hub for the kernel side, by the address of its greenlet::Greenlet.
    """

    tid: int
    thread: abi.Thread
    outermost_code: int
    hub: tuple[int, abi.Greenlet] | None = None


def host_thread_states(program: Program, memory: ProcessMemory) -> Iterator[tuple[int, int, int]]:
    """(tid, the target's own tid, address of its PyThreadState) of each thread.

    The interpreter knows its threads by their ids in its own PID namespace.
    """
    pid = program.process.pid
    host_tids = {thread_ns_ids(pid, tid)[-1]: tid for tid in thread_ids(pid)}
    for own_tid, tstate in program.thread_states(memory).items():
        if own_tid in host_tids:
            yield host_tids[own_tid], own_tid, tstate


def first_look(
    program: Program,
    memory: ProcessMemory,
    resolver: StackResolver,
    syscall_name: Callable[[int], str],
    now_ns: int,
    hubs: Mapping[int, ThreadHub],
) -> list[FirstLook]:
    """All threads of the interpreter; `hubs` as from thread_hubs()."""
    looks = []
    pid = program.process.pid
    for index, (tid, own_tid, tstate) in enumerate(host_thread_states(program, memory)):
        thread = abi.Thread(
            tstate=tstate,
            tgid=pid,
            hold_start_ns=now_ns,
            same_since_ns=now_ns,
            phase=abi.NEVER_LOOKED,
            off_nr=-1,
            began_before=1,
            stack_wanted=1,
        )
        if tid == pid:
            thread.has_hub = abi.Hub.ASSUMED
        hub = hubs.get(own_tid)
        hub_entry = None
        if hub is not None:
            thread.has_hub = abi.Hub.SEEN
        if hub is not None and hub.is_greenlet:
            hub_entry = _hub_entry(hub, tid, now_ns + index, memory, resolver, program.offsets)
        outermost = 0
        syscall = thread_syscall(pid, tid)
        if syscall is not None and not syscall.running:
            raw = walk_thread(memory, tstate, program.offsets)
            stack_id = _FIRST_STACK_ID * (index + 1)
            stack = resolver.add_as(raw, stack_id)
            outermost = raw.outermost_code
            thread.off_since_ns = now_ns
            thread.off_kind = abi.OffKind.BLOCKED
            thread.off_nr = -1 if syscall.number is None else syscall.number
            thread.off_stack_id = stack_id
            _set_role(thread, stack, resolver, syscall_name)
            if hub is not None and hub_entry is not None and outermost == hub.run_code:
                thread.greenlet, thread.greenlet_id = hub_entry[0], hub_entry[1].id
                thread.stack_wanted = 0
        looks.append(FirstLook(tid, thread, outermost, hub_entry))
    return looks


def idle_since(
    look: FirstLook,
    program: Program,
    memory: ProcessMemory,
    resolver: StackResolver,
    syscall_name: Callable[[int], str],
) -> bool:
    """Whether a thread that ran at the first look polls as its hub now; sets its state then.

    For one that fell asleep before the watch began, of which no probe can tell.
    """
    syscall = thread_syscall(program.process.pid, look.tid)
    if syscall is None or syscall.running or syscall.number is None:
        return False
    raw = walk_thread(memory, look.thread.tstate, program.offsets)
    stack = resolver.add(raw)
    if not resolver.is_idle(stack, syscall_name(syscall.number)):
        return False
    look.thread.off_nr = syscall.number
    look.thread.off_kind = abi.OffKind.BLOCKED
    look.thread.off_since_ns = look.thread.hold_start_ns
    _set_role(look.thread, stack, resolver, syscall_name)
    return True


def _hub_entry(
    hub: ThreadHub,
    tid: int,
    greenlet_id: int,
    memory: ProcessMemory,
    resolver: StackResolver,
    offsets: InterpreterOffsets,
) -> tuple[int, abi.Greenlet] | None:
    address = greenlet_address(hub, memory, offsets)
    if not address:
        return None
    stack_id = greenlet_id & ~1  # even, as all ids that are ours
    entry = RawStack(stack_id, hub.run_code, ((hub.run_code, 0),), abi.WalkStatus.COMPLETE)
    resolver.add(entry)
    greenlet = abi.Greenlet(id=greenlet_id, kind_stack_id=stack_id, tid=tid, role=abi.Role.HUB)
    return address, greenlet


def _set_role(
    thread: abi.Thread,
    stack: Stack,
    resolver: StackResolver,
    syscall_name: Callable[[int], str],
) -> None:
    if not stack.frames:
        return
    thread.role = resolver.role_of(stack.frames[-1].code)
    if thread.role != abi.Role.HUB:
        return
    thread.has_hub = abi.Hub.SEEN
    if resolver.is_idle(stack, syscall_name(thread.off_nr)):
        thread.idle = 1
