import contextlib

import msgpack
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from greenscope.model import Code, CodeOrigin, Frame, Loss, Record, SessionEnd, Stack
from greenscope.records.decode import Batch, DamagedBatch, decode_batch, decode_session
from greenscope.records.encode import BatchEncoder, encode_session
from greenscope.records.kinds import MAX_BATCH_BYTES, Kind
from tests.harness.records import RECORDS, SESSION, hold, piece, sample_records


def encode(records: list[Record]) -> bytes:
    encoder = BatchEncoder()
    for record in records:
        encoder.add(record)
    return encoder.finish()


def raw_batch(*arrays: object) -> bytes:
    return zstandard.compress(b"".join(msgpack.packb(array) for array in arrays))


SAMPLE = encode(sample_records())


@given(st.lists(RECORDS, max_size=12))
@example(sample_records())
def test_any_records_come_back_as_they_were(records: list[Record]) -> None:
    assert decode_batch(encode(records)) == Batch(tuple(records))


def test_batch_is_self_contained() -> None:
    encoder = BatchEncoder()
    batches = []
    for record in sample_records() * 2:
        encoder.add(record)
        batches.append(encoder.finish())
    read = [decode_batch(batch).records for batch in reversed(batches)]
    assert read == [(record,) for record in reversed(sample_records() * 2)]


def test_session_comes_back_as_it_was() -> None:
    assert decode_session(encode_session(SESSION)) == SESSION


def test_fields_of_a_newer_writer_are_ignored() -> None:
    batch = raw_batch(
        [Kind.STRING, "events", "new field"],
        [Kind.LOSS, 0, 7, 100, 5, {"more": 1}, "and more"],
    )
    assert decode_batch(batch) == Batch((Loss("events", 7, 100, 105),))
    session = msgpack.packb([*msgpack.unpackb(encode_session(SESSION)), "new field"])
    assert decode_session(session) == SESSION


def test_kinds_of_a_newer_writer_are_skipped_and_counted() -> None:
    batch = raw_batch(
        [15, "a new definition"], [Kind.STRING, "x"], [99, 1, 2], [Kind.SESSION_END, 5, 0], [100]
    )
    assert decode_batch(batch) == Batch((SessionEnd(5, "x"),), skipped=3)


def test_name_that_is_not_utf8_is_escaped() -> None:
    code = Code("f\udcff", "/srv/\ud800.py", 1, CodeOrigin.APPLICATION)
    (read,) = decode_batch(encode([hold(piece(Stack((Frame(code, 1),)), "cpu", 5))])).records
    expected = Code(r"f\udcff", r"/srv/\ud800.py", 1, CodeOrigin.APPLICATION)
    assert read == hold(piece(Stack((Frame(expected, 1),)), "cpu", 5))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    for decode in (decode_batch, decode_session):
        with pytest.raises(DamagedBatch):
            decode(data)


@given(st.integers(0, len(zstandard.decompress(SAMPLE)) - 1), st.integers(0, 255))
def test_changed_byte_gives_records_or_is_refused(position: int, value: int) -> None:
    data = bytearray(zstandard.decompress(SAMPLE))
    data[position] = value
    with contextlib.suppress(DamagedBatch):
        decode_batch(zstandard.compress(bytes(data)))


@given(st.integers(1, len(zstandard.decompress(SAMPLE)) - 1))
def test_cut_stream_gives_fewer_records_or_is_refused(length: int) -> None:
    try:
        batch = decode_batch(zstandard.compress(zstandard.decompress(SAMPLE)[:length]))
    except DamagedBatch:
        return
    assert batch.records == tuple(sample_records())[: len(batch.records)]


@pytest.mark.parametrize(
    "array",
    [
        7,
        [],
        ["17"],
        [Kind.LOSS, 0, 1, 2, 3],  # a string that is not defined
        [Kind.SESSION_END],
        [Kind.FRAME, -1, 5],
        [Kind.HOLDS, [0], [1], [1], [1], [0], [0], [2**60], [], [], []],
        [Kind.HOLDS, [0, 0], [1], [1], [1], [0], [0], [0], [], [], []],
    ],
)
def test_array_that_fits_nothing_is_refused(array: object) -> None:
    with pytest.raises(DamagedBatch):
        decode_batch(raw_batch([Kind.THREAD, 1], array))


def test_batch_that_claims_to_be_huge_is_refused_before_memory_is_taken() -> None:
    # RFC 8878, 3.1.1.1: the descriptor 0xe0 announces a frame content size of 8 bytes.
    huge = b"\x28\xb5\x2f\xfd\xe0" + (2**62).to_bytes(8, "little") + b"\x01\x00\x00"
    with pytest.raises(DamagedBatch, match="says to be"):
        decode_batch(huge)
    bomb = zstandard.compress(bytes(MAX_BATCH_BYTES + 1))
    with pytest.raises(DamagedBatch, match="says to be"):
        decode_batch(bomb)


def test_array_that_claims_to_be_huge_is_refused() -> None:
    with pytest.raises(DamagedBatch):
        decode_batch(zstandard.compress(b"\xdd\xff\xff\xff\xff\x01"))
