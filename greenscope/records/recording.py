"""Recordings: one session and its batches in a file. docs/record-format.md is the contract."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from greenscope.errors import RecordingError
from greenscope.model import Loss, Record, Session
from greenscope.records.decode import Batch, DamagedBatch, decode_batch, decode_session
from greenscope.records.encode import encode_session
from greenscope.records.instants import latest_ktime_ns
from greenscope.records.kinds import MAX_BATCH_BYTES, SCHEMA_VERSION

# As in PNG: a byte that is no text, a name, and a line end that a text transfer would change.
MAGIC: Final = b"\x89GSREC\r\n"
_HEADER = struct.Struct("<8sHH")
_FRAME = struct.Struct("<II")

LOST_BATCHES: Final = "batches"
LOST_TAIL: Final = "bytes at the end of the recording"
LOST_KINDS: Final = "records of unknown kinds"


class RecordingWriter:
    """Writes a recording. Each batch is with the kernel when `write_batch` returns.

    An existing file is overwritten only when it is a recording, empty or no regular file.

    Raises:
        RecordingError: on creation and on every write that the system refuses.
    """

    def __init__(self, path: Path, session: Session) -> None:
        self._path = path
        self._file = _create(path)
        self._write(_HEADER.pack(MAGIC, SCHEMA_VERSION, 0) + _frame(encode_session(session)))

    def write_batch(self, batch: bytes) -> None:
        """Appends what `BatchEncoder.finish` gave."""
        self._write(_frame(batch))

    def close(self) -> None:
        """Ends the file; the writer is of no use afterwards."""
        self._file.close()

    def _write(self, data: bytes) -> None:
        try:
            # A nearly full disk takes a part; the next write then says what is wrong.
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            raise RecordingError(
                f"cannot write {self._path}: {error.strerror}",
                "What was written before is a valid recording.",
            ) from error


def _create(path: Path) -> BinaryIO:
    try:
        # Looked at before it is emptied: `-o app.py` must not cost somebody a program.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        file = open(descriptor, "r+b", buffering=0)  # noqa: SIM115  # the caller closes it
        if path.is_file():
            start = file.read(len(MAGIC))
            if start and start != MAGIC:
                file.close()
                raise RecordingError(
                    f"{path} exists and is no recording", "Give another name, or remove it."
                )
            file.seek(0)
            file.truncate()
    except OSError as error:
        raise RecordingError(
            f"cannot write {path}: {error.strerror}",
            "Give -o a file in a directory that exists and is writable.",
        ) from error
    return file


def _frame(payload: bytes) -> bytes:
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


class RecordingReader:
    """Reads a recording: `session` at once, the records by iterating, one batch at a time.

    What is damaged or cut does not end the run: the records around it are given, and after
    them `Loss` records that say how much is missing. `tail_cut` and `damaged_batches` are
    final when the iteration is.

    Raises:
        RecordingError: the file cannot be opened, is no recording, or is a newer one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.tail_cut = False
        self.damaged_batches = 0
        self.skipped_records = 0
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise RecordingError(f"cannot read {path}: {error.strerror}") from error
        try:
            self.session = self._read_session()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Record]:
        last_ns = self.session.start_ktime_ns
        for batch in self._batches():
            self.skipped_records += batch.skipped
            for record in batch.records:
                last_ns = max(last_ns, latest_ktime_ns(record))
                yield record
        for what, count in (
            (LOST_BATCHES, self.damaged_batches),
            (LOST_TAIL, self._tail_bytes()),
            (LOST_KINDS, self.skipped_records),
        ):
            if count:
                yield Loss(what, count, last_ns, last_ns)

    def _read_session(self) -> Session:
        try:
            header = self._file.read(_HEADER.size)
            if header[: len(MAGIC)] != MAGIC or len(header) < _HEADER.size:
                raise self._no_recording()
            version = _HEADER.unpack(header)[1]
            if version > SCHEMA_VERSION:
                raise RecordingError(
                    f"{self._path} is of schema version {version}, newer than {SCHEMA_VERSION}",
                    "Read it with the version of greenscope that wrote it, or a newer one.",
                )
            payload = self._payload()
            return decode_session(payload) if payload else self._refuse()
        except DamagedBatch as error:
            raise self._no_recording() from error
        except OSError as error:
            raise RecordingError(f"cannot read {self._path}: {error.strerror}") from error

    def _refuse(self) -> Session:
        raise RecordingError(
            f"{self._path} is cut or damaged before its first record", "Nothing can be read of it."
        )

    def _no_recording(self) -> RecordingError:
        return RecordingError(
            f"{self._path} is no recording of greenscope",
            "Recordings are written by `greenscope attach PID -o FILE`.",
        )

    def _batches(self) -> Iterator[Batch]:
        while (payload := self._payload()) is not None:
            try:
                yield decode_batch(payload)
            except DamagedBatch:
                self.damaged_batches += 1

    def _payload(self) -> bytes | None:
        """The next frame; b"" where its checksum is wrong; None at the end of what there is.

        A batch that is damaged in its middle costs only itself, for batches are self-contained.
        """
        header = self._file.read(_FRAME.size)
        if not header:
            return None
        self._tail_start = self._file.tell() - len(header)
        if len(header) == _FRAME.size:
            length_bytes, checksum = _FRAME.unpack(header)
            if length_bytes <= MAX_BATCH_BYTES:
                payload = self._file.read(length_bytes)
                if len(payload) == length_bytes:
                    return payload if zlib.crc32(payload) == checksum else b""
        self.tail_cut = True
        return None

    def _tail_bytes(self) -> int:
        if not self.tail_cut:
            return 0
        return self._file.seek(0, os.SEEK_END) - self._tail_start
