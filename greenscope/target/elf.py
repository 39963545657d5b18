"""What we need of an ELF file: symbols, bytes by address, the build id, USDT probes.

Read by hand instead of by a library: the files belong to the target and are not to be trusted
(every offset is bounded here, a damaged file gives `ElfError`), and a table of symbols has to
be searched in milliseconds. Layouts are those of <elf.h> (System V gABI); x86-64 only needs
64-bit little-endian files.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Self

from greenscope.errors import GreenscopeError

MACHINE_X86_64 = 62  # <elf.h> EM_X86_64
ENDBR64 = b"\xf3\x0f\x1e\xfa"
MAX_SECTION_BYTES = 256 << 20

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")  # Elf64_Ehdr
_SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_SEGMENT = struct.Struct("<IIQQQQQQ")  # Elf64_Phdr
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
_NOTE = struct.Struct("<III")  # Elf64_Nhdr
_PT_LOAD = 1
_SHT_NOBITS = 8
_SHT_NOTE = 7
_SHN_UNDEF = 0
_NT_GNU_BUILD_ID = 3
_NT_STAPSDT = 3  # <sys/sdt.h>


class ElfError(GreenscopeError):
    """The file is no ELF file that we can read, or it is damaged."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A PT_LOAD: `file_size` bytes at file offset `offset` are loaded at `address`."""

    address: int
    offset: int
    file_size: int
    memory_size: int
    executable: bool


@dataclass(frozen=True, slots=True)
class Section:
    """A section header; `address` is 0 where it is not loaded."""

    name: str
    kind: int
    address: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A defined symbol; `address` is the file's own (add the load bias), `size` in bytes."""

    name: str
    address: int
    size: int


@dataclass(frozen=True, slots=True)
class UsdtProbe:
    """A probe that was compiled in with <sys/sdt.h>.

    `address` is the file's own; `file_offset` is where a uprobe goes;
    `semaphore_file_offset` is 0 where it has none; `arguments` as in "8@%rax -4@%edx".
    """

    provider: str
    name: str
    address: int
    file_offset: int
    semaphore_file_offset: int
    arguments: str


