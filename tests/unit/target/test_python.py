import os
import struct
import sys
from pathlib import Path

import pytest

from greenscope.target.maps import MappedFile, Mapping, mapped_files, read_maps
from greenscope.target.python import find_extension, find_python, package_version
from tests.unit.target.test_elf import (
    SHT_DYNSYM,
    SHT_STRTAB,
    TEXT_ADDRESS,
    TEXT_OFFSET,
    elf,
    symbols,
)

NAMES = b"\0Py_GetVersion\0Py_Version\0"
RUNTIME, VERSION = (1, 1, TEXT_ADDRESS, 8), (15, 1, TEXT_ADDRESS, 8)


def mapped(path: Path) -> MappedFile:
    """The file as if this process had its text mapped."""
    mapping = Mapping(0x7F0000001000, 0x7F0000002000, "r-xp", TEXT_OFFSET, 0, 1, str(path))
    stat = path.stat()
    return MappedFile(os.getpid(), str(path), stat.st_dev, stat.st_ino, False, (mapping,))


def program(path: Path, version: int | None, *, runtime: bool = True) -> MappedFile:
    rows = [row for row, wanted in ((RUNTIME, runtime), (VERSION, version is not None)) if wanted]
    tables = {
        ".dynsym": (SHT_DYNSYM, 0, symbols(*rows)),
        ".dynstr": (SHT_STRTAB, 0, NAMES),
    }
    path.write_bytes(elf(tables, text=struct.pack("<Q", version or 0) + b"\x90" * 56))
    return mapped(path)


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("python3.11", 0x030B02F0, "3.11.2"),
        ("libpython3.15.so.1.0", 0x030F00C1, "3.15.0rc1"),
        ("uwsgi", 0x030D01F0, "3.13.1"),
        ("server", 0x030D01F0, "3.13.1"),
        ("libpython3.9.so.1.0", None, "3.9"),
        ("libpython2.7.so.1.0", None, "2.7"),
    ],
)
def test_interpreter_is_found_with_its_version(
    tmp_path: Path, name: str, version: int | None, expected: str
) -> None:
    other = program(tmp_path / "libother.so", None, runtime=False)
    found = find_python([other, program(tmp_path / name, version)])
    assert found is not None
    assert found.full_version == expected
    assert found.version == tuple(map(int, expected.split(".")[:2]))
    assert found.is_shared == name.startswith("libpython")
    assert found.load_bias == 0x7F0000001000 - TEXT_ADDRESS


def test_process_without_interpreter_has_none(tmp_path: Path) -> None:
    assert find_python([program(tmp_path / "python3.11", 0x030B02F0, runtime=False)]) is None


def test_damaged_file_does_not_end_the_search(tmp_path: Path) -> None:
    (tmp_path / "python").write_bytes(b"no ELF file")
    good = program(tmp_path / "server", 0x030B02F0)
    found = find_python([mapped(tmp_path / "python"), good])
    assert found is not None
    assert found.file == good


def test_interpreter_of_this_test_is_found_in_its_own_maps() -> None:
    found = find_python(mapped_files(os.getpid(), read_maps(os.getpid())))
    assert found is not None
    assert found.version == sys.version_info[:2]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("greenlet/_greenlet.cpython-311-x86_64-linux-gnu.so", True),
        ("greenlet.cpython-38-x86_64-linux-gnu.so", True),
        ("gevent/_greenlet.cpython-311-x86_64-linux-gnu.so", False),
        ("greenlet/_greenlet.py", False),
    ],
)
def test_extension_module_is_found_by_package_and_name(path: str, found: bool) -> None:
    file = MappedFile(1, f"/x/site-packages/{path}", 0, 1, False, ())
    assert find_extension([file], "greenlet", "_greenlet") == (file if found else None)


@pytest.mark.parametrize(
    ("entry", "version"),
    [
        ("greenlet-3.5.6.dist-info", "3.5.6"),
        ("greenlet-0.4.17-py3.8.egg-info", "0.4.17"),
        ("greenlet_x-1.0.dist-info", ""),
    ],
)
def test_package_version_comes_from_the_metadata_beside_it(
    tmp_path: Path, entry: str, version: str
) -> None:
    (tmp_path / "greenlet").mkdir()
    (tmp_path / entry).mkdir()
    path = tmp_path / "greenlet" / "_greenlet.so"
    file = MappedFile(os.getpid(), str(path), 0, 1, False, ())
    assert package_version(file, "greenlet") == version
