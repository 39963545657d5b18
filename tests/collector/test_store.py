import multiprocessing
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.store.base import SessionRow
from collector.store.directory import DataDirectory, DirectoryInUse
from collector.store.embedded import EmbeddedStore, quoted
from greenscope.errors import CollectorError
from greenscope.model import Loss, Record, Session
from tests.harness.records import RECORDS, SESSION, sample_records

ID = SESSION.session_id


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    opened = EmbeddedStore(tmp_path / "data")
    yield opened
    opened.close()


def other_session(digit: str, start_unix_ns: int = SESSION.start_unix_ns) -> Session:
    return replace(SESSION, session_id=digit * 32, start_unix_ns=start_unix_ns)


def test_records_come_back_as_they_were(store: EmbeddedStore) -> None:
    store.add_session(SESSION)
    assert store.add_batch(ID, 0, sample_records())
    assert list(store.batches(ID)) == [(0, sample_records())]


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(RECORDS, max_size=6), st.integers(0, 2**63))
def test_any_records_come_back_as_they_were(
    store: EmbeddedStore, records: list[Record], number: int
) -> None:
    if store.add_batch(ID, number, records):
        assert dict(store.batches(ID))[number] == records


def test_batch_is_stored_once(store: EmbeddedStore) -> None:
    first, second = sample_records()[:3], sample_records()[3:]
    outcomes = [
        store.add_batch(ID, 0, first),
        store.add_batch(ID, 1, second),
        store.add_batch(ID, 0, first),
        store.add_batch("f" * 32, 0, first),
    ]
    assert outcomes == [True, True, False, True]
    assert list(store.batches(ID)) == [(0, first), (1, second)]


def test_empty_batch_is_stored_once_too(store: EmbeddedStore) -> None:
    assert store.add_batch(ID, 0, [])
    assert not store.add_batch(ID, 0, [])


def test_what_is_stored_outlives_the_process_that_stored_it(tmp_path: Path) -> None:
    first = EmbeddedStore(tmp_path / "data")
    first.add_session(SESSION)
    first.add_batch(ID, 5, sample_records())
    first.close()
    again = EmbeddedStore(tmp_path / "data")
    assert again.sessions() == [SessionRow(SESSION, 1)]
    assert not again.add_batch(ID, 5, sample_records())
    assert list(again.batches(ID)) == [(5, sample_records())]
    again.close()


def test_batches_come_by_number_however_they_arrived(store: EmbeddedStore) -> None:
    numbers = [3, 200, 0, 100, 1, *range(300, 400)]
    for number in numbers:
        store.add_batch(ID, number, [Loss("x", number, 0, 0)])
    expected = [(number, [Loss("x", number, 0, 0)]) for number in sorted(numbers)]
    assert list(store.batches(ID)) == expected


def test_insert_is_one_part_so_that_it_is_there_as_a_whole_or_not(store: EmbeddedStore) -> None:
    many: list[Record] = sample_records() * 2000
    store.add_batch(ID, 0, many)
    parts = store._select(
        "SELECT count(), sum(rows) FROM system.parts WHERE table = 'records' AND active"
    )
    assert parts == [[1, len(many) + 1]]


def test_sessions_are_listed_with_the_latest_first(store: EmbeddedStore) -> None:
    old, new = other_session("a", 5), other_session("b", 7)
    for session in (old, new, old):
        store.add_session(session)
    store.add_batch(old.session_id, 0, [])
    store.add_batch(old.session_id, 1, sample_records())
    assert store.sessions() == [SessionRow(new, 0), SessionRow(old, 2)]


def test_records_of_unknown_kinds_are_counted(store: EmbeddedStore) -> None:
    store.add_batch(ID, 0, [], skipped=3)
    store.add_batch(ID, 1, sample_records(), skipped=0)
    (_, first), (_, second) = store.batches(ID)
    assert first == [Loss("records of unknown kinds", 3, 0, 0)]
    assert second == sample_records()


@given(st.text())
def test_quoted_text_has_no_way_out(text: str) -> None:
    inside = quoted(text)[1:-1].replace("\\\\", "").replace("\\'", "")
    assert "'" not in inside
    assert "\0" not in inside


@pytest.mark.parametrize("text", ["it's", "\\", "\\'", "'; DROP TABLE records; --", "ä\n\0\t"])
def test_quoted_text_is_the_text(store: EmbeddedStore, text: str) -> None:
    assert store._select(f"SELECT {quoted(text)}") == [[text]]


def _hold_directory(path: Path, ready: object, done: object) -> None:
    directory = DataDirectory(path)
    directory.announce("unix:/run/there.sock")
    ready.set()
    done.wait(60)


def test_directory_belongs_to_one_process_which_says_where_it_listens(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    holder = context.Process(target=_hold_directory, args=[tmp_path, ready, done])
    holder.start()
    try:
        assert ready.wait(60)
        with pytest.raises(DirectoryInUse) as caught:
            DataDirectory(tmp_path)
        assert caught.value.address == "unix:/run/there.sock"
        assert "--collector unix:/run/there.sock" in caught.value.hint
    finally:
        holder.kill()
        holder.join()
    DataDirectory(tmp_path).close()


def test_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(CollectorError, match="there is no data directory"):
        DataDirectory(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(CollectorError, match="cannot use the data directory"):
        DataDirectory(tmp_path / "file")
