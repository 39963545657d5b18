"""Code objects read out of memory: of this very process, and of images that are damaged."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import CodeType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenscope.model import Code, CodeOrigin
from greenscope.offsets.rows import ROWS
from greenscope.offsets.table import InstrKind
from greenscope.rebuild.code import MAX_TEXT_CHARS, read_bytes, read_code, read_text
from greenscope.target.memory import LiveMemory, RecordedMemory

OFFSETS = ROWS[3, 11]
on_3_11 = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="the objects of this interpreter lie otherwise"
)
LONG_NAME = "function_" + "n" * 191
LONG_PATH = "/srv/" + "directory/" * 29 + "ab.py"
BASE = 0x7F00_0000_0000


@pytest.fixture
def memory() -> Iterator[LiveMemory]:
    with LiveMemory(os.getpid()) as live:
        yield live


def make_code(name: str = "f", file: str = "/srv/app.py") -> CodeType:
    source = f"\n\ndef {name}():\n    g()\n    return [\n        h()]\n"
    [code] = [c for c in compile(source, file, "exec").co_consts if isinstance(c, CodeType)]
    return code


CODE = make_code()


@on_3_11
def test_code_object_is_named_with_its_file_and_first_line(memory: LiveMemory) -> None:
    code = CODE
    found = read_code(memory, id(code), OFFSETS)
    assert found is not None
    assert found.code == Code("f", "/srv/app.py", 3, CodeOrigin.APPLICATION)
    assert found.line_table == code.co_linetable
    assert memory.read(found.instructions_addr, len(code.co_code)) is not None


@on_3_11
def test_method_has_its_qualified_name(memory: LiveMemory) -> None:
    class Shop:
        def sell(self) -> None:
            pass

    found = read_code(memory, id(Shop.sell.__code__), OFFSETS)
    assert found is not None
    assert found.code.function == Shop.sell.__qualname__


@on_3_11
@pytest.mark.parametrize("name", ["f", "größe", "имя", "名前", "𐐀", LONG_NAME])
@pytest.mark.parametrize("file", ["/srv/app.py", "/srv/ünï/м.py", "/srv/𐐀/é.py", LONG_PATH])
def test_names_and_paths_come_out_whole(memory: LiveMemory, name: str, file: str) -> None:
    """Case S10: 200 and 300 characters, and any alphabet."""
    assert (len(LONG_NAME), len(LONG_PATH)) == (200, 300)
    code = make_code(name, file)
    found = read_code(memory, id(code), OFFSETS)
    assert found is not None
    assert (found.code.function, found.code.file) == (code.co_qualname, file)


@on_3_11
def test_address_of_an_instruction_becomes_its_line(memory: LiveMemory) -> None:
    code = CODE
    found = read_code(memory, id(code), OFFSETS)
    assert found is not None
    for start, end, line in code.co_lines():
        for offset in range(start, end, 2):
            assert found.line(found.instructions_addr + offset) == line


@on_3_11
def test_frame_before_its_first_instruction_is_at_the_def_line(memory: LiveMemory) -> None:
    found = read_code(memory, id(CODE), OFFSETS)
    assert found is not None
    assert found.line(found.instructions_addr - 2) == 3


@on_3_11
def test_index_of_an_instruction_becomes_its_line(memory: LiveMemory) -> None:
    found = read_code(memory, id(CODE), replace(OFFSETS, instr_kind=InstrKind.INDEX))
    assert found is not None
    assert [found.line(offset) for offset in (0, 2)] == [3, 4]


@on_3_11
def test_address_outside_of_the_code_has_no_line(memory: LiveMemory) -> None:
    found = read_code(memory, id(CODE), OFFSETS)
    assert found is not None
    assert found.line(found.instructions_addr + (1 << 20)) == 0


@on_3_11
@pytest.mark.parametrize("thing", [None, 5, b"bytes", ["list"], object])
def test_other_object_is_no_code(memory: LiveMemory, thing: object) -> None:
    found = read_code(memory, id(thing), OFFSETS)
    assert found is None or isinstance(found.code.function, str)


@on_3_11
@pytest.mark.parametrize(
    "text", ["", "ascii", "latin é", "ucs2 €", "ucs4 𐐀", "\ud800 alone", "\ud801\udc00 two"]
)
def test_text_of_every_width_is_read(memory: LiveMemory, text: str) -> None:
    # A lone surrogate is no text that could be written anywhere: escaped as Python does.
    expected = text.encode("utf-8", "backslashreplace").decode("utf-8")
    assert read_text(memory, id(text), OFFSETS) == expected


@on_3_11
def test_text_longer_than_any_name_is_none(memory: LiveMemory) -> None:
    longest, longer = "x" * MAX_TEXT_CHARS, "x" * (MAX_TEXT_CHARS + 1)
    assert read_text(memory, id(longest), OFFSETS) == longest
    assert read_text(memory, id(longer), OFFSETS) is None


@on_3_11
@pytest.mark.parametrize("data", [b"", b"table", bytes(range(256)) * 100])
def test_bytes_are_read(memory: LiveMemory, data: bytes) -> None:
    assert read_bytes(memory, id(data), OFFSETS) == data


@pytest.mark.parametrize("size", [1 << 23, (1 << 63) - 1, (1 << 64) - 1])
def test_bytes_of_an_absurd_size_are_none(size: int) -> None:
    head = bytes(OFFSETS.bytes_size) + size.to_bytes(8, "little")
    memory = RecordedMemory({BASE: head + bytes(100)})
    assert read_bytes(memory, BASE, OFFSETS) is None


def test_nothing_is_read_of_a_freed_object() -> None:
    assert read_code(RecordedMemory({}), BASE, OFFSETS) is None


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    page=st.binary(min_size=600, max_size=600),
    pointers=st.lists(st.integers(0, 590), min_size=3, max_size=3),
)
def test_garbage_gives_none_or_some_text_but_no_exception(page: bytes, pointers: list[int]) -> None:
    image = bytearray(page)
    fields = (OFFSETS.code_filename, OFFSETS.code_qualname, OFFSETS.code_line_table)
    for field, target in zip(fields, pointers, strict=True):
        assert field is not None
        image[field : field + 8] = (BASE + target).to_bytes(8, "little")
    found = read_code(RecordedMemory({BASE: bytes(image)}), BASE, OFFSETS)
    if found is not None:
        assert len(found.code.function) <= MAX_TEXT_CHARS
        assert len(found.line_table) <= len(page)
        assert isinstance(found.line(found.instructions_addr), int)


def words_of_this_process() -> list[int]:
    """Addresses at which something else than code objects lies."""
    things = ctypes.create_string_buffer(4096)
    return [ctypes.addressof(things) + offset for offset in range(0, 512, 8)]


def test_addresses_in_the_middle_of_other_memory_do_no_harm(memory: LiveMemory) -> None:
    assert {read_code(memory, address, OFFSETS) for address in words_of_this_process()} == {None}
