"""MappedRing on a file that is laid out as the kernel lays out its ring buffer."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenscope.bpf import abi
from greenscope.bpf.ring import BUSY, DISCARDED, HEADER_SIZE, PAGE, MappedRing

SIZE = PAGE
PAIR = struct.Struct("<IH")  # 6 bytes, so that records are padded
STRIDE = HEADER_SIZE + 8


class FakeKernel:
    """The producer's side: both position pages, and the data pages twice."""

    def __init__(self, size: int = SIZE, begin: int = 0) -> None:
        self.size = size
        self.fd = os.memfd_create("ring")
        os.ftruncate(self.fd, 2 * PAGE + 2 * size)
        self._memory = mmap.mmap(self.fd, 0)
        self.consumer = begin
        self.producer = begin

    @property
    def consumer(self) -> int:
        return int.from_bytes(self._memory[:8], "little")

    @consumer.setter
    def consumer(self, position: int) -> None:
        self._memory[:8] = position.to_bytes(8, "little")

    @property
    def producer(self) -> int:
        return int.from_bytes(self._memory[PAGE : PAGE + 8], "little")

    @producer.setter
    def producer(self, position: int) -> None:
        self._memory[PAGE : PAGE + 8] = position.to_bytes(8, "little")

    def send(self, payload: bytes, flags: int = 0) -> bool:
        """As bpf_ringbuf_output(); False where there is no room."""
        length = HEADER_SIZE + (len(payload) + 7) // 8 * 8
        begin = self.producer
        if begin + length - self.consumer > self.size:
            return False
        self._write(begin, struct.pack("<II", len(payload) | flags, 0xDEAD) + payload)
        self.producer = begin + length
        return True

    def commit(self, position: int, size: int) -> None:
        """Takes the busy mark off the record at a position."""
        self._write(position, struct.pack("<I", size))

    def _write(self, position: int, data: bytes) -> None:
        for at, byte in enumerate(data, position):
            offset = 2 * PAGE + at % self.size
            self._memory[offset] = self._memory[offset + self.size] = byte

    def close(self) -> None:
        self._memory.close()
        os.close(self.fd)


@pytest.fixture
def kernel() -> Iterator[FakeKernel]:
    fake = FakeKernel()
    yield fake
    fake.close()


@pytest.fixture
def ring(kernel: FakeKernel) -> Iterator[MappedRing]:
    with MappedRing(kernel.fd, kernel.size) as mapped:
        yield mapped


def test_empty_ring_has_no_records(ring: MappedRing) -> None:
    assert ring.fixed(PAIR) == []
    assert list(ring.records()) == []


def test_records_of_one_size_are_decoded_in_order(kernel: FakeKernel, ring: MappedRing) -> None:
    for number in range(10):
        kernel.send(PAIR.pack(number, 7))
    assert ring.fixed(PAIR) == [(number, 7) for number in range(10)]
    assert kernel.consumer == kernel.producer == 10 * STRIDE


def test_taken_records_come_once(kernel: FakeKernel, ring: MappedRing) -> None:
    kernel.send(PAIR.pack(1, 1))
    ring.fixed(PAIR)
    assert ring.fixed(PAIR) == []
    kernel.send(PAIR.pack(2, 2))
    assert ring.fixed(PAIR) == [(2, 2)]


def test_events_of_the_kernel_side_are_decoded_whole(kernel: FakeKernel, ring: MappedRing) -> None:
    event = abi.Event(1, 2, 3, 0, -1, 5, 6, *(1 << 63 | n for n in range(8)))
    kernel.send(abi.EVENT.pack(*event))
    assert ring.fixed(abi.EVENT) == [event]


def test_full_ring_is_taken_whole_and_has_room_again(kernel: FakeKernel, ring: MappedRing) -> None:
    count = SIZE // STRIDE
    assert [kernel.send(PAIR.pack(n, 0)) for n in range(count + 1)] == [True] * count + [False]
    assert len(ring.fixed(PAIR)) == count
    assert kernel.send(PAIR.pack(0, 0))


