"""Events as the kernel side sends them."""

from __future__ import annotations

from greenscope.bpf import abi

TID = 100
GREENLET = 7000
_NOTHING = abi.Event(
    kind=0,
    flags=0,
    off_kind=0,
    pad=0,
    nr=-1,
    tid=TID,
    tgid=TID,
    ktime_ns=0,
    hold_id=1,
    stack_id=0,
    duration_ns=0,
    greenlet_id=GREENLET,
    blocked_ns=0,
    preempted_ns=0,
    gc_ns=0,
)


def hold_event(duration_ns: int, **fields: int) -> abi.Event:
    """A HOLD that ended at an instant."""
    return _NOTHING._replace(kind=abi.EventKind.HOLD, duration_ns=duration_ns, **fields)


def sample_event(stack_id: int, **fields: int) -> abi.Event:
    return _NOTHING._replace(kind=abi.EventKind.SAMPLE, stack_id=stack_id, **fields)


def block_event(stack_id: int, duration_ns: int, **fields: int) -> abi.Event:
    """A BLOCK, by default one that gave up the CPU by itself."""
    event = _NOTHING._replace(
        kind=abi.EventKind.BLOCK,
        off_kind=abi.OffKind.BLOCKED,
        stack_id=stack_id,
        duration_ns=duration_ns,
    )
    return event._replace(**fields)


def end_event(greenlet_id: int, **fields: int) -> abi.Event:
    event = _NOTHING._replace(kind=abi.EventKind.GREENLET_END, greenlet_id=greenlet_id, hold_id=0)
    return event._replace(**fields)
