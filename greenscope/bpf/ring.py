"""Draining a BPF ring buffer in bulk from its mapped memory.

Layout (kernel/bpf/ringbuf.c): a page with the consumer position (ours to write), a page with
the producer position, then the data pages twice in a row, so that a record that wraps around
reads straight on. A record is an 8-byte header (u32 length with two flag bits, u32 page
offset) and its payload, rounded up to 8 bytes. bcc's own callback for each record drains a
ninth of what this does.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from typing import Self

PAGE = mmap.PAGESIZE
HEADER_SIZE = 8
BUSY = 1 << 31
DISCARDED = 1 << 30
_LENGTH_MASK = DISCARDED - 1
_LENGTH = struct.Struct("<I")


class MappedRing:
    """The consumer's end of one ring buffer map; there must be no other consumer.

    `size_bytes` is the ring's size (a power of two of pages), `fd` the map's and stays the
    caller's.
    """

    def __init__(self, fd: int, size_bytes: int) -> None:
        self._size = size_bytes
        self._consumer = mmap.mmap(fd, PAGE, mmap.MAP_SHARED)
        self._data = mmap.mmap(
            fd, PAGE + 2 * size_bytes, mmap.MAP_SHARED, mmap.PROT_READ, offset=PAGE
        )
        # 8-byte aligned accesses through a cast view are single loads and stores, which is
        # what the kernel's own acquire and release need on x86.
        self._consumer_position = memoryview(self._consumer).cast("Q")
        self._producer_position = memoryview(self._data)[:8].cast("Q")
        self._records = memoryview(self._data)[PAGE:]
        self.fd = fd

    def records(self) -> Iterator[bytes]:
        """Payloads of any size, oldest first; each is freed for the kernel as it is taken."""
        while (payload := self._next()) is not None:
            if payload:
                yield payload

    def fixed(self, layout: struct.Struct) -> list[tuple[int, ...]]:
        """All finished records of a ring whose records have one size, decoded in one sweep."""
        consumer = self._consumer_position[0]
        stride = HEADER_SIZE + (layout.size + 7) // 8 * 8
        count = (self._producer_position[0] - consumer) // stride
        if count <= 0:
            return []
        start = consumer % self._size
        block = self._records[start : start + count * stride]
        # The headers first: only what is behind a finished one may be read.
        lengths = block.cast("I")[:: stride // 4].tolist()
        busy = next((i for i, length in enumerate(lengths) if length & BUSY), count)
        # iter_unpack with the header in the format: one C loop over the whole block.
        padding = stride - HEADER_SIZE - layout.size
        whole = struct.Struct(f"<{HEADER_SIZE}x{layout.format.lstrip('<')}{padding}x")
        decoded = list(whole.iter_unpack(block[: busy * stride]))
        self._consumer_position[0] = consumer + busy * stride
        if any(length & DISCARDED for length in lengths[:busy]):
            flagged = zip(decoded, lengths, strict=False)
            decoded = [record for record, length in flagged if not length & DISCARDED]
        return decoded

    def _next(self) -> bytes | None:
        """The oldest payload, b"" for a discarded record, None when there is none (yet)."""
        consumer = self._consumer_position[0]
        if consumer >= self._producer_position[0]:
            return None
        start = consumer % self._size
        (length,) = _LENGTH.unpack_from(self._records, start)
        if length & BUSY:
            return None
        size = length & _LENGTH_MASK
        begin = start + HEADER_SIZE
        payload = b"" if length & DISCARDED else bytes(self._records[begin : begin + size])
        self._consumer_position[0] = consumer + HEADER_SIZE + (size + 7) // 8 * 8
        return payload

    def close(self) -> None:
        """Unmaps the ring."""
        for view in (self._consumer_position, self._producer_position, self._records):
            view.release()
        self._consumer.close()
        self._data.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
