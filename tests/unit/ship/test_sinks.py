from pathlib import Path

from greenscope.records.recording import RecordingReader
from greenscope.ship.recording import RecordingSink
from greenscope.ship.sink import MemorySink, Sink
from tests.harness.records import SESSION, sample_records


def test_memory_keeps_records_in_their_order() -> None:
    sink = MemorySink()
    sink.write(sample_records()[:3])
    sink.write(sample_records()[3:])
    sink.close()
    assert sink.records == sample_records()


def test_recording_is_complete_once_closed(tmp_path: Path) -> None:
    path = tmp_path / "a.gscope"
    sink: Sink = RecordingSink(path, SESSION)
    sink.write(sample_records()[:3])
    sink.write(sample_records()[3:])
    sink.close()
    with RecordingReader(path) as reader:
        assert reader.session == SESSION
        assert list(reader) == sample_records()
