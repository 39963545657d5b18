"""A directory of our own for what is costly to make again (header trees, BTF offsets)."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from greenscope.errors import PermissionMissing


def cache_dir(name: str) -> Path:
    """The directory `name` in greenscope's cache, made when missing; what it holds may vanish.

    $XDG_CACHE_HOME, else /var/cache for root and ~/.cache for others, else /run, else a
    directory of the user in the temporary directory. What lies in it is compiled into the
    kernel, so only a directory that nobody else may write to is taken.

    Raises:
        PermissionMissing: none of them can be written.
    """
    for base in _candidates():
        path = base / name
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if _is_private(base) and _is_private(path) and os.access(path, os.W_OK):
            return path
    raise PermissionMissing(
        "there is no directory that greenscope may keep its cache in",
        "Set XDG_CACHE_HOME to a directory that belongs to you and that you can write.",
    )


def _candidates() -> Iterator[Path]:
    configured = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(configured):
        yield Path(configured, "greenscope")
    if os.geteuid() == 0:
        # Under sudo, HOME may be the caller's, who must not be able to change the headers.
        yield Path("/var/cache/greenscope")
    elif os.path.isabs(home := os.environ.get("HOME", "")):
        yield Path(home, ".cache", "greenscope")
    yield Path("/run/greenscope")
    yield Path(tempfile.gettempdir(), f"greenscope-{os.geteuid()}")


def _is_private(path: Path) -> bool:
    found = path.lstat()
    mode = found.st_mode
    return stat.S_ISDIR(mode) and found.st_uid == os.geteuid() and not mode & 0o022