class ElfImage:
    """One ELF file, open for reading; headers are checked at once, tables when asked for.

    Raises:
        ElfError: cannot be opened, or is not a sound 64-bit little-endian ELF file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ElfError(f"cannot open {path}: {error.strerror}") from error
        try:
            self._size = os.fstat(self._fd).st_size
            self._read_headers()
        except BaseException:
            self.close()
            raise

    def _read_headers(self) -> None:
        ident, kind, machine, _, _, phoff, shoff, _, _, phsize, phnum, shsize, shnum, names = (
            _HEADER.unpack(self._bytes(0, _HEADER.size))
        )
        # e_ident: magic, ELFCLASS64 (2), ELFDATA2LSB (1).
        if ident[:6] != b"\x7fELF\x02\x01":
            raise ElfError(f"{self.path} is not a 64-bit little-endian ELF file")
        if (phnum and phsize != _SEGMENT.size) or (shnum and shsize != _SECTION.size):
            raise ElfError(f"{self.path} is damaged: odd header sizes")
        self.machine: int = machine
        self.is_shared: bool = kind == 3  # ET_DYN: a library or a position independent program
        rows = _SEGMENT.iter_unpack(self._bytes(phoff, phnum * _SEGMENT.size))
        self.segments = tuple(
            Segment(address, offset, file_size, memory_size, bool(flags & 1))
            for type_, flags, offset, address, _, file_size, memory_size, _ in rows
            if type_ == _PT_LOAD
        )
        self._sections = self._read_sections(shoff, shnum, names)

    def _read_sections(self, offset: int, count: int, names: int) -> tuple[Section, ...]:
        rows = list(_SECTION.iter_unpack(self._bytes(offset, count * _SECTION.size)))
        if not rows:
            return ()
        if names >= len(rows):
            raise ElfError(f"{self.path} is damaged: no section names")
        texts = self._bytes(rows[names][4], rows[names][5])
        return tuple(Section(_text(texts, row[0]), row[1], row[3], row[4], row[5]) for row in rows)

    def close(self) -> None:
        """Give the file back; reading tables afterwards raises ElfError."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def section(self, name: str) -> Section | None:
        """The first section of that name."""
        return next((s for s in self._sections if s.name == name), None)

    def symbol(self, name: str) -> Symbol | None:
        """The defined symbol of exactly that name: from .dynsym, else from .symtab."""
        return self._dynamic_symbols.get(name) or self._static_symbols.get(name)

    def find_symbols(self, pattern: str | re.Pattern[str]) -> tuple[Symbol, ...]:
        """All defined symbols whose (mangled) name begins with a match of the pattern."""
        match = re.compile(pattern).match
        both = self._static_symbols | self._dynamic_symbols
        return tuple(symbol for name, symbol in both.items() if match(name))

    def file_offset(self, address: int) -> int | None:
        """Where in the file the byte lies that is loaded at `address`."""
        for segment in self.segments:
            if segment.address <= address < segment.address + segment.file_size:
                return address - segment.address + segment.offset
        return None

    def read(self, address: int, size: int) -> bytes | None:
        """`size` bytes as loaded at `address` before relocation; None where not in the file."""
        offset = self.file_offset(address)
        last = self.file_offset(address + size - 1) if size > 0 else None
        if offset is None or last is None or last - offset != size - 1:
            return None
        return self._bytes(offset, size)

    def starts_with_endbr64(self, file_offset: int) -> bool:
        """Whether a CET landing pad stands there: attach a uprobe 4 bytes further."""
        end = file_offset + len(ENDBR64)
        if not 0 <= file_offset < end <= self._size:
            return False
        return self._bytes(file_offset, len(ENDBR64)) == ENDBR64

    def entry_offset(self, name: str) -> int | None:
        """File offset for an entry probe of a function, None when there is no such symbol.

        Behind a leading endbr64: the kernel must single-step that one, at twelve times the cost
        of the push that usually follows.
        """
        symbol = self.symbol(name)
        offset = self.file_offset(symbol.address) if symbol else None
        if offset is not None and self.starts_with_endbr64(offset):
            offset += len(ENDBR64)
        return offset

    @cached_property
    def build_id(self) -> str:
        """The GNU build id in hex, "" where there is none."""
        for owner, kind, payload in self._notes():
            if owner == b"GNU\0" and kind == _NT_GNU_BUILD_ID:
                return payload.hex()
        return ""

    def usdt_probes(self) -> tuple[UsdtProbe, ...]:
        """The probes in .note.stapsdt, in file order; one name may have several places."""
        base = self.section(".stapsdt.base")
        found = (
            self._usdt_probe(payload, base.address if base else None)
            for owner, kind, payload in self._notes(".note.stapsdt")
            if owner == b"stapsdt\0" and kind == _NT_STAPSDT
        )
        return tuple(probe for probe in found if probe)

    def _usdt_probe(self, payload: bytes, base: int | None) -> UsdtProbe | None:
        texts = payload[24:].split(b"\0")
        if len(payload) < 24 or len(texts) < 3:
            return None
        address, base_then, semaphore = struct.unpack_from("<QQQ", payload)
        # <sys/sdt.h>: the section .stapsdt.base moved with the code when the file was
        # prelinked or its sections were laid out again; the note did not.
        moved = base - base_then if base and base_then else 0
        offset = self.file_offset(address + moved)
        if offset is None:
            return None
        semaphore_offset = self.file_offset(semaphore + moved) if semaphore else 0
        provider, name, arguments = (text.decode("utf-8", "replace") for text in texts[:3])
        return UsdtProbe(provider, name, address + moved, offset, semaphore_offset or 0, arguments)

    @cached_property
    def _dynamic_symbols(self) -> dict[str, Symbol]:
        return self._symbols(".dynsym", ".dynstr")

    @cached_property
    def _static_symbols(self) -> dict[str, Symbol]:
        return self._symbols(".symtab", ".strtab")

    def _symbols(self, table: str, strings: str) -> dict[str, Symbol]:
        rows, texts = self._section_bytes(table), self._section_bytes(strings)
        rows = rows[: len(rows) - len(rows) % _SYMBOL.size]
        symbols: dict[str, Symbol] = {}
        for name_offset, _, _, section, address, size in _SYMBOL.iter_unpack(rows):
            if section != _SHN_UNDEF and name_offset:
                name = _text(texts, name_offset)
                symbols.setdefault(name, Symbol(name, address, size))
        return symbols

    def _notes(self, section_name: str | None = None) -> Iterator[tuple[bytes, int, bytes]]:
        """(owner with its NUL, type, description) of the notes, all or of one section."""
        for section in self._sections:
            if section.kind != _SHT_NOTE or section_name not in (None, section.name):
                continue
            data = self._section_bytes(section.name)
            at = 0
            while at + _NOTE.size <= len(data):
                name_size, size, kind = _NOTE.unpack_from(data, at)
                at += _NOTE.size
                payload = at + (name_size + 3 & ~3)
                yield data[at : at + name_size], kind, data[payload : payload + size]
                at = payload + (size + 3 & ~3)

    def _section_bytes(self, name: str) -> bytes:
        section = self.section(name)
        if section is None or section.kind == _SHT_NOBITS:
            return b""
        return self._bytes(section.offset, section.size)

    def _bytes(self, offset: int, size: int) -> bytes:
        if size > MAX_SECTION_BYTES or offset + size > self._size:
            raise ElfError(f"{self.path} is damaged: it ends before offset {offset + size}")
        try:
            data = os.pread(self._fd, size, offset)
        except OSError as error:
            raise ElfError(f"cannot read {self.path}: {error.strerror}") from error
        if len(data) != size:
            raise ElfError(f"{self.path} shrank while it was read")
        return data


def _text(texts: bytes, offset: int) -> str:
    """The NUL-terminated string at `offset` of a string table, "" past its end."""
    end = texts.find(b"\0", offset)
    return texts[offset : end if end >= 0 else len(texts)].decode("utf-8", "replace")
