"""When a batch is full: cutting a stream of records into batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from greenscope.model import Loss, Record
from greenscope.records.encode import BatchEncoder
from greenscope.records.kinds import MAX_BATCH_BYTES

# Large enough that definitions are rare in it, small enough that a lost one costs little.
FULL_BYTES: Final = 256 << 10
MAX_AGE_NS: Final = 1_000_000_000


class Batcher:
    """Cuts records into batches by size, and by age when asked.

    A batch that would be longer than a reader accepts (only a record with megabytes of names
    does that) is dropped and counted in the next one.
    """

    def __init__(self, clock_ns: Callable[[], int], max_age_ns: int = MAX_AGE_NS) -> None:
        self._encoder = BatchEncoder()
        self._clock_ns = clock_ns
        self._max_age_ns = max_age_ns
        self._first_ns = 0

    def add(self, records: Iterable[Record]) -> Iterator[bytes]:
        """Takes records; gives the batches that became full, the old ones too."""
        for record in records:
            if not self._encoder.record_count:
                self._first_ns = self._clock_ns()
            self._encoder.add(record)
            if self._encoder.size_bytes >= FULL_BYTES:
                yield from self.cut()
        if self._clock_ns() - self._first_ns >= self._max_age_ns:
            yield from self.cut()

    def cut(self) -> Iterator[bytes]:
        """Gives what there is as a batch, if there is anything."""
        count, size_bytes = self._encoder.record_count, self._encoder.size_bytes
        if not count:
            return
        batch = self._encoder.finish()
        if size_bytes <= MAX_BATCH_BYTES:
            yield batch
        else:
            now_ns = self._clock_ns()
            self._encoder.add(Loss("records", count, self._first_ns, now_ns))
            self._first_ns = now_ns
