"""A file for a parser that believes the numbers it reads."""

from __future__ import annotations

import io
import os
import stat

# A step that needs more than this reads a file that was damaged or made to keep us busy. It is
# enough for a table of a million symbols, each of which takes pyelftools seven small reads.
MAX_READS = 8_000_000
MAX_BYTES = 128 << 20


class LimitReached(Exception):
    """One step asked for more than any sound file makes necessary."""


class BoundedFile(io.BufferedReader):
    """A regular file, open for reading, of which each step may read so much and no more.

    Bounds the time and the memory of what a parser makes of counts, lengths and chains in a file
    that is not to be trusted; a sparse file costs nothing to make as long as one likes.

    Raises:
        OSError: it cannot be opened or is no regular file.
    """

    def __init__(self, path: str) -> None:
        super().__init__(io.FileIO(path, opener=_open_at_once))
        status = os.fstat(self.fileno())
        self.size_bytes = status.st_size
        self.begin_step()
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise OSError(0, "not a regular file")

    def begin_step(self) -> None:
        """Give the next step all that a step may read."""
        self._reads_left = MAX_READS
        self._bytes_left = MAX_BYTES

    def read(self, size: int | None = -1, /) -> bytes:
        """As of any file, but raises LimitReached when the step has read enough."""
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
