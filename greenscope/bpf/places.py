"""The operands of USDT probes as the programs in the kernel read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from greenscope.bpf import abi
from greenscope.target.usdt import Argument, ArgumentKind

_WORD_BITS = 64


def place_of(
    probe: int, arguments: Sequence[Argument], symbol_addr: Callable[[str], int | None]
) -> abi.Place:
    """One place of a probe; `probe` is the number by which its events tell it.

    `symbol_addr` gives the address of a symbol in the target. An argument that cannot be read
    is one of kind NONE; what is beyond the twelfth is left out.
    """
    place = abi.Place(probe=probe, nr_args=min(len(arguments), abi.USDT_ARGS))
    for index, argument in enumerate(arguments[: abi.USDT_ARGS]):
        place.args[index] = _operand(argument, symbol_addr)
    return place


def _operand(argument: Argument, symbol_addr: Callable[[str], int | None]) -> abi.UsdtArg:
    value = argument.value
    if argument.symbol:
        address = symbol_addr(argument.symbol)
        if address is None:
            return abi.UsdtArg(kind=ArgumentKind.NONE)
        value += address
    return abi.UsdtArg(
        value=value,
        base=abi.NO_REGISTER if argument.base is None else argument.base,
        index=abi.NO_REGISTER if argument.index is None else argument.index,
        kind=argument.kind,
        scale_shift=argument.scale_shift,
        unused_bits=_WORD_BITS - 8 * argument.size_bytes,
        is_signed=argument.is_signed,
    )
