"""The files that a process maps, where they lie in its memory and how to open them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from greenscope.errors import PermissionMissing, TargetNotFound
from greenscope.target.elf import Segment
from greenscope.target.process import PROC, root_prefix

_DELETED = " (deleted)"
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Documentation/filesystems/proc.rst: address perms offset dev inode pathname. A newline in a
# path comes as \012; other bytes come as they are.
_LINE = re.compile(
    r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+) *(.*)"
)


@dataclass(frozen=True, slots=True)
class Mapping:
    """One line of /proc/PID/maps: [start, end) in the target's memory.

    `device` is as `os.makedev` gives it. `path` is without the mark of a deleted file; "" or
    "[name]" where no file is behind it.
    """

    start: int
    end: int
    perms: str
    offset: int
    device: int
    inode: int
    path: str
    deleted: bool = False

    @property
    def is_executable(self) -> bool:
        """Whether code may run from it."""
        return "x" in self.perms


@dataclass(frozen=True, slots=True)
class MappedFile:
    """All mappings of one file (same device and inode) in one process, by address.

    `path` is the target's own, also where it runs in a chroot (its mappings' are not).
    """

    pid: int
    path: str
    device: int
    inode: int
    deleted: bool
    mappings: tuple[Mapping, ...]

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    def load_bias(self, segments: Sequence[Segment]) -> int | None:
        """What to add to an address of the file to get one in the target's memory.

        `segments` are the file's PT_LOADs. 0 for an executable that is not position
        independent; None when no mapping fits any segment.
        """
        for mapping in sorted(self.mappings, key=lambda m: not m.is_executable):
            for segment in segments:
                first = segment.offset - segment.offset % _PAGE
                if first <= mapping.offset < segment.offset + segment.file_size:
                    return mapping.start - mapping.offset + segment.offset - segment.address
        return None

    def readable_path(self) -> str:
        """A path by which WE can open the file, whatever mount namespace it lives in.

        /proc/PID/root plus its path where that is still the same file, else the kernel's own
        link in map_files (which also leads to deleted files, and wants CAP_SYS_ADMIN or
        CAP_CHECKPOINT_RESTORE). It is valid while the process lives and maps the file.
        """
        by_root = f"{PROC}/{self.pid}/root{self.path}"
        found = None if self.deleted else _stat(by_root)
        if found and (found.st_dev, found.st_ino) == (self.device, self.inode):
            return by_root
        first = self.mappings[0]
        by_map = f"{PROC}/{self.pid}/map_files/{first.start:x}-{first.end:x}"
        if _stat(by_map) is None and found and found.st_ino == self.inode:
            # overlayfs and btrfs show another device in maps than in stat; an equal inode
            # under the same path is the file, where map_files is closed to us.
            return by_root
        return by_map


def parse_maps(text: str) -> tuple[Mapping, ...]:
    """The mappings in the text of a maps file; lines that do not parse are left out."""
    return tuple(_mapping(match) for match in map(_LINE.fullmatch, text.split("\n")) if match)


def read_maps(pid: int) -> tuple[Mapping, ...]:
    """The mappings of a process by address.

    Raises:
        TargetNotFound: it is gone.
        PermissionMissing: its memory map may not be read.
    """
    try:
        text = Path(f"{PROC}/{pid}/maps").read_bytes()
    except PermissionError as error:
        raise PermissionMissing(
            f"no permission to read the memory map of process {pid}",
            "Run greenscope as root, or with the capability SYS_PTRACE.",
        ) from error
    except OSError as error:
        raise TargetNotFound(f"process {pid} is gone") from error
    return parse_maps(os.fsdecode(text))


def mapped_files(pid: int, mappings: Iterable[Mapping]) -> tuple[MappedFile, ...]:
    """The files behind the mappings, in the order of their first address."""
    prefix = root_prefix(pid)
    groups: dict[tuple[int, int, str], list[Mapping]] = {}
    for mapping in mappings:
        if mapping.inode and mapping.path.startswith("/"):
            groups.setdefault((mapping.device, mapping.inode, mapping.path), []).append(mapping)
    return tuple(
        MappedFile(pid, path.removeprefix(prefix), device, inode, group[0].deleted, tuple(group))
        for (device, inode, path), group in groups.items()
    )


def _mapping(match: re.Match[str]) -> Mapping:
    start, end, perms, offset, major, minor, inode, path = match.groups()
    deleted = path.endswith(_DELETED)
    return Mapping(
        start=int(start, 16),
        end=int(end, 16),
        perms=perms,
        offset=int(offset, 16),
        device=os.makedev(int(major, 16), int(minor, 16)),
        inode=int(inode),
        path=path.removesuffix(_DELETED).replace("\\012", "\n"),
        deleted=deleted,
    )


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None
