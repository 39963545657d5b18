"""What the threads of a target do at the moment when the watch begins.

No probe fires for a thread that is already blocked or idle, so its stack is walked here from
outside. A thread that runs tells by itself, at the next tick of the sampler or switch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from greenscope.bpf import abi
from greenscope.model import Stack
from greenscope.offsets.program import Program
from greenscope.rebuild.frames import walk_thread
from greenscope.rebuild.stacks import StackResolver, role_of
from greenscope.target.memory import ProcessMemory
from greenscope.target.process import thread_ids, thread_ns_ids, thread_syscall

# The kernel side's ids are odd.
_FIRST_STACK_ID = 2


@dataclass(frozen=True, slots=True)
class FirstLook:
    """One thread at the begin: the state for the kernel side's map, and its outermost code.

    `tid` is the one of our own PID namespace.
    `outermost_code` is 0 where the thread ran or had no frame.
    """

    tid: int
    thread: abi.Thread
    outermost_code: int


def first_look(
    program: Program,
    memory: ProcessMemory,
    resolver: StackResolver,
    syscall_name: Callable[[int], str],
    now_ns: int,
) -> list[FirstLook]:
    """All threads that may have a hub: the main thread, and those found in one."""
    looks = []
    pid = program.process.pid
    # The interpreter knows its threads by their ids in its own PID namespace.
    host_tids = {thread_ns_ids(pid, tid)[-1]: tid for tid in thread_ids(pid)}
    for index, (own_tid, tstate) in enumerate(program.thread_states(memory).items()):
        tid = host_tids.get(own_tid)
        if tid is None:
            continue
        thread = abi.Thread(
            tstate=tstate,
            tgid=pid,
            hold_start_ns=now_ns,
            off_nr=-1,
            began_before=1,
            stack_wanted=1,
        )
        if tid == pid and program.has_gevent:
            thread.has_hub = abi.Hub.ASSUMED
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
            _set_role(thread, stack, syscall_name)
        looks.append(FirstLook(tid, thread, outermost))
    return looks


def _set_role(thread: abi.Thread, stack: Stack, syscall_name: Callable[[int], str]) -> None:
    if not stack.frames:
        return
    thread.role = role_of(stack.frames[-1].code)
    if thread.role != abi.Role.HUB:
        return
    thread.has_hub = abi.Hub.SEEN
    polls = syscall_name(thread.off_nr) in abi.POLLS
    if polls and role_of(stack.frames[0].code) in (abi.Role.HUB, abi.Role.LOOP):
        thread.idle = 1
