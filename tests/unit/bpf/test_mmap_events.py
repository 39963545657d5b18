"""Parsing of perf's mapping records, laid out as perf_event_open(2) says."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenscope.bpf.mmap_events import MappedEvent, MappingEvents, _parse

MMAP, LOST = 1, 2
# PERF_RECORD_MMAP of process 0x1234, which maps libz.
RECORDED = bytes.fromhex(
    "01000000020058003412000034120000"
    "0030e5b3917f0000006001000000000000300000000000002f7573722f6c6962"
    "2f7838365f36342d6c696e75782d676e752f6c69627a2e736f2e312e322e3133"
    "0000000000000000"
)


def record(path: bytes, pid: int = 7, kind: int = MMAP) -> bytes:
    name = path + b"\0"
    name += bytes(-len(name) % 8)
    body = struct.pack("<IIQQQ", pid, pid + 1, 0x7000, 0x1000, 0) + name
    return struct.pack("<IHH", kind, 2, 8 + len(body)) + body


def test_record_gives_the_process_and_the_path() -> None:
    assert list(_parse(RECORDED)) == [
        MappedEvent(0x1234, "/usr/lib/x86_64-linux-gnu/libz.so.1.2.13")
    ]


def test_records_come_in_order() -> None:
    data = record(b"/a", 1) + record(b"/some/where/else", 2) + record(b"/c", 3)
    assert list(_parse(data)) == [
        MappedEvent(1, "/a"),
        MappedEvent(2, "/some/where/else"),
        MappedEvent(3, "/c"),
    ]


def test_records_of_other_kinds_are_passed_over() -> None:
    data = record(b"/lost", kind=LOST) + record(b"/b")
    assert list(_parse(data)) == [MappedEvent(7, "/b")]


def test_path_that_is_no_utf8_is_kept() -> None:
    assert list(_parse(record(b"/\xff\xfe"))) == [MappedEvent(7, "/\udcff\udcfe")]


def test_record_of_impossible_size_ends_the_parsing() -> None:
    assert list(_parse(struct.pack("<IHH", MMAP, 0, 0) * 4)) == []


@settings(deadline=None, derandomize=True)
@given(data=st.binary(max_size=300))
def test_any_bytes_are_parsed_to_their_end(data: bytes) -> None:
    assert len(list(_parse(data))) <= len(data) // 8


class Ring(bytearray):
    """What is mapped: the first page, and 16 pages of data."""


@pytest.mark.parametrize("start", [0, 100 * 8, 65536 - 40, 5 * 65536 - 8])
def test_data_that_wraps_around_is_put_together(start: int) -> None:
    data = record(b"/usr/lib/libgreen.so")
    ring = Ring(4096 + 65536)
    for at, byte in enumerate(data, start):
        ring[4096 + at % 65536] = byte
    copied = MappingEvents._copy(ring, start, start + len(data))  # type: ignore[arg-type]
    assert copied == data


def test_ring_that_was_overrun_gives_nothing() -> None:
    assert MappingEvents._copy(Ring(4096 + 65536), 0, 65536) == b""  # type: ignore[arg-type]
