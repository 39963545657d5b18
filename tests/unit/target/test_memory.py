import ctypes
import os

import pytest

from greenscope.errors import TargetNotFound
from greenscope.target.memory import MAX_READ_BYTES, LiveMemory, RecordedMemory


def test_live_memory_gives_the_bytes_at_an_address() -> None:
    buffer = ctypes.create_string_buffer(b"held by the hub")
    with LiveMemory(os.getpid()) as memory:
        assert memory.read(ctypes.addressof(buffer), 8) == b"held by "


@pytest.mark.parametrize(
    ("address", "size"), [(0, 8), (8, 8), (-8, 8), (1 << 63, 8), ((1 << 64) - 1, 8), (4096, -1)]
)
def test_unreadable_live_memory_is_none(address: int, size: int) -> None:
    with LiveMemory(os.getpid()) as memory:
        assert memory.read(address, size) is None


def test_absurd_length_is_none_and_takes_no_memory() -> None:
    buffer = ctypes.create_string_buffer(8)
    with LiveMemory(os.getpid()) as memory:
        assert memory.read(ctypes.addressof(buffer), MAX_READ_BYTES + 1) is None


def test_closed_memory_is_none() -> None:
    memory = LiveMemory(os.getpid())
    memory.close()
    assert memory.read(ctypes.addressof(ctypes.create_string_buffer(8)), 8) is None


def test_memory_of_a_process_that_is_gone_is_not_found() -> None:
    with pytest.raises(TargetNotFound):
        LiveMemory(4999999)


@pytest.mark.parametrize(
    ("address", "size", "expected"),
    [
        (0x1000, 4, b"abcd"),
        (0x1002, 4, b"cdef"),  # over the seam of two pieces
        (0x1004, 2, b"ef"),
        (0x1004, 3, None),
        (0x0FFF, 2, None),
        (0x2001, 1, b"y"),
        (0x1000, 0, b""),
    ],
)
def test_recorded_memory_reads_over_seams_but_not_over_holes(
    address: int, size: int, expected: bytes | None
) -> None:
    memory = RecordedMemory({0x2000: b"xyz", 0x1000: b"abcd", 0x1004: b"ef"})
    assert memory.read(address, size) == expected
