"""The reader on the running interpreter, on small files made by hand, and on damaged ones."""

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from greenscope.target import bounded_file
from greenscope.target.elf import ENDBR64, MACHINE_X86_64, ElfError, ElfImage, Symbol, UsdtProbe

TEXT_ADDRESS, TEXT_OFFSET = 0x401000, 0x1000
SHT_SYMTAB, SHT_STRTAB, SHT_NOTE, SHT_DYNSYM, SHT_PROGBITS = 2, 3, 7, 11, 1
SHT_HASH, SHT_GNU_HASH = 5, 0x6FFFFFF6


def note(owner: bytes, kind: int, payload: bytes) -> bytes:
    padded = [part + b"\0" * (-len(part) % 4) for part in (owner, payload)]
    return struct.pack("<III", len(owner), len(payload), kind) + b"".join(padded)


def usdt_note(address: int, base: int, semaphore: int, name: str) -> bytes:
    texts = b"python\0" + name.encode() + b"\0" + b"8@%rax -4@%edx\0"
    return note(b"stapsdt\0", 3, struct.pack("<QQQ", address, base, semaphore) + texts)


def symbols(*rows: tuple[int, int, int, int]) -> bytes:
    """(name offset, section, address, size) rows of a symbol table."""
    return b"".join(
        struct.pack("<IBBHQQ", name, 0x12, 0, section, address, size)
        for name, section, address, size in rows
    )


def elf(sections: dict[str, tuple[int, int, bytes]], text: bytes = ENDBR64 + b"\x90" * 60) -> bytes:
    """A file with one loaded segment of `text` and {name: (type, address, bytes)}."""
    named = {"": (0, 0, b""), **sections, ".shstrtab": (SHT_STRTAB, 0, b"")}
    names = b"\0".join(name.encode() for name in named) + b"\0"
    named[".shstrtab"] = (SHT_STRTAB, 0, names)
    body = b"\0" * (TEXT_OFFSET - 64 - 56) + text
    headers = b""
    for name, (kind, address, data) in named.items():
        at = 64 + 56 + len(body)
        start = names.index(name.encode() + b"\0")
        # sh_link: the section with a symbol table's names comes right behind it.
        link, row = (len(headers) // 64 + 1, 24) if kind in (SHT_SYMTAB, SHT_DYNSYM) else (0, 0)
        if kind in (SHT_HASH, SHT_GNU_HASH):
            link = 1  # .dynsym, which comes first
        headers += struct.pack(
            "<IIQQQQIIQQ", start, kind, 0, address, at, len(data), link, 0, 1, row
        )
        body += data
    shoff = 64 + 56 + len(body)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01", 3, MACHINE_X86_64, 1, 0, 64, shoff, 0, 64, 56, 1, 64,
        len(named), len(named) - 1,
    )  # fmt: skip
    segment = struct.pack(
        "<IIQQQQQQ", 1, 5, TEXT_OFFSET, TEXT_ADDRESS, 0, len(text), len(text), 0x1000
    )
    return header + segment + body + headers


STRINGS = b"\0switch\0hidden\0import\0"
SAMPLE = elf(
    {
        ".dynsym": (
            SHT_DYNSYM,
            0,
            symbols((0, 0, 0, 0), (1, 1, TEXT_ADDRESS, 8), (15, 0, 0, 0)),
        ),
        ".dynstr": (SHT_STRTAB, 0, STRINGS),
        ".symtab": (SHT_SYMTAB, 0, symbols((8, 1, TEXT_ADDRESS + 8, 4), (1, 1, 1, 1))),
        ".strtab": (SHT_STRTAB, 0, STRINGS),
        ".note.gnu.build-id": (SHT_NOTE, 0, note(b"GNU\0", 3, b"\xab\xcd")),
        ".stapsdt.base": (SHT_PROGBITS, 0x8100, b"\0"),
        ".note.stapsdt": (
            SHT_NOTE,
            0,
            usdt_note(TEXT_ADDRESS + 8 - 0x100, 0x8000, TEXT_ADDRESS + 16 - 0x100, "gc__start")
            + usdt_note(0x999999, 0x8000, 0, "outside"),
        ),
    }
)


def gnu_hash(buckets: int, first: int, blooms: int, tail: bytes) -> bytes:
    return struct.pack("<IIII", buckets, first, blooms, 0) + tail


