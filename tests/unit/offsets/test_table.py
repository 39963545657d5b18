"""The table of offsets: bounds, and versions that it does not know."""

from __future__ import annotations

import dataclasses

import pytest

from greenscope.errors import UnsupportedInterpreter
from greenscope.offsets.rows import ROWS
from greenscope.offsets.table import (
    MAX_FRAME_SPAN,
    MAX_OFFSET,
    InstrKind,
    InterpreterOffsets,
    offsets_for,
)

ROW = ROWS[3, 11]


def changed(**fields: int | None) -> InterpreterOffsets:
    return dataclasses.replace(ROW, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ROWS)
def test_every_row_is_within_bounds(version: tuple[int, int]) -> None:
    assert offsets_for(version, ROWS) is ROWS[version]


@pytest.mark.parametrize("version", [(3, 6), (3, 99), (2, 7), (4, 0)])
def test_unknown_version_is_an_error_of_its_own(version: tuple[int, int]) -> None:
    """Case S9: a new minor version must not give silence."""
    with pytest.raises(UnsupportedInterpreter) as caught:
        offsets_for(version, ROWS)
    assert caught.value.message == f"unsupported CPython {version[0]}.{version[1]}"
    assert caught.value.exit_code == 5
    known = ", ".join(f"{major}.{minor}" for major, minor in sorted(ROWS))
    assert caught.value.hint.startswith(f"This greenscope knows CPython {known}.")


def test_neighbouring_version_is_not_guessed() -> None:
    with pytest.raises(UnsupportedInterpreter):
        offsets_for((3, 12), {(3, 11): ROW, (3, 13): ROW})


@pytest.mark.parametrize("value", [-1, MAX_OFFSET, 1 << 40])
@pytest.mark.parametrize(
    "field", [field.name for field in dataclasses.fields(ROW) if field.name != "instr_kind"]
)
def test_field_out_of_bounds_is_refused_by_its_name(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"^offset {field} = {value} is out of bounds$"):
        changed(**{field: value}).check()


def test_absent_fields_are_in_bounds() -> None:
    changed(
        runtime_tstate_current=None,
        tstate_native_thread_id=None,
        cframe_frame=None,
        frame_owner=None,
        shim_owner=None,
        code_qualname=None,
    ).check()


def test_row_is_checked_when_it_is_asked_for() -> None:
    with pytest.raises(ValueError, match="frame_code"):
        offsets_for((3, 11), {(3, 11): changed(frame_code=-8)})


@pytest.mark.parametrize(
    ("fields", "span"),
    [
        ({}, 72),  # up to the owner at 69
        ({"frame_owner": None}, 64),
        ({"frame_code": 96}, 104),
        ({"frame_owner": 104}, 112),
        ({"frame_previous": 57, "frame_owner": None}, 72),
    ],
)
def test_span_of_a_frame_ends_behind_its_last_field(
    fields: dict[str, int | None], span: int
) -> None:
    assert changed(**fields).frame_span == span


def test_frame_that_the_kernel_side_cannot_copy_is_refused() -> None:
    largest = changed(frame_previous=MAX_FRAME_SPAN - 15)
    assert largest.frame_span <= MAX_FRAME_SPAN
    largest.check()
    with pytest.raises(ValueError, match=r"^a frame of 256 bytes is too large$"):
        changed(frame_previous=MAX_FRAME_SPAN - 7).check()


def test_kinds_of_instruction_are_those_of_the_kernel_side() -> None:
    assert {kind.name: kind.value for kind in InstrKind} == {"POINTER": 0, "INDEX": 1}
