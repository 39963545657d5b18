"""Line numbers from CPython's compressed tables.

3.11 and later: co_linetable, a list of entries that each cover 1 to 8 code units of 2 bytes
(Objects/locations.md in 3.11, InternalDocs/code_objects.md later).
"""

from __future__ import annotations

from collections.abc import Iterator

_CODE_UNIT = 2
_NO_LOCATION = 15
_LONG = 14
_NO_COLUMNS = 13
_ONE_LINE_LAST = 12
_ONE_LINE_FIRST = 10


def _signed_varint(data: Iterator[int]) -> int:
    """Six bits a byte, least significant first, bit 6 says that more follow; sign in bit 0."""
    byte = next(data)
    value, shift = byte & 63, 0
    while byte & 64:
        byte = next(data)
        shift += 6
        value |= (byte & 63) << shift
    return -(value >> 1) if value & 1 else value >> 1


def _skip_varint(data: Iterator[int]) -> None:
    while next(data) & 64:
        pass


def line_at(table: bytes, first_line: int, instr_offset: int) -> int:
    """The line of the instruction `instr_offset` bytes into the code; 0 where it has none.

    A damaged table gives 0.
    """
    data = iter(table)
    line, end = first_line, 0
    try:
        for first in data:
            kind = first >> 3 & 15
            end += ((first & 7) + 1) * _CODE_UNIT
            line += _line_delta(kind, data)
            if instr_offset < end:
                return 0 if kind == _NO_LOCATION else line
    except StopIteration:
        return 0
    return 0


def _line_delta(kind: int, data: Iterator[int]) -> int:
    """Reads the rest of an entry; the columns are passed over."""
    if kind == _NO_LOCATION:
        return 0
    if kind in (_LONG, _NO_COLUMNS):
        delta = _signed_varint(data)
        if kind == _LONG:
            for _ in range(3):  # end line, column, end column
                _skip_varint(data)
        return delta
    next(data)
    if kind < _ONE_LINE_FIRST:
        return 0
    next(data)
    return kind - _ONE_LINE_FIRST
