"""Stacks as addresses: decoded from the kernel's walk, or walked in the target's memory.

The second is for the moments at which no probe fires: a thread that is already blocked when
the watch begins, and one that still is when it ends.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from greenscope.bpf import abi
from greenscope.offsets.table import InstrKind, InterpreterOffsets
from greenscope.target.memory import ProcessMemory
from greenscope.target.threads import read_pointer

MAX_FRAMES = 1024
_OWNER_MASK = 7


@dataclass(frozen=True, slots=True)
class RawStack:
    """Frames innermost first, as (code address, instruction); shims are left out.

    `outermost_code` is 0 where the stack has no frame. `tick_tid` is the thread that the sampler
    met there at a tick, of which no event tells; 0: none.
    """

    stack_id: int
    outermost_code: int
    frames: tuple[tuple[int, int], ...]
    status: abi.WalkStatus
    tick_tid: int = 0


def decode_stack(record: bytes, shim_owner: int | None) -> RawStack:
    """A record of the stack ring; its sizes are the kernel side's, which bounds them."""
    stack_id, outermost, _, count, status, tick_tid, _ = abi.STACK_HEADER.unpack_from(record)
    body = record[abi.STACK_HEADER.size : abi.STACK_HEADER.size + count * abi.FRAME.size]
    frames = tuple(
        (code & ~_OWNER_MASK, instr)
        for code, instr in abi.FRAME.iter_unpack(body)
        if shim_owner is None or code & _OWNER_MASK < shim_owner
    )
    return RawStack(stack_id, outermost, frames, abi.WalkStatus(status), tick_tid)


def walk_thread(memory: ProcessMemory, tstate: int, offsets: InterpreterOffsets) -> RawStack:
    """Walks a thread's frames from outside. Only a thread that does not run holds still.

    The stack's id is 0: it is not one that the kernel side knows.
    """
    frames: list[tuple[int, int]] = []
    status = abi.WalkStatus.COMPLETE
    frame = _first_frame(memory, tstate, offsets)
    # Shims count too, as they do in the kernel: a cycle of nothing else must end.
    for _ in range(MAX_FRAMES):
        if not frame:
            break
        data = memory.read(frame, offsets.frame_span)
        if data is None:
            frame = None
            break
        code = _word(data, offsets.frame_code) & ~_OWNER_MASK
        instr = _word(data, offsets.frame_instr)
        if offsets.instr_kind is InstrKind.INDEX:
            instr &= 0xFFFFFFFF
        owner = 0 if offsets.frame_owner is None else data[offsets.frame_owner] & _OWNER_MASK
        if offsets.shim_owner is None or owner < offsets.shim_owner:
            frames.append((code, instr))
        frame = _word(data, offsets.frame_previous)
    if frame is None:
        status = abi.WalkStatus.UNREADABLE
    elif frame:
        status = abi.WalkStatus.TRUNCATED
    return RawStack(0, frames[-1][0] if frames else 0, tuple(frames), status)


def _first_frame(memory: ProcessMemory, tstate: int, offsets: InterpreterOffsets) -> int | None:
    frame = read_pointer(memory, tstate + offsets.tstate_frame)
    if frame and offsets.cframe_frame is not None:
        frame = read_pointer(memory, frame + offsets.cframe_frame)
    return frame


def _word(data: bytes, offset: int) -> int:
    return int(struct.unpack_from("<Q", data, offset)[0])
