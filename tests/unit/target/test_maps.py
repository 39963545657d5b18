import mmap
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from greenscope.errors import TargetNotFound
from greenscope.target.elf import Segment
from greenscope.target.maps import MappedFile, Mapping, mapped_files, parse_maps, read_maps
from greenscope.target.process import inspect_process

LINES = """\
00400000-00423000 r--p 00000000 fe:01 260131                     /usr/bin/python3.11
00423000-006f4000 r-xp 00023000 fe:01 260131                     /usr/bin/python3.11
7f01-7f02 rw-p 00000000 00:00 0
7ffd000-7ffe000 rw-p 00000000 00:00 0                            [stack]
7f10000-7f11000 r-xp 00002000 00:2a 99                           /tmp/a b\\012c.so (deleted)
rubbish
"""
PYTHON = os.makedev(0xFE, 1)


def test_lines_become_mappings_and_rubbish_is_left_out() -> None:
    mappings = parse_maps(LINES)
    assert mappings[1] == Mapping(
        0x423000, 0x6F4000, "r-xp", 0x23000, PYTHON, 260131, "/usr/bin/python3.11"
    )
    assert [m.path for m in mappings[2:]] == ["", "[stack]", "/tmp/a b\nc.so"]
    assert [m.deleted for m in mappings] == [False, False, False, False, True]


def test_mappings_are_grouped_by_file_and_anonymous_ones_are_not_files() -> None:
    files = mapped_files(1, parse_maps(LINES))
    assert [(f.name, f.inode, len(f.mappings)) for f in files] == [
        ("python3.11", 260131, 2),
        ("a b\nc.so", 99, 1),
    ]


@pytest.mark.parametrize(
    ("start", "segment", "bias"),
    [
        (0x423000, Segment(0x423000, 0x23000, 0x2D0000, 0x2D0000, True), 0),
        (0x7F0000006000, Segment(0x6000, 0x23000, 0x100, 0x100, True), 0x7F0000000000),
        # lld: address and offset differ by more than whole pages of each other's start
        (0x7F0000006000, Segment(0x7940, 0x23940, 0x100, 0x100, True), 0x7F0000006000 - 0x7000),
    ],
)
def test_load_bias_is_what_moves_file_addresses_into_memory(
    start: int, segment: Segment, bias: int
) -> None:
    mapping = Mapping(start, start + 0x1000, "r-xp", 0x23000, 1, 2, "/x")
    assert MappedFile(1, "/x", 1, 2, False, (mapping,)).load_bias((segment,)) == bias


def test_load_bias_is_none_when_no_segment_fits() -> None:
    mapping = Mapping(0x1000, 0x2000, "r-xp", 0x9000, 1, 2, "/x")
    file = MappedFile(1, "/x", 1, 2, False, (mapping,))
    assert file.load_bias((Segment(0, 0, 0x1000, 0x1000, True),)) is None


def own_file(path: Path) -> MappedFile:
    return next(f for f in mapped_files(os.getpid(), read_maps(os.getpid())) if f.path == str(path))


def test_mapped_file_is_opened_through_the_root_of_the_process(tmp_path: Path) -> None:
    path = tmp_path / "library"
    path.write_bytes(b"x" * mmap.PAGESIZE)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        assert own_file(path).readable_path() == f"/proc/{os.getpid()}/root{path}"


@pytest.mark.parametrize("replaced", [False, True])
def test_deleted_or_replaced_file_is_opened_through_map_files(
    tmp_path: Path, replaced: bool
) -> None:
    path = tmp_path / "library"
    path.write_bytes(b"old" * mmap.PAGESIZE)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        path.unlink()
        if replaced:
            path.write_bytes(b"new")
        way = own_file(path).readable_path()
        assert way.startswith(f"/proc/{os.getpid()}/map_files/")
        if os.geteuid() == 0:
            assert Path(way).read_bytes()[:3] == b"old"


def test_maps_of_a_process_that_is_gone_are_not_found() -> None:
    with pytest.raises(TargetNotFound):
        read_maps(4999999)


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
def test_paths_of_a_process_in_a_chroot_are_its_own(tmp_path: Path) -> None:
    libraries = subprocess.run(["ldd", "/bin/cat"], capture_output=True, text=True, check=True)
    for file in ["/bin/cat", *re.findall(r"(/\S+)", libraries.stdout)]:
        (tmp_path / file[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, tmp_path / file[1:])
    with subprocess.Popen(
        ["chroot", tmp_path, "/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as child:
        assert child.stdin
        assert child.stdout
        child.stdin.write(b"ready\n")
        assert child.stdout.readline() == b"ready\n"
        program = next(f for f in mapped_files(child.pid, read_maps(child.pid)) if f.name == "cat")
        way = program.readable_path()
        executable = inspect_process(child.pid).executable
        child.kill()
    assert (program.path, executable) == ("/bin/cat", "/bin/cat")
    assert way == f"/proc/{child.pid}/root/bin/cat"
