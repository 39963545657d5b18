"""The place of a greenlet's object inside of greenlet::Greenlet, by the hub that we know."""

from __future__ import annotations

import struct

import pytest

from greenscope.offsets.rows import ROWS
from greenscope.rebuild.hubs import ThreadHub, greenlet_self_offset
from greenscope.target.memory import RecordedMemory

HUB, GREENLET = 0x7000, 0x9000
OFFSETS = ROWS[3, 11]


def memory_of(*words: int) -> RecordedMemory:
    """A hub whose greenlet::Greenlet begins with these words."""
    data = struct.pack(f"<{len(words)}Q", *words).ljust(256, b"\0")
    pointer = struct.pack("<Q", GREENLET)
    return RecordedMemory({HUB + OFFSETS.object_size + 16: pointer, GREENLET: data})


@pytest.mark.parametrize("index", [1, 5, 17])
def test_it_is_where_the_hubs_own_address_is(index: int) -> None:
    words = [0x1000 + number for number in range(20)]
    words[index] = HUB
    hub = ThreadHub(1, HUB, 0x100, is_greenlet=True)
    assert greenlet_self_offset([hub], memory_of(*words), OFFSETS) == 8 * index


@pytest.mark.parametrize(
    "hub",
    [ThreadHub(1, HUB, 0x100, is_greenlet=True), ThreadHub(1, HUB, 0x100, is_greenlet=False)],
    ids=["without its address", "no greenlet"],
)
def test_without_it_nothing_is_known(hub: ThreadHub) -> None:
    assert greenlet_self_offset([hub], memory_of(1, 2, 3), OFFSETS) == 0


def test_unreadable_hub_tells_nothing() -> None:
    hub = ThreadHub(1, HUB, 0x100, is_greenlet=True)
    assert greenlet_self_offset([hub], RecordedMemory({}), OFFSETS) == 0
