from __future__ import annotations

from greenscope.bpf import abi
from greenscope.bpf.places import place_of
from greenscope.target.usdt import ArgumentKind, parse_arguments

ADDRESSES = {"counter": 0x5500_0000_1000}


def test_operands_are_those_of_the_note() -> None:
    place = place_of(7, parse_arguments("-4@%eax 8@16(%rsp)"), ADDRESSES.get)
    assert (place.probe, place.nr_args) == (7, 2)
    first, second = place.args[0], place.args[1]
    assert (first.kind, first.base, first.index) == (abi.UsdtKind.REGISTER, 80, abi.NO_REGISTER)
    assert (first.unused_bits, first.is_signed) == (32, 1)
    assert (second.kind, second.value, second.unused_bits) == (abi.UsdtKind.MEMORY, 16, 0)


def test_symbol_becomes_its_address() -> None:
    operand = place_of(0, parse_arguments("8@counter+8(%rip)"), ADDRESSES.get).args[0]
    assert (operand.value, operand.base) == (0x5500_0000_1008, abi.NO_REGISTER)


def test_symbol_that_is_nowhere_cannot_be_read() -> None:
    operand = place_of(0, parse_arguments("8@other(%rip)"), ADDRESSES.get).args[0]
    assert operand.kind == abi.UsdtKind.NONE


def test_no_more_than_twelve() -> None:
    assert place_of(0, parse_arguments("8@%rax " * 20), ADDRESSES.get).nr_args == abi.USDT_ARGS


def test_both_sides_number_the_kinds_alike() -> None:
    assert {k.name: k.value for k in abi.UsdtKind} == {k.name: k.value for k in ArgumentKind}