def with_hash(kind: int, table: bytes) -> bytes:
    """A file with one exported symbol, "switch", and that hash table of its names."""
    return elf(
        {
            ".dynsym": (SHT_DYNSYM, 0, symbols((0, 0, 0, 0), (1, 1, TEXT_ADDRESS, 8))),
            ".dynstr": (SHT_STRTAB, 0, STRINGS),
            ".gnu.hash": (kind, 0, table),
        }
    )


BLOOM, SWITCH_HASH = b"\xff" * 8, 0x1CC53777
HASHED = with_hash(SHT_GNU_HASH, gnu_hash(1, 1, 1, BLOOM + struct.pack("<II", 1, SWITCH_HASH | 1)))
# Each made pyelftools run for minutes or take all memory, most of them from a few hundred bytes:
# the file may be sparse, (bytes, how long it is made).
SPARSE = 1 << 40
GREEDY = {
    "bloom filter": (with_hash(SHT_GNU_HASH, gnu_hash(1, 1, 2**32 - 1, b"")), SPARSE),
    "hash chain": (
        with_hash(SHT_GNU_HASH, gnu_hash(1, 1, 1, BLOOM + struct.pack("<I", 1 << 20))),
        SPARSE,
    ),
    "old hash table": (with_hash(SHT_HASH, struct.pack("<II", 2**32 - 1, 2**32 - 1)), SPARSE),
    "names without end": (
        elf(
            {
                ".symtab": (SHT_SYMTAB, 0, symbols(*((i, 1, 1, 1) for i in range(1, 20_000)))),
                ".strtab": (SHT_STRTAB, 0, b"a" * (1 << 20)),
            }
        ),
        0,
    ),
    "notes": (elf({".note": (SHT_NOTE, 0, b"\0" * (1 << 20))}), 0),
}


@pytest.fixture
def image(tmp_path: Path) -> ElfImage:
    (tmp_path / "sample").write_bytes(SAMPLE)
    return ElfImage(str(tmp_path / "sample"))


def test_symbol_comes_from_the_dynamic_table_first(image: ElfImage) -> None:
    assert image.symbol("switch") == Symbol("switch", TEXT_ADDRESS, 8)


def test_symbol_that_is_only_in_the_static_table_is_found(image: ElfImage) -> None:
    assert image.symbol("hidden") == Symbol("hidden", TEXT_ADDRESS + 8, 4)


@pytest.mark.parametrize("name", ["import", "", "nothing"])
def test_undefined_or_missing_symbol_is_none(image: ElfImage, name: str) -> None:
    assert image.symbol(name) is None


def test_symbol_is_found_by_the_hash_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "hashed").write_bytes(HASHED)
    with ElfImage(str(tmp_path / "hashed")) as image:
        assert image.symbol("switch") == Symbol("switch", TEXT_ADDRESS, 8)
        assert image.symbol("nothing") is None


def test_pattern_finds_symbols_of_both_tables(image: ElfImage) -> None:
    assert {s.name for s in image.find_symbols("s.*h$|hid")} == {"switch", "hidden"}


def test_exported_symbols_are_found_before_local_ones(image: ElfImage) -> None:
    assert [s.name for s in image.find_symbols("switch|hidden")] == ["switch", "hidden"]


def test_address_leads_to_file_offset_and_bytes(image: ElfImage) -> None:
    assert image.file_offset(TEXT_ADDRESS + 4) == TEXT_OFFSET + 4
    assert image.read(TEXT_ADDRESS, 5) == ENDBR64 + b"\x90"
    assert image.file_offset(0x1) is None
    assert image.read(TEXT_ADDRESS + 62, 4) is None


def test_landing_pad_is_recognised(image: ElfImage) -> None:
    assert image.starts_with_endbr64(TEXT_OFFSET)
    assert not image.starts_with_endbr64(TEXT_OFFSET + 4)
    assert not image.starts_with_endbr64(1 << 40)


def test_build_id_is_hex(image: ElfImage) -> None:
    assert image.build_id == "abcd"


def test_usdt_probe_moves_with_its_base_and_one_outside_the_file_is_dropped(
    image: ElfImage,
) -> None:
    assert image.usdt_probes() == (
        UsdtProbe(
            provider="python",
            name="gc__start",
            address=TEXT_ADDRESS + 8,
            file_offset=TEXT_OFFSET + 8,
            semaphore_file_offset=TEXT_OFFSET + 16,
            arguments="8@%rax -4@%edx",
        ),
    )


