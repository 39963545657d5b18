"""The same records give the same report, whatever way they went."""

import json
from pathlib import Path

from collector.query import RemoteSource, StoreSource
from collector.reports.build import build_report
from collector.reports.document import to_json
from collector.reports.text import render_text
from collector.store.embedded import EmbeddedStore
from greenscope.records.recording import RecordingReader
from greenscope.ship.collector import CollectorSink
from greenscope.ship.recording import RecordingSink
from greenscope.ship.sink import MemorySink, Sink
from tests.harness.collector import running_collector
from tests.harness.records import SESSION, sample_records


def test_memory_recording_and_collector_give_the_identical_report(tmp_path: Path) -> None:
    path, data = tmp_path / "a.gscope", tmp_path / "data"
    memory = MemorySink()
    with running_collector(data) as collector:
        shipped = CollectorSink(collector.tcp, SESSION)
        shipped.connect_or_fail()
        sinks: list[Sink] = [memory, RecordingSink(path, SESSION), shipped]
        for record in sample_records():
            for sink in sinks:
                sink.write([record])
        for sink in sinks:
            sink.close()
        assert shipped.unacknowledged == 0
        from_collector = build_report(*RemoteSource(collector.unix).session("latest"))
        assert collector.end() == 0
    from_memory = build_report(SESSION, memory.records)
    with RecordingReader(path) as reader:
        from_recording = build_report(reader.session, reader)
    store = EmbeddedStore(data)
    from_store = build_report(*StoreSource(store).session(SESSION.session_id[:6]))
    store.close()

    reports = [from_memory, from_recording, from_collector, from_store]
    assert reports == [from_memory] * 4
    assert len({json.dumps(to_json(report)) for report in reports}) == 1
    assert len({render_text(report) for report in reports}) == 1
    assert len(from_memory.hotspots) == 4
