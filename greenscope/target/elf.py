"""What we need of an ELF file: symbols, bytes by address, the build id, USDT probes.

pyelftools reads it. The files belong to the target and are not to be trusted: pyelftools believes
the counts and lengths it finds, so it reads through a `BoundedFile`, and whatever it meets in a
damaged file comes out as `ElfError`.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, Self

from elftools.common.exceptions import ELFError as UnreadableElf
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile
from elftools.elf.hash import GNUHashSection
from elftools.elf.sections import NoteSection, SymbolTableSection

from greenscope.errors import GreenscopeError
from greenscope.target.bounded_file import BoundedFile, LimitReached

MACHINE_X86_64 = 62  # <elf.h> EM_X86_64
ENDBR64 = b"\xf3\x0f\x1e\xfa"
_CLASS_BITS = 64
_SYMBOL_BYTES = 24  # <elf.h> Elf64_Sym
# Linux loads no program with more (fs/binfmt_elf.c, load_elf_phdrs); addresses are looked up in
# them one by one.
_MAX_SEGMENTS_BYTES = 65536
_MAX_USDT_BYTES = 1 << 20  # libc and libpython have less than a page
# <elf.h>: the type of GNU's build id and of <sys/sdt.h>'s notes, which pyelftools names alike.
_NOTE_TYPES = (3, "NT_GNU_BUILD_ID")
_USDT_ADDRESSES = struct.Struct("<QQQ")
# What pyelftools 0.32 and 0.33 let out of their parsers when files are damaged at random.
_DAMAGE = (
    LimitReached,
    UnreadableElf,
    ConstructError,
    ArithmeticError,
    AttributeError,
    OSError,
    TypeError,
    ValueError,
    struct.error,
)


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
        ElfError: cannot be opened, or is not a sound 64-bit little-endian ELF file. Every
            method raises it, too, when its part of the file is damaged.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._known: dict[str, Any] = {}
        try:
            self._file = BoundedFile(path)
        except OSError as error:
            raise ElfError(f"cannot open {path}: {error.strerror}") from error
        try:
            with self._guarded():
                self._elf = self._open()
                self.segments = tuple(self._segments())
        except BaseException:
            self.close()
            raise

    def _open(self) -> ELFFile:
        try:
            elf = ELFFile(self._file)
        except UnreadableElf as error:
            raise ElfError(f"{self.path} is not a 64-bit little-endian ELF file") from error
        if elf.elfclass != _CLASS_BITS or not elf.little_endian:
            raise ElfError(f"{self.path} is not a 64-bit little-endian ELF file")
        header = elf.header
        self.machine: int = struct.unpack_from("<H", self._bytes(18, 2))[0]  # e_machine
        # A library or a position independent program.
        self.is_shared: bool = header["e_type"] == "ET_DYN"
        segments_bytes = elf.num_segments() * header["e_phentsize"]
        if segments_bytes > _MAX_SEGMENTS_BYTES:
            raise ElfError(f"{self.path} is damaged: too many segments")
        for offset, size in (
            (header["e_phoff"], segments_bytes),
            (header["e_shoff"], elf.num_sections() * header["e_shentsize"]),
        ):
            if size:
                self._check(offset, size)
        return elf

    def _segments(self) -> Iterator[Segment]:
        for segment in self._elf.iter_segments("PT_LOAD"):
            yield Segment(
                address=segment["p_vaddr"],
                offset=segment["p_offset"],
                file_size=segment["p_filesz"],
                memory_size=segment["p_memsz"],
                executable=bool(segment["p_flags"] & 1),
            )

    def close(self) -> None:
        """Give the file back; reading tables afterwards raises ElfError."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def symbol(self, name: str) -> Symbol | None:
        """The defined symbol of exactly that name: from .dynsym, else from .symtab."""
        if not name:
            return None
        with self._guarded():
            for symbol in self._named(name):
                if _is_defined(symbol):
                    return _symbol(symbol)
        return None

    def _named(self, name: str) -> Iterator[Any]:
        """The symbols of a name; .symtab is not looked at before it must be."""
        dynamic = self._section(".dynsym", SymbolTableSection)
        hashed = self._section(".gnu.hash", GNUHashSection)
        if hashed is not None and dynamic is not None:
            found = hashed.get_symbol(name)
            yield from [] if found is None else [found]
        elif dynamic is not None:
            yield from dynamic.get_symbol_by_name(name) or []
        static = self._section(".symtab", SymbolTableSection)
        # Looking for the name's bytes first, because the index of a table of all symbols takes
        # pyelftools half a second, and most names that come this far are not there.
        if static is not None and name.encode() + b"\0" in static.stringtable.data():
            yield from static.get_symbol_by_name(name) or []

    def find_symbols(self, pattern: str | re.Pattern[str]) -> tuple[Symbol, ...]:
        """All defined symbols whose (mangled) name begins with a match of the pattern.

        Exported ones first: a compiler's fragments ("...C2E.cold") are only in .symtab.
        """
        match = re.compile(pattern).match
        found: dict[str, Symbol] = {}
        with self._guarded():
            for table in (".dynsym", ".symtab"):
                section = self._section(table, SymbolTableSection)
                for symbol in section.iter_symbols() if section is not None else ():
                    if symbol.name and _is_defined(symbol) and match(symbol.name):
                        found.setdefault(symbol.name, _symbol(symbol))
        return tuple(found.values())

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
        with self._guarded():
            return self._bytes(offset, size)

    def starts_with_endbr64(self, file_offset: int) -> bool:
        """Whether a CET landing pad stands there: attach a uprobe 4 bytes further."""
        end = file_offset + len(ENDBR64)
        if not 0 <= file_offset < end <= self._file.size_bytes:
            return False
        with self._guarded():
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
        with self._guarded():
            for section in self._elf.iter_sections("SHT_NOTE"):
                for payload in self._notes(section, "GNU"):
                    return payload.hex()
        return ""

    def usdt_probes(self) -> tuple[UsdtProbe, ...]:
        """The probes in .note.stapsdt, in file order; one name may have several places."""
        with self._guarded():
            base = self._elf.get_section_by_name(".stapsdt.base")
            section = self._section(".note.stapsdt", NoteSection)
            if section is None:
                return ()
            if section["sh_size"] > _MAX_USDT_BYTES:
                raise ElfError(f"{self.path} is damaged: too many USDT probes")
            base_address = base["sh_addr"] if base is not None else 0
            notes = self._notes(section, "stapsdt")
            found = [self._usdt_probe(payload, base_address) for payload in notes]
        return tuple(probe for probe in found if probe)

    def _usdt_probe(self, payload: bytes, base: int) -> UsdtProbe | None:
        texts = payload[_USDT_ADDRESSES.size :].split(b"\0")
        if len(payload) < _USDT_ADDRESSES.size or len(texts) < 3:
            return None
        address, base_then, semaphore = _USDT_ADDRESSES.unpack_from(payload)
        # <sys/sdt.h>: the section .stapsdt.base moved with the code when the file was
        # prelinked or its sections were laid out again; the note did not.
        moved = base - base_then if base and base_then else 0
        offset = self.file_offset(address + moved)
        if offset is None:
            return None
        semaphore_offset = self.file_offset(semaphore + moved) if semaphore else 0
        provider, name, arguments = (text.decode("utf-8", "replace") for text in texts[:3])
        return UsdtProbe(provider, name, address + moved, offset, semaphore_offset or 0, arguments)

    def _notes(self, section: Any, owner: str) -> Iterator[bytes]:
        """The descriptions of an owner's notes of type 3."""
        self._check(section["sh_offset"], section["sh_size"])
        for note in section.iter_notes():
            if note["n_name"] == owner and note["n_type"] in _NOTE_TYPES:
                yield bytes(note["n_descdata"])

    def _section(self, name: str, kind: Callable[..., Any]) -> Any:
        """The section of a name if it is of that kind and lies within the file, else None."""
        # Kept, because a symbol table makes its index of names when first asked for one.
        if name not in self._known:
            self._known[name] = self._elf.get_section_by_name(name)
        section = self._known[name]
        if not isinstance(section, kind):  # type: ignore[arg-type]
            return None
        for part in (section, getattr(section, "stringtable", None)):
            if part is not None:
                self._check(part["sh_offset"], part["sh_size"])
                if part.compressed:  # nobody compresses these; it could be a bomb
                    raise ElfError(f"{self.path} is damaged: {name} is compressed")
        if kind is SymbolTableSection and section["sh_entsize"] != _SYMBOL_BYTES:
            raise ElfError(f"{self.path} is damaged: odd symbol size in {name}")
        return section

    def _bytes(self, offset: int, size: int) -> bytes:
        self._check(offset, size)
        data = os.pread(self._file.fileno(), size, offset)
        if len(data) != size:
            raise ElfError(f"{self.path} shrank while it was read")
        return data

    def _check(self, offset: int, size: int) -> None:
        if offset + size > self._file.size_bytes:
            raise ElfError(f"{self.path} is damaged: it ends before offset {offset + size}")

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """The one place where what a damaged file makes pyelftools raise gets its name."""
        try:
            yield
        except _DAMAGE as error:
            found = f"{type(error).__name__}: {error}"
            raise ElfError(f"{self.path} is damaged or cannot be read: {found}") from error


def _is_defined(symbol: Any) -> bool:
    return bool(symbol["st_shndx"] != "SHN_UNDEF")


def _symbol(symbol: Any) -> Symbol:
    return Symbol(symbol.name, symbol["st_value"], symbol["st_size"])
