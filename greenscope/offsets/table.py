"""Offsets of the CPython fields that greenscope reads, one row per minor version.

Struct layout is stable within a minor version (the ABI of a release branch is frozen). The
rows are generated from the headers by `python -m greenscope.offsets.generate`; nothing here
guesses a neighbour's row.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields

from greenscope.errors import UnsupportedInterpreter

# A field further into a struct than this is a broken row: the largest one read, in
# PyInterpreterState, lies below 1 KiB from its start, _PyRuntimeState's below 4 KiB.
MAX_OFFSET = 8192
# The BPF side copies at most this much of a frame (GS_MAX_FRAME_SPAN in gs_walk.h).
MAX_FRAME_SPAN = 255


class InstrKind(enum.IntEnum):
    """What a frame keeps as its place in the code (enum gs_instr_kind)."""

    POINTER = 0  # address of the code unit that runs or ran last
    INDEX = 1  # f_lasti


@dataclass(frozen=True, slots=True)
class InterpreterOffsets:
    """Byte offsets; None where this version has no such field."""

    runtime_tstate_current: int | None
    runtime_interpreters_head: int
    interp_next: int
    interp_threads_head: int
    tstate_next: int
    tstate_native_thread_id: int | None
    tstate_frame: int
    tstate_version: int
    cframe_frame: int | None
    frame_code: int
    frame_previous: int
    frame_instr: int
    frame_owner: int | None
    shim_owner: int | None
    instr_kind: InstrKind
    code_filename: int
    code_name: int
    code_qualname: int | None
    code_first_line: int
    code_line_table: int
    code_instructions: int
    unicode_length: int
    unicode_state: int
    unicode_ascii_size: int
    unicode_compact_size: int
    bytes_size: int
    bytes_data: int
    object_size: int
    object_type: int
    type_dict: int
    type_mro: int
    tuple_size: int
    tuple_items: int
    function_code: int
    module_dict: int
    interp_modules: int
    tstate_dict: int
    dict_keys: int
    dict_values: int
    values_items: int
    keys_log2_index_bytes: int
    keys_kind: int
    keys_nentries: int
    keys_indices: int

    @property
    def frame_span(self) -> int:
        """Bytes of a frame up to the end of the last field that is read."""
        ends = [self.frame_code + 8, self.frame_previous + 8, self.frame_instr + 8]
        if self.frame_owner is not None:
            ends.append(self.frame_owner + 1)
        return (max(ends) + 7) & ~7

    def check(self) -> None:
        """Raises ValueError when a field lies out of bounds. Called once, at attach."""
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, int) and not 0 <= value < MAX_OFFSET:
                raise ValueError(f"offset {item.name} = {value} is out of bounds")
        if self.frame_span > MAX_FRAME_SPAN:
            raise ValueError(f"a frame of {self.frame_span} bytes is too large")


def offsets_for(
    version: tuple[int, int], rows: dict[tuple[int, int], InterpreterOffsets]
) -> InterpreterOffsets:
    """The row of one minor version.

    Raises:
        UnsupportedInterpreter: there is no row for it.
    """
    row = rows.get(version)
    if row is None:
        known = ", ".join(f"{major}.{minor}" for major, minor in sorted(rows))
        raise UnsupportedInterpreter(
            f"unsupported CPython {version[0]}.{version[1]}",
            f"This greenscope knows CPython {known}. A newer release may know more.",
        )
    row.check()
    return row
