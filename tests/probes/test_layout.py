"""probes/*.h and greenscope/bpf/abi.py describe the same structs, enums and flags."""

from __future__ import annotations

import ctypes
import enum
import re
import struct
from pathlib import Path

import pytest

from greenscope.bpf import abi
from greenscope.rebuild.frames import MAX_FRAMES
from tests.probes.c_source import (
    SHARED_HEADERS,
    Field,
    enum_definition,
    enum_names,
    evaluate,
    flag_names,
    header_text,
    needs_compiler,
    struct_fields,
)

pytestmark = needs_compiler

TEXT = "\n".join(map(header_text, SHARED_HEADERS))
STRUCTS = struct_fields(TEXT)
ENUMS = enum_names(TEXT)

MIRRORED: dict[str, type[ctypes.Structure]] = {
    "gs_target": abi.Target,
    "gs_watch": abi.Watch,
    "gs_thread": abi.Thread,
    "gs_greenlet_key": abi.GreenletKey,
    "gs_greenlet": abi.Greenlet,
    "gs_usdt_arg": abi.UsdtArg,
    "gs_place": abi.Place,
}
PACKED = {
    "gs_event": abi.EVENT,
    "gs_frame": abi.FRAME,
    "gs_stack_header": abi.STACK_HEADER,
}
MIRRORED_ENUMS: dict[str, tuple[type[enum.IntEnum], str]] = {
    "gs_event_kind": (abi.EventKind, "GS_EVENT_"),
    "gs_off_kind": (abi.OffKind, "GS_OFF_"),
    "gs_role": (abi.Role, "GS_ROLE_"),
    "gs_hub": (abi.Hub, "GS_HUB_"),
    "gs_wait_stacks": (abi.WaitStacks, "GS_WAITS_"),
    "gs_walk_status": (abi.WalkStatus, "GS_WALK_"),
    "gs_usdt_kind": (abi.UsdtKind, "GS_USDT_"),
}


def fields_in_c(directory: Path, name: str) -> tuple[int, list[Field]]:
    """Size and fields of a struct as the compiler sees them."""
    fields = STRUCTS[name]
    whole = f"sizeof(struct {name})"
    offsets = [f"offsetof(struct {name}, {field})" for _, field in fields]
    sizes = [f"sizeof(((struct {name} *)0)->{field})" for _, field in fields]
    values = evaluate(directory, [whole, *offsets, *sizes])
    return values[whole], [
        Field(field, values[offset], values[size], kind in ("s32", "s64"))
        for (kind, field), offset, size in zip(fields, offsets, sizes, strict=True)
    ]


def fields_in_ctypes(mirror: type[ctypes.Structure]) -> list[Field]:
    fields = []
    for name, kind, *_ in mirror._fields_:
        place = getattr(mirror, name)
        fields.append(
            Field(name, place.offset, place.size, kind in (ctypes.c_int32, ctypes.c_int64))
        )
    return fields


def fields_in_format(layout: struct.Struct) -> list[tuple[int, int, bool]]:
    """(offset, size, signed) of what a struct format unpacks."""
    assert layout.format[0] == "<"
    offset, fields = 0, []
    for count, code in re.findall(r"(\d*)([a-zA-Z])", layout.format):
        size = struct.calcsize(f"<{code}")
        for _ in range(int(count or 1)):
            fields.append((offset, size, code.islower()))
            offset += size
    return fields


def test_every_shared_struct_has_a_mirror() -> None:
    assert set(STRUCTS) == MIRRORED.keys() | PACKED.keys()


@pytest.mark.parametrize("name", MIRRORED)
def test_ctypes_structure_has_the_fields_of_the_header(name: str, tmp_path: Path) -> None:
    size, fields = fields_in_c(tmp_path, name)
    assert fields_in_ctypes(MIRRORED[name]) == fields
    assert ctypes.sizeof(MIRRORED[name]) == size


@pytest.mark.parametrize("name", PACKED)
def test_struct_format_unpacks_the_fields_of_the_header(name: str, tmp_path: Path) -> None:
    size, fields = fields_in_c(tmp_path, name)
    assert fields_in_format(PACKED[name]) == [field[1:] for field in fields]
    assert PACKED[name].size == size


def test_event_names_its_fields_as_the_header_does() -> None:
    assert list(abi.Event._fields) == [name for _, name in STRUCTS["gs_event"]]


def test_no_shared_struct_has_padding_of_the_compiler(tmp_path: Path) -> None:
    # What is not a field is not initialised, and the verifier refuses to send it.
    for name in STRUCTS:
        size, fields = fields_in_c(tmp_path, name)
        assert sum(field.size for field in fields) == size, name


def test_every_shared_enum_has_a_mirror() -> None:
    assert set(ENUMS) == set(MIRRORED_ENUMS)


@pytest.mark.parametrize("name", MIRRORED_ENUMS)
def test_enum_has_the_values_of_the_header(name: str, tmp_path: Path) -> None:
    mirror, prefix = MIRRORED_ENUMS[name]
    values = evaluate(tmp_path, ENUMS[name])
    assert {prefix + member.name: member.value for member in mirror} == values


def test_losses_have_the_values_of_the_maps_file(tmp_path: Path) -> None:
    definition = enum_definition("maps.bpf.c", "gs_loss")
    names = enum_names(definition)["gs_loss"]
    values = evaluate(tmp_path, names, definition)
    assert values.pop("GS_LOST_KINDS") == len(abi.LossKind)
    assert {f"GS_LOST_{kind.name}": kind.value for kind in abi.LossKind} == values


def test_flags_have_the_values_of_the_header(tmp_path: Path) -> None:
    ours = {f"GS_{name}": value for name, value in vars(abi).items() if name.startswith("FLAG_")}
    assert ours == evaluate(tmp_path, flag_names(TEXT))


def test_stack_record_is_a_header_and_its_frames_behind_it(tmp_path: Path) -> None:
    walk = "#define gs_read_user(dst, size, addr) ((void)(dst), (void)(addr), (size) != 0)\n"
    frames, most = "offsetof(struct gs_walk, frames)", "GS_MAX_FRAMES"
    values = evaluate(tmp_path, [frames, most], walk + '#include "gs_walk.h"')
    assert values == {frames: abi.STACK_HEADER.size, most: MAX_FRAMES}
