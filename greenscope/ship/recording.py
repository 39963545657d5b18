"""The sink of `-o FILE`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from greenscope.model import Record, Session
from greenscope.records.batching import Batcher
from greenscope.records.recording import RecordingWriter


class RecordingSink:
    """Writes records into a file, at the latest a second after they came.

    So an agent that is killed loses one second. Writing raises RecordingError when the disk is
    full; what is in the file then is a valid recording.
    """

    def __init__(self, path: Path, session: Session) -> None:
        self._writer = RecordingWriter(path, session)
        self._batcher = Batcher(time.monotonic_ns)

    def write(self, records: Sequence[Record]) -> None:
        """Takes records; writes the batches that are full or old."""
        for batch in self._batcher.add(records):
            self._writer.write_batch(batch)

    def close(self) -> None:
        """Writes the last batch and ends the file."""
        try:
            for batch in self._batcher.cut():
                self._writer.write_batch(batch)
        finally:
            self._writer.close()