@pytest.mark.parametrize("begin", [SIZE - STRIDE, SIZE - 8, 5 * SIZE - 2 * STRIDE, 1 << 40])
def test_records_that_wrap_around_read_straight_on(begin: int) -> None:
    kernel = FakeKernel(begin=begin)
    with MappedRing(kernel.fd, SIZE) as ring:
        for number in range(20):
            kernel.send(PAIR.pack(number, 1))
        assert ring.fixed(PAIR) == [(number, 1) for number in range(20)]
        for number in range(20):
            kernel.send(bytes([number]) * (number + 1))
        assert list(ring.records()) == [bytes([n]) * (n + 1) for n in range(20)]
    kernel.close()


def test_record_that_is_not_finished_holds_up_those_behind_it(
    kernel: FakeKernel, ring: MappedRing
) -> None:
    kernel.send(PAIR.pack(1, 0))
    kernel.send(PAIR.pack(2, 0), BUSY)
    kernel.send(PAIR.pack(3, 0))
    assert ring.fixed(PAIR) == [(1, 0)]
    assert kernel.consumer == STRIDE
    assert ring.fixed(PAIR) == []
    kernel.commit(STRIDE, PAIR.size)
    assert ring.fixed(PAIR) == [(2, 0), (3, 0)]


def test_discarded_record_is_skipped(kernel: FakeKernel, ring: MappedRing) -> None:
    for number, flags in enumerate((DISCARDED, 0, DISCARDED, 0, DISCARDED)):
        kernel.send(PAIR.pack(number, 0), flags)
    assert ring.fixed(PAIR) == [(1, 0), (3, 0)]
    assert kernel.consumer == kernel.producer


def test_records_of_any_size_come_in_order(kernel: FakeKernel, ring: MappedRing) -> None:
    payloads = [bytes([size % 256]) * size for size in (1, 7, 8, 9, 500, 24, 1000)]
    for payload in payloads:
        kernel.send(payload)
    assert list(ring.records()) == payloads
    assert kernel.consumer == kernel.producer


def test_record_of_any_size_is_freed_as_it_is_taken(kernel: FakeKernel, ring: MappedRing) -> None:
    kernel.send(b"a" * 3)
    kernel.send(b"b" * 9)
    records = ring.records()
    assert next(records) == b"aaa"
    assert kernel.consumer == 16
    assert next(records) == b"b" * 9
    assert kernel.consumer == 16 + 24


def test_records_of_any_size_stop_at_an_unfinished_one(
    kernel: FakeKernel, ring: MappedRing
) -> None:
    kernel.send(b"first")
    kernel.send(b"second", BUSY)
    kernel.send(b"third")
    assert list(ring.records()) == [b"first"]
    kernel.commit(16, len(b"second"))
    assert list(ring.records()) == [b"second", b"third"]


def test_discarded_record_of_any_size_is_skipped(kernel: FakeKernel, ring: MappedRing) -> None:
    kernel.send(b"gone", DISCARDED)
    kernel.send(b"kept")
    assert list(ring.records()) == [b"kept"]


def test_records_that_arrive_while_others_are_taken_are_taken_too(
    kernel: FakeKernel, ring: MappedRing
) -> None:
    kernel.send(b"one")
    records = ring.records()
    assert next(records) == b"one"
    kernel.send(b"two")
    assert list(records) == [b"two"]


def test_descriptor_stays_the_callers(kernel: FakeKernel) -> None:
    ring = MappedRing(kernel.fd, SIZE)
    ring.close()
    assert os.fstat(kernel.fd).st_size == 2 * PAGE + 2 * SIZE


STEPS = st.lists(
    st.tuples(st.binary(max_size=8), st.sampled_from([0, 0, 0, DISCARDED])) | st.none(), max_size=80
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(steps=STEPS, begin=st.integers(0, 4 * SIZE // 8).map(lambda words: 8 * words))
def test_every_record_that_was_sent_arrives_once_and_in_order(
    steps: list[tuple[bytes, int] | None], begin: int
) -> None:
    """None: the ring is drained."""
    kernel = FakeKernel(begin=begin)
    eight = struct.Struct("<8s")
    sent, taken = [], []
    with MappedRing(kernel.fd, SIZE) as ring:
        for step in (*steps, None):
            if step is None:
                taken += [record for (record,) in ring.fixed(eight)]
                continue
            payload = step[0].ljust(8, b"\0")
            if kernel.send(payload, step[1]) and not step[1]:
                sent.append(payload)
    kernel.close()
    assert taken == sent
