"""A file for a parser that believes the numbers it reads."""

from __future__ import annotations

import io
import os
import stat

# What needs more than this was damaged or made to keep us busy. pyelftools takes seven small reads
# for a symbol: to look at all of a libpython's takes 0.2 million reads, at all of libLLVM's 0.6.
MAX_READS = 2_000_000
MAX_BYTES = 128 << 20


class LimitReached(Exception):
    """More was asked for than any sound file makes necessary."""


class BoundedFile(io.BufferedReader):
    """A regular file, open for reading, of which one may read so much and no more.

    Bounds the time and the memory of what a parser makes of counts, lengths and chains in a file
    that is not to be trusted; a sparse file costs nothing to make as long as one likes.

    Raises:
        OSError: it cannot be opened or is no regular file.
    """

    def __init__(self, path: str) -> None:
        super().__init__(io.FileIO(path, opener=_open_at_once))
        status = os.fstat(self.fileno())
        self.size_bytes = status.st_size
        self._reads_left = MAX_READS
        self._bytes_left = MAX_BYTES
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise OSError(0, "not a regular file")

    def read(self, size: int | None = -1, /) -> bytes:
        """As of any file, but raises LimitReached when enough was read."""
        wanted = self.size_bytes if size is None or size < 0 else size
        self._reads_left -= 1
        if self._reads_left < 0 or wanted > self._bytes_left:
            raise LimitReached("it asks for more to be read than any sound file")
        data = super().read(wanted)
        self._bytes_left -= len(data)
        return data


def _open_at_once(path: str, flags: int) -> int:
    # The target may have put a fifo in the place of a file that it maps: do not wait for a writer.
    return os.open(path, flags | os.O_NONBLOCK)
