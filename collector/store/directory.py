"""The data directory: one process has it at a time, and tells others where to ask instead."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from greenscope.errors import CollectorError


class DirectoryInUse(CollectorError):
    """Another process has the directory; `address` is where it listens, "" if it does not."""

    def __init__(self, path: Path, address: str) -> None:
        super().__init__(
            f"the data directory {path} is open in another process",
            f"Ask that one: --collector {address}" if address else "End that process first.",
        )
        self.address = address


class DataDirectory:
    """A data directory that is ours until `close()` or the end of the process, however it ends.

    Made with mode 0700 if it does not exist.

    Raises:
        DirectoryInUse: another process has it.
        CollectorError: it cannot be made or written.
    """

    def __init__(self, path: Path, create: bool = True) -> None:
        self.path = path
        if not create and not path.is_dir():
            raise CollectorError(
                f"there is no data directory {path}",
                "Start `greenscope-collector serve`, or give another --data.",
            )
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CollectorError(
                f"cannot use the data directory {path}: {error.strerror}",
                "Give a writable directory with --data.",
            ) from error
        try:
            # The kernel lets go of it when the process ends, a kill -9 included.
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            address = os.pread(self._fd, 4096, 0).decode("utf-8", "replace").strip()
            os.close(self._fd)
            raise DirectoryInUse(path, address) from None
        self.announce("")

    def announce(self, address: str) -> None:
        """Tells others where we listen."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, address.encode(), 0)

    def close(self) -> None:
        """Lets another process have it."""
        self.announce("")
        os.close(self._fd)
