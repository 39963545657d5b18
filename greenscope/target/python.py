"""Which CPython a process runs, and which Python packages with compiled parts it has loaded."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from greenscope.target.elf import ElfError, ElfImage, UsdtProbe
from greenscope.target.maps import MappedFile

# Every CPython, supported or not, has it in .dynsym: in the program or in libpython.
_ANY_VERSION_SYMBOL = "Py_GetVersion"
_VERSION_SYMBOL = "Py_Version"  # const unsigned long, since 3.11 (Include/pylifecycle.h)
_LEVELS = {0xA: "a", 0xB: "b", 0xC: "rc", 0xF: ""}
_NAMED_VERSION = re.compile(r"(?:lib)?python([23])\.(\d+)")
# A plain name filter first: opening each of some hundred mapped files would take too long.
_LIKELY_NAME = re.compile(r"python|uwsgi|mod_wsgi|pypy", re.IGNORECASE)
_EXTENSION = re.compile(r"\.(?:so|pyd)$")


@dataclass(frozen=True, slots=True)
class MappedPython:
    """The file of a process that holds the interpreter.

    `version` is (major, minor); `full_version` like "3.11.2", or "3.9" where the interpreter
    does not tell (before 3.11). `is_shared`: it is libpython, not the program itself.
    """

    file: MappedFile
    load_bias: int
    version: tuple[int, int]
    full_version: str
    is_shared: bool
    build_id: str
    usdt_probes: tuple[UsdtProbe, ...]


def find_python(files: Iterable[MappedFile]) -> MappedPython | None:
    """The interpreter among the mapped files of a process, None where there is none.

    Files with a telling name are looked at first; where none of them is it, all programs and
    libraries are (Python embedded in another program).
    """
    programs = [f for f in files if any(m.is_executable for m in f.mappings)]
    for file in sorted(programs, key=lambda f: not _LIKELY_NAME.search(f.name)):
        try:
            with ElfImage(file.readable_path()) as image:
                found = _inspect(file, image)
        except ElfError:
            continue  # replaced, unreadable or no ELF file: it is not the one
        if found:
            return found
    return None


def find_extension(files: Iterable[MappedFile], package: str, module: str) -> MappedFile | None:
    """The loaded extension module `module` of `package` ("greenlet", "_greenlet").

    Matches site-packages/greenlet/_greenlet.cpython-311-x86_64-linux-gnu.so and greenlet 0.4's
    single file site-packages/greenlet.cpython-38-...so alike.
    """
    for file in files:
        parts = file.path.rsplit("/", 2)
        stem = file.name.partition(".")[0]
        in_package = len(parts) == 3 and parts[1] == package and stem == module
        if _EXTENSION.search(file.name) and (in_package or stem == package):
            return file
    return None


def package_version(file: MappedFile, package: str) -> str:
    """The version in the name of the .dist-info or .egg-info beside a package; "" if none.

    `file` is a mapped extension module of it. Looked up in the target's mount namespace.
    """
    root = Path(f"/proc/{file.pid}/root")
    name = re.compile(
        rf"{re.escape(package)}-([0-9][^-]*)(?:-.*)?\.(?:dist|egg)-info", re.IGNORECASE
    )
    for directory in Path(file.path).parents[:2]:
        try:
            entries = [p.name for p in (root / directory.relative_to("/")).iterdir()]
        except OSError:
            continue
        for match in filter(None, map(name.fullmatch, sorted(entries))):
            return match[1]
    return ""


def _inspect(file: MappedFile, image: ElfImage) -> MappedPython | None:
    load_bias = file.load_bias(image.segments)
    if load_bias is None or image.symbol(_ANY_VERSION_SYMBOL) is None:
        return None
    full_version, version = _version(file, image)
    if version is None:
        return None
    return MappedPython(
        file=file,
        load_bias=load_bias,
        version=version,
        full_version=full_version,
        is_shared=file.name.startswith("libpython"),
        build_id=image.build_id,
        usdt_probes=tuple(p for p in image.usdt_probes() if p.provider == "python"),
    )


def _version(file: MappedFile, image: ElfImage) -> tuple[str, tuple[int, int] | None]:
    symbol = image.symbol(_VERSION_SYMBOL)
    data = image.read(symbol.address, 8) if symbol else None
    if data:
        # PY_VERSION_HEX: 0x030B02F0 is 3.11.2 final (Include/patchlevel.h).
        hex_version = int.from_bytes(data, "little")
        major, minor, micro = (hex_version >> shift & 0xFF for shift in (24, 16, 8))
        level, serial = hex_version >> 4 & 0xF, hex_version & 0xF
        suffix = _LEVELS.get(level, "?") + (str(serial) if level != 0xF else "")
        return f"{major}.{minor}.{micro}{suffix}", (major, minor)
    named = _NAMED_VERSION.search(file.path)
    if named:
        return f"{named[1]}.{named[2]}", (int(named[1]), int(named[2]))
    return "", None