def test_file_that_is_no_elf_is_a_named_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"#!/bin/sh\n" * 100)
    with pytest.raises(ElfError, match="not a 64-bit little-endian ELF"):
        ElfImage(str(tmp_path / "text"))


def test_file_that_is_not_there_is_a_named_error(tmp_path: Path) -> None:
    with pytest.raises(ElfError, match="cannot open"):
        ElfImage(str(tmp_path / "nothing"))


@pytest.mark.parametrize("kind", ["fifo", "directory"])
def test_what_is_no_file_is_a_named_error_at_once(tmp_path: Path, kind: str) -> None:
    make = {"fifo": os.mkfifo, "directory": os.mkdir}[kind]
    make(tmp_path / "odd")
    with pytest.raises(ElfError, match="cannot open"):
        ElfImage(str(tmp_path / "odd"))


def read_everything(data: bytes, path: Path, size: int = 0) -> None:
    """`size` makes the file longer than its data."""
    path.write_bytes(data)
    os.truncate(path, max(size, len(data)))
    with ElfImage(str(path)) as image:
        image.symbol("switch")
        image.find_symbols("")
        image.usdt_probes()
        assert isinstance(image.build_id, str)
        image.read(TEXT_ADDRESS, 16)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 120, TEXT_OFFSET, len(SAMPLE) - 1])
def test_cut_file_is_a_named_error(tmp_path: Path, size: int) -> None:
    with pytest.raises(ElfError):
        read_everything(SAMPLE[:size], tmp_path / "cut")


@pytest.mark.parametrize("name", GREEDY)
def test_file_made_to_keep_us_busy_is_a_named_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(bounded_file, "MAX_READS", 20_000)  # not seconds for each of them
    data, size = GREEDY[name]
    with pytest.raises(ElfError, match="damaged"):
        read_everything(data, tmp_path / "greedy", size)


def test_more_segments_than_linux_loads_are_a_named_error(tmp_path: Path) -> None:
    data = bytearray(SAMPLE)
    struct.pack_into("<H", data, 56, 1171)  # e_phnum; 1170 headers of 56 bytes are 64 KiB
    (tmp_path / "segments").write_bytes(data)
    with pytest.raises(ElfError, match="too many segments"):
        ElfImage(str(tmp_path / "segments"))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(TEXT_OFFSET + 120, len(HASHED) - 1), st.binary(min_size=1, max_size=8))
def test_damage_of_a_hash_table_gives_an_answer_or_a_named_error(
    tmp_path: Path, place: int, damage: bytes
) -> None:
    damaged = HASHED[:place] + damage + HASHED[place + len(damage) :]
    try:
        read_everything(damaged, tmp_path / "damaged")
    except ElfError as error:
        assert str(tmp_path) in error.message  # noqa: PT017  both outcomes are right


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(SAMPLE) - 1), st.binary(min_size=1, max_size=8))
@example(40, b"\xff" * 8)  # e_shoff
@example(60, b"\xff\xff")  # e_shnum
def test_damage_anywhere_gives_an_answer_or_a_named_error(
    tmp_path: Path, place: int, damage: bytes
) -> None:
    # The zeros before the text hold nothing; put the damage where the headers and tables are.
    place = place if place < 120 or place > TEXT_OFFSET else len(SAMPLE) - 1 - place % 1000
    damaged = SAMPLE[:place] + damage + SAMPLE[place + len(damage) :]
    try:
        read_everything(damaged, tmp_path / "damaged")
    except ElfError as error:
        assert str(tmp_path) in error.message  # noqa: PT017  both outcomes are right


@pytest.mark.skipif(not shutil.which("readelf"), reason="binutils is not installed")
def test_symbols_of_this_interpreter_are_those_that_readelf_prints() -> None:
    executable = str(Path(sys.executable).resolve())
    printed = subprocess.run(
        ["readelf", "--dyn-syms", "-W", executable], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split() for line in printed.splitlines())
    expected = {
        row[7].partition("@")[0]: int(row[1], 16)
        for row in rows
        if len(row) == 8 and row[0][:-1].isdigit() and row[6] not in ("UND", "Ndx")
    }
    image = ElfImage(executable)
    assert {name: symbol.address for name in expected if (symbol := image.symbol(name))} == expected
