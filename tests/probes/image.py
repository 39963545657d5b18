"""Frames in a made-up memory, and the C walker on it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from greenscope.bpf import abi
from greenscope.offsets.table import InstrKind, InterpreterOffsets
from greenscope.rebuild.frames import RawStack, decode_stack
from greenscope.target.memory import RecordedMemory
from tests.probes.c_source import compile_c

PAGE = 4096
WORD = 8
TGID = 4242
TSTATE = 0x7F00_0000_1000
CFRAME = 0x7F00_0000_2010  # on the C stack
FRAMES = 0x7F00_1000_0000  # the interpreter's data stack begins here
CODES = 0x5500_0000_0000  # the code objects; nothing reads them
CANARY = b"\xa5" * 64


class ImageFrame(NamedTuple):
    """An interpreter frame; `addr` is where it lies, `previous` the address of its caller."""

    addr: int
    code: int
    instr: int
    owner: int = 0
    previous: int = 0


@dataclass(slots=True)
class Image:
    """Whole pages of memory, made when something is first written to them."""

    offsets: InterpreterOffsets
    pages: dict[int, bytearray] = field(default_factory=dict, repr=False)

    def write(self, addr: int, data: bytes) -> None:
        while data:
            page = self.pages.setdefault(addr & -PAGE, bytearray(PAGE))
            offset = addr & PAGE - 1
            part, data = data[: PAGE - offset], data[PAGE - offset :]
            page[offset : offset + len(part)] = part
            addr += len(part)

    def write_word(self, addr: int, value: int) -> None:
        self.write(addr, (value & (1 << 64) - 1).to_bytes(WORD, "little"))

    def unmap(self, addr: int) -> None:
        """Takes away the page that holds an address."""
        self.pages.pop(addr & -PAGE, None)

    def put_frame(self, frame: ImageFrame) -> None:
        offsets = self.offsets
        self.write_word(frame.addr + offsets.frame_code, frame.code)
        self.write_word(frame.addr + offsets.frame_instr, frame.instr)
        self.write_word(frame.addr + offsets.frame_previous, frame.previous)
        if offsets.frame_owner is not None:
            self.write(frame.addr + offsets.frame_owner, bytes([frame.owner]))

    def put_thread(self, innermost: int) -> int:
        """A thread state whose innermost frame is at `innermost`; gives its address."""
        if self.offsets.cframe_frame is None:
            self.write_word(TSTATE + self.offsets.tstate_frame, innermost)
        else:
            self.write_word(TSTATE + self.offsets.tstate_frame, CFRAME)
            self.write_word(CFRAME + self.offsets.cframe_frame, innermost)
        return TSTATE

    def put_stack(self, addrs: Sequence[int], owners: Sequence[int] = ()) -> int:
        """Frames at these addresses, innermost first; gives the address of a thread state."""
        for depth, (addr, previous) in enumerate(zip(addrs, [*addrs, 0][1:], strict=True)):
            owner = owners[depth] if owners else 0
            code, instr = place(depth)
            self.put_frame(ImageFrame(addr, code, instr, owner, previous))
        return self.put_thread(addrs[0] if addrs else 0)

    def memory(self) -> RecordedMemory:
        return RecordedMemory({base: bytes(page) for base, page in self.pages.items()})


def place(depth: int) -> tuple[int, int]:
    """(code address, instruction) of the frame at this depth of `put_stack`."""
    code = CODES + depth * 0x200
    return code, code + 184 + 2 * depth


def target_of(offsets: InterpreterOffsets) -> abi.Target:
    """What the tracer tells the kernel side of an interpreter."""
    is_pointer = offsets.instr_kind is InstrKind.POINTER
    return abi.Target(
        instr_mask=(1 << 64) - 1 if is_pointer else (1 << 32) - 1,
        tstate_frame=offsets.tstate_frame,
        cframe_frame=-1 if offsets.cframe_frame is None else offsets.cframe_frame,
        frame_code=offsets.frame_code,
        frame_previous=offsets.frame_previous,
        frame_instr=offsets.frame_instr,
        frame_owner=0 if offsets.frame_owner is None else offsets.frame_owner,
        shim_owner=abi.NO_SHIM if offsets.shim_owner is None else offsets.shim_owner,
        frame_span=offsets.frame_span,
    )


class HostPage(ctypes.Structure):
    """struct host_page."""

    _fields_ = (("base", ctypes.c_uint64), ("bytes", ctypes.c_char_p))


@dataclass(frozen=True, slots=True)
class Walked:
    """A walk by the C code: its record as the agent decodes it, and what it took."""

    stack: RawStack
    owners: tuple[int, ...]
    tgid: int
    runs: int
    reads: int


class HostWalker:
    """probes/gs_walk.h compiled for the host."""

    def __init__(self, directory: Path) -> None:
        library = directory / "host_walk.so"
        compile_c(Path(__file__).with_name("host_walk.c"), library, "-shared", "-fPIC")
        self._library = ctypes.CDLL(str(library))
        self._library.host_walk_size.restype = ctypes.c_uint64
        self._library.host_read_count.restype = ctypes.c_uint64
        self._size = self._library.host_walk_size()
        # One scratch for all walks, as in the kernel: what is left of the last must not matter.
        self._walk = ctypes.create_string_buffer(bytes(self._size) + CANARY)

    def walk(self, image: Image, tstate: int) -> Walked:
        offsets = image.offsets
        contents = [HostPage(base, bytes(page)) for base, page in image.pages.items()]
        pages = (HostPage * len(contents))(*contents)
        runs = self._library.host_walk(
            self._walk,
            ctypes.byref(target_of(offsets)),
            ctypes.c_uint64(tstate),
            TGID,
            pages,
            ctypes.c_uint64(len(contents)),
        )
        record = self._walk.raw
        assert record[self._size : self._size + len(CANARY)] == CANARY
        _, _, tgid, count, _, _, _ = abi.STACK_HEADER.unpack_from(record)
        size = abi.STACK_HEADER.size
        frames = abi.FRAME.iter_unpack(record[size : size + count * abi.FRAME.size])
        return Walked(
            stack=decode_stack(record, offsets.shim_owner),
            owners=tuple(code & 7 for code, _ in frames),
            tgid=tgid,
            runs=runs,
            reads=self._library.host_read_count(),
        )
