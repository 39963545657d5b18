import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenscope.errors import RecordingError
from greenscope.model import Loss, Record, SessionEnd
from greenscope.records.batching import Batcher
from greenscope.records.encode import BatchEncoder
from greenscope.records.recording import MAGIC, RecordingReader, RecordingWriter
from tests.harness.records import SESSION, START, sample_records

EACH = [SessionEnd(START + number, "x") for number in range(5)]
LAST = START + 4


def write(path: Path, batches: list[list[Record]]) -> list[int]:
    """Writes one batch for each list; gives the file's length after each."""
    writer = RecordingWriter(path, SESSION)
    lengths = [path.stat().st_size]
    encoder = BatchEncoder()
    for records in batches:
        for record in records:
            encoder.add(record)
        writer.write_batch(encoder.finish())
        lengths.append(path.stat().st_size)
    writer.close()
    return lengths


def read(path: Path) -> tuple[list[Record], bool]:
    with RecordingReader(path) as reader:
        assert reader.session == SESSION
        records = list(reader)
        return records, reader.tail_cut


def test_recording_gives_the_records_back(tmp_path: Path) -> None:
    path = tmp_path / "a.gscope"
    write(path, [sample_records(), EACH])
    assert read(path) == ([*sample_records(), *EACH], False)


def test_recording_cut_anywhere_gives_what_is_before(tmp_path: Path) -> None:
    path = tmp_path / "a.gscope"
    lengths = write(path, [[record] for record in EACH])
    whole = path.read_bytes()
    for length in range(lengths[0], len(whole)):
        path.write_bytes(whole[:length])
        complete = sum(end <= length for end in lengths[1:])
        left = length - lengths[complete]
        last = EACH[complete - 1].end_ktime_ns if complete else START
        lost = [Loss("bytes at the end of the recording", left, last, last)] if left else []
        assert read(path) == ([*EACH[:complete], *lost], bool(left))


def test_damaged_batch_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.gscope"
    lengths = write(path, [[record] for record in EACH])
    data = bytearray(path.read_bytes())
    data[lengths[2] - 1] ^= 0xFF
    path.write_bytes(data)
    assert read(path) == ([EACH[0], *EACH[2:], Loss("batches", 1, LAST, LAST)], False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_anywhere_is_survived_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "a.gscope"
    path.unlink(missing_ok=True)
    write(path, [[record] for record in EACH])
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    records: list[Record] = []
    with contextlib.suppress(RecordingError), RecordingReader(path) as reader:
        records = list(reader)
    ends = [record for record in records if isinstance(record, SessionEnd)]
    assert ends == [record for record in EACH if record in ends]


def test_length_that_is_a_lie_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.gscope"
    write(path, [EACH])
    with path.open("ab") as file:
        file.write(struct.pack("<II", 0xFFFFFFFF, 0) + b"abc")
    records, cut = read(path)
    assert cut
    assert records[-1] == Loss("bytes at the end of the recording", 11, LAST, LAST)


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"#!/usr/bin/python3\nprint()\n" * 9, MAGIC, MAGIC + b"\x01\x00\x00\x00" * 3],
)
def test_file_that_is_no_recording_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "app.py"
    path.write_bytes(content)
    with pytest.raises(RecordingError) as caught:
        RecordingReader(path)
    assert caught.value.hint
    assert str(path) in caught.value.message


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        RecordingReader(tmp_path / "none")


def test_newer_recording_is_refused_by_its_version(tmp_path: Path) -> None:
    path = tmp_path / "a.gscope"
    write(path, [EACH])
    data = bytearray(path.read_bytes())
    data[len(MAGIC)] = 9
    path.write_bytes(data)
    with pytest.raises(RecordingError, match="schema version 9"):
        RecordingReader(path)


def test_writer_takes_the_place_of_a_recording_but_of_no_other_file(tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    program.write_text("print('hello')\n")
    with pytest.raises(RecordingError, match="is no recording"):
        RecordingWriter(program, SESSION)
    assert program.read_text() == "print('hello')\n"
    older = tmp_path / "a.gscope"
    write(older, [sample_records(), EACH])
    write(older, [EACH])
    assert read(older) == (EACH, False)


def test_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        RecordingWriter(tmp_path / "none" / "a.gscope", SESSION)


def test_full_disk_is_said_and_what_was_written_stays_valid() -> None:
    # As on a full disk: every write to it fails with ENOSPC.
    with pytest.raises(RecordingError, match="No space left"):
        RecordingWriter(Path("/dev/full"), SESSION)


def test_batch_is_cut_by_age_and_by_size() -> None:
    now_ns = 0
    batcher = Batcher(lambda: now_ns, max_age_ns=100)
    assert list(batcher.add(EACH[:1])) == []
    now_ns = 99
    assert list(batcher.add(EACH[1:2])) == []
    now_ns = 100
    assert len(list(batcher.add([]))) == 1
    assert list(batcher.cut()) == []
    many = [Loss(f"{number} " * 50, 1, 0, 0) for number in range(3000)]
    assert len(list(batcher.add(many))) > 1
    assert len(list(batcher.cut())) == 1


def test_record_too_large_for_any_batch_is_counted() -> None:
    batcher = Batcher(lambda: 7)
    names = [chr(0x4E00 + number) * 4000 for number in range(800)]
    assert list(batcher.add([])) == []
    huge = [Loss(name, 1, 0, 0) for name in names]
    encoder = batcher._encoder
    for record in huge:
        encoder.add(record)
    assert encoder.size_bytes > 8 << 20
    assert list(batcher.cut()) == []
    assert encoder.record_count == 1
