"""Arguments of USDT probes: where each lies when the probe is hit.

<sys/sdt.h> has the compiler write them down as assembler operands: "8@%rdx -4@%eax 8@-80(%rbx)
4@$7". The number before the `@` is the size in bytes, negative for a signed value; `f` behind
it marks a floating point value.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

# arch/x86/include/uapi/asm/ptrace.h, struct pt_regs without __KERNEL__: the place in it of each
# 64-bit register. The names of their parts follow in _NAMES.
_REGISTERS = {
    "r15": 0, "r14": 8, "r13": 16, "r12": 24, "rbp": 32, "rbx": 40, "r11": 48, "r10": 56,
    "r9": 64, "r8": 72, "rax": 80, "rcx": 88, "rdx": 96, "rsi": 104, "rdi": 112,
    "rip": 128, "rsp": 152,
}  # fmt: skip
_BYTES = {"al": "rax", "bl": "rbx", "cl": "rcx", "dl": "rdx"}
_HIGH_BYTES = {"ah": "rax", "bh": "rbx", "ch": "rcx", "dh": "rdx"}


def _names() -> dict[str, tuple[int, int]]:
    """{name of a register or of a part of one: (offset in pt_regs of its first byte, size)}."""
    names = {name: (offset, 8) for name, offset in _REGISTERS.items()}
    for name, offset in _REGISTERS.items():
        if name[1:].isdigit():
            names |= {name + "d": (offset, 4), name + "w": (offset, 2), name + "b": (offset, 1)}
        elif name != "rip":
            names |= {"e" + name[1:]: (offset, 4), name[1:]: (offset, 2)}
    for name in ("rbp", "rsp", "rsi", "rdi"):
        names[name[1:] + "l"] = (_REGISTERS[name], 1)
    names |= {part: (_REGISTERS[name], 1) for part, name in _BYTES.items()}
    return names | {part: (_REGISTERS[name] + 1, 1) for part, name in _HIGH_BYTES.items()}


_NAMES = _names()
_NUMBER = r"[-+]?(?:0x[0-9a-fA-F]+|\d+)"
_SIZE = re.compile(r"(-?)(\d+)(f?)@")
_CONSTANT = re.compile(rf"\$({_NUMBER})")
_REGISTER = re.compile(r"%(\w+)")
_MEMORY = re.compile(
    rf"(?P<symbol>[A-Za-z_.$][\w.$@]*)?(?P<displacement>{_NUMBER}(?:{_NUMBER})*)?"
    r"\((?:%(?P<base>\w+))?(?:,%(?P<index>\w+)(?:,(?P<scale>[1248]))?)?\)"
)
_WORD = re.compile(r"\S+")


class ArgumentKind(enum.IntEnum):
    """enum gs_usdt_kind: how a value is got at."""

    NONE = 0
    CONSTANT = 1
    REGISTER = 2
    MEMORY = 3


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument. `text` is the operand as it stands in the note.

    `size_bytes` is 1, 2, 4 or 8. CONSTANT: `value` is it. REGISTER: `base` is its offset in
    pt_regs. MEMORY: at the address base register + `value` + (index register << `scale_shift`)
    + the address of `symbol`; a register that is None is left out. NONE: an operand that we
    cannot read; `text` tells which.
    """

    text: str
    kind: ArgumentKind
    size_bytes: int = 8
    is_signed: bool = False
    is_float: bool = False
    value: int = 0
    base: int | None = None
    index: int | None = None
    scale_shift: int = 0
    symbol: str = ""


def parse_arguments(text: str) -> tuple[Argument, ...]:
    """The arguments of a probe, in order, from its note (UsdtProbe.arguments)."""
    return tuple(_argument(word) for word in _WORD.findall(text))


def _argument(text: str) -> Argument:
    size = _SIZE.match(text)
    operand = text[size.end() :] if size else text
    size_bytes = int(size[2]) if size else 8
    unreadable = Argument(text, ArgumentKind.NONE)
    if size_bytes not in (1, 2, 4, 8):
        return unreadable
    is_signed, is_float = bool(size and size[1]), bool(size and size[3])
    if constant := _CONSTANT.fullmatch(operand):
        value = int(constant[1], 0)
        return Argument(text, ArgumentKind.CONSTANT, size_bytes, is_signed, is_float, value)
    if register := _REGISTER.fullmatch(operand):
        place = _NAMES.get(register[1])
        if place is None:  # %xmm0 is not in pt_regs
            return unreadable
        return Argument(text, ArgumentKind.REGISTER, size_bytes, is_signed, is_float, base=place[0])
    return _memory(text, operand, size_bytes, is_signed, is_float) or unreadable


def _memory(
    text: str, operand: str, size_bytes: int, is_signed: bool, is_float: bool
) -> Argument | None:
    match = _MEMORY.fullmatch(operand)
    if match is None:
        return None
    registers: list[int | None] = []
    for name in (match["base"], match["index"]):
        place = _NAMES.get(name) if name else (-1, 8)
        if place is None or place[1] != 8:
            return None
        registers.append(None if place[0] < 0 else place[0])
    symbol = match["symbol"] or ""
    base, index = registers
    if match["base"] == "rip":
        if not symbol:
            return None  # relative to an instruction that the note does not name
        base = None
    return Argument(
        text,
        ArgumentKind.MEMORY,
        size_bytes,
        is_signed,
        is_float,
        value=sum(int(part, 0) for part in re.findall(_NUMBER, match["displacement"] or "")),
        base=base,
        index=index,
        scale_shift=(int(match["scale"] or 1)).bit_length() - 1,
        symbol=symbol,
    )
