"""Objects of this interpreter, read from outside; id() is their address."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from greenscope.offsets.rows import ROWS
from greenscope.rebuild.objects import dict_items, dict_value, method_code
from greenscope.target.memory import LiveMemory, RecordedMemory

OFFSETS = ROWS.get(sys.version_info[:2])

pytestmark = pytest.mark.skipif(OFFSETS is None, reason="no offsets of this interpreter")


class Base:
    def run(self) -> int:
        return 1


class Derived(Base):
    def __init__(self) -> None:
        self.first, self.second = object(), object()


@pytest.fixture
def memory() -> Iterator[LiveMemory]:
    with LiveMemory(os.getpid()) as live:
        yield live


@pytest.mark.parametrize(
    "made",
    [
        {},
        {"name": 1},
        {f"key {number}": number for number in range(300)},
        {1: "a", "b": 2, None: 3},
    ],
    ids=["empty", "texts", "large", "general"],
)
def test_items_come_in_the_order_of_the_dict(
    memory: LiveMemory, made: dict[object, object]
) -> None:
    found = list(dict_items(memory, id(made), OFFSETS))
    assert found == [(id(key), id(value)) for key, value in made.items()]


def test_deleted_entries_are_left_out(memory: LiveMemory) -> None:
    made = {name: object() for name in ("a", "b", "c")}
    del made["b"]
    assert [value for _, value in dict_items(memory, id(made), OFFSETS)] == [
        id(made["a"]),
        id(made["c"]),
    ]


def test_dict_of_an_instance_shares_its_keys(memory: LiveMemory) -> None:
    others = [Derived() for _ in range(3)]
    attributes = others[-1].__dict__
    assert dict_value(memory, id(attributes), "second", OFFSETS) == id(others[-1].second)
    assert dict_value(memory, id(attributes), "third", OFFSETS) is None


def test_method_of_a_base_is_found(memory: LiveMemory) -> None:
    assert method_code(memory, id(Derived), "run", OFFSETS) == id(Base.run.__code__)
    assert method_code(memory, id(Derived), "walk", OFFSETS) is None


def test_what_cannot_be_read_gives_nothing() -> None:
    nowhere = RecordedMemory({})
    assert list(dict_items(nowhere, 0x1000, OFFSETS)) == []
    assert dict_value(nowhere, 0x1000, "name", OFFSETS) is None
    assert method_code(nowhere, 0x1000, "run", OFFSETS) is None


def test_what_is_no_dict_gives_nothing(memory: LiveMemory) -> None:
    text = "x" * 200
    assert list(dict_items(memory, id(text), OFFSETS)) == []
