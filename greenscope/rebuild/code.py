"""Naming code objects from the target's memory.

Everything read here is untrusted: the object may be gone, or be another one by now. Lengths
are bounded, and what does not look like a code object gives None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from greenscope.model import Code
from greenscope.offsets.table import InstrKind, InterpreterOffsets
from greenscope.rebuild.lines import line_at
from greenscope.rebuild.origin import code_origin
from greenscope.records.text import without_surrogates
from greenscope.target.memory import ProcessMemory
from greenscope.target.threads import read_pointer

MAX_TEXT_CHARS = 1 << 16
MAX_TABLE_BYTES = 1 << 22

# PyASCIIObject.state (Include/cpython/unicodeobject.h, 3.8 to 3.13): interned:2 kind:3
# compact:1 ascii:1. 3.8 to 3.11 the same; 3.12 dropped `ready` behind them.
_KIND_SHIFT = 2
_KIND_MASK = 7
_COMPACT = 1 << 5
_ASCII = 1 << 6
_UNITS: dict[int, Literal["B", "H", "I"]] = {1: "B", 2: "H", 4: "I"}


@dataclass(frozen=True, slots=True)
class CodeObject:
    """A named code object; `instructions_addr` is where its code units begin."""

    code: Code
    line_table: bytes
    instructions_addr: int
    instr_kind: InstrKind

    def line(self, instr: int) -> int:
        """The line of a frame that keeps `instr` (an address or an index), 0 if unknown."""
        if self.instr_kind is InstrKind.POINTER:
            # Before the first instruction prev_instr points one unit ahead of the code
            # (Python 3.11, _PyFrame_PushUnchecked): that is the def line.
            instr -= self.instructions_addr
        if instr < 0:
            return self.code.first_line
        return line_at(self.line_table, self.code.first_line, instr)


def read_text(memory: ProcessMemory, address: int, offsets: InterpreterOffsets) -> str | None:
    r"""A str object of the target, None when it does not look like one.

    A lone surrogate, as in a file name that is not UTF-8, comes out as `\ud800`.
    """
    head = memory.read(address, offsets.unicode_ascii_size)
    if head is None:
        return None
    length = int.from_bytes(head[offsets.unicode_length : offsets.unicode_length + 8], "little")
    state = int.from_bytes(head[offsets.unicode_state : offsets.unicode_state + 4], "little")
    kind = state >> _KIND_SHIFT & _KIND_MASK
    if not state & _COMPACT or kind not in _UNITS or length > MAX_TEXT_CHARS:
        return None
    start = offsets.unicode_ascii_size if state & _ASCII else offsets.unicode_compact_size
    data = memory.read(address + start, length * kind) if length else b""
    if data is None:
        return None
    # One by one: two surrogates side by side are two characters for Python, not one of UTF-16.
    try:
        text = "".join(map(chr, memoryview(data).cast(_UNITS[kind])))
    except (ValueError, OverflowError):
        return None  # no characters
    return without_surrogates(text)


def read_bytes(memory: ProcessMemory, address: int, offsets: InterpreterOffsets) -> bytes | None:
    """A bytes object of the target, None when it does not look like one."""
    size = read_pointer(memory, address + offsets.bytes_size)
    if size is None or size > MAX_TABLE_BYTES:
        return None
    return memory.read(address + offsets.bytes_data, size) if size else b""


def read_code(
    memory: ProcessMemory, code_addr: int, offsets: InterpreterOffsets
) -> CodeObject | None:
    """The code object at an address, None when there is none (any more)."""
    name_field = offsets.code_name if offsets.code_qualname is None else offsets.code_qualname
    texts = []
    for field in (offsets.code_filename, name_field):
        pointer = read_pointer(memory, code_addr + field)
        texts.append(read_text(memory, pointer, offsets) if pointer else None)
    table_addr = read_pointer(memory, code_addr + offsets.code_line_table)
    table = read_bytes(memory, table_addr, offsets) if table_addr else None
    first_line = memory.read(code_addr + offsets.code_first_line, 4)
    file, function = texts
    if file is None or function is None or table is None or first_line is None:
        return None
    return CodeObject(
        code=Code(function, file, int.from_bytes(first_line, "little"), code_origin(file)),
        line_table=table,
        instructions_addr=code_addr + offsets.code_instructions,
        instr_kind=offsets.instr_kind,
    )
