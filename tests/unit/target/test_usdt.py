"""Operands of USDT probes, as gcc and clang write them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from greenscope.target.usdt import Argument, ArgumentKind, parse_arguments

PT_REGS = {"rbp": 32, "rbx": 40, "r8": 72, "rax": 80, "rdx": 96, "rsp": 152}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8@%rdx", (ArgumentKind.REGISTER, 8, False, 0, PT_REGS["rdx"], None)),
        ("-4@%eax", (ArgumentKind.REGISTER, 4, True, 0, PT_REGS["rax"], None)),
        ("-4@%r8d", (ArgumentKind.REGISTER, 4, True, 0, PT_REGS["r8"], None)),
        ("1@%dh", (ArgumentKind.REGISTER, 1, False, 0, PT_REGS["rdx"] + 1, None)),
        ("-1@%al", (ArgumentKind.REGISTER, 1, True, 0, PT_REGS["rax"], None)),
        ("-4@$-7", (ArgumentKind.CONSTANT, 4, True, -7, None, None)),
        ("8@$0x1f", (ArgumentKind.CONSTANT, 8, False, 31, None, None)),
        ("8@-80(%rbx)", (ArgumentKind.MEMORY, 8, False, -80, PT_REGS["rbx"], None)),
        ("8@(%rsp)", (ArgumentKind.MEMORY, 8, False, 0, PT_REGS["rsp"], None)),
        ("2@4-8(%rbp)", (ArgumentKind.MEMORY, 2, False, -4, PT_REGS["rbp"], None)),
    ],
)
def test_operand_is_read(
    text: str, expected: tuple[ArgumentKind, int, bool, int, int | None, int | None]
) -> None:
    (found,) = parse_arguments(text)
    assert found.text == text
    assert (
        found.kind,
        found.size_bytes,
        found.is_signed,
        found.value,
        found.base,
        found.index,
    ) == expected


def test_index_and_scale() -> None:
    (found,) = parse_arguments("-4@16(%rax,%rdx,4)")
    assert (found.base, found.index, found.scale_shift) == (PT_REGS["rax"], PT_REGS["rdx"], 2)
    assert found.value == 16


def test_symbol_is_relative_to_nothing_but_itself() -> None:
    (found,) = parse_arguments("4@counter+8(%rip)")
    assert (found.symbol, found.value, found.base) == ("counter", 8, None)


@pytest.mark.parametrize("text", ["8f@%xmm0", "16@%rax", "8@[sp, 16]", "8@%ebp,(", "8@8(%rip)"])
def test_operand_that_cannot_be_read_keeps_its_text(text: str) -> None:
    found = parse_arguments(text)
    assert found[0].kind is ArgumentKind.NONE
    assert all(isinstance(argument, Argument) for argument in found)


def test_arguments_keep_their_order() -> None:
    kinds = [argument.kind for argument in parse_arguments("8@%rdi 4@$3 8@8(%rsp)")]
    assert kinds == [ArgumentKind.REGISTER, ArgumentKind.CONSTANT, ArgumentKind.MEMORY]
    assert parse_arguments("") == ()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc)")
def test_registers_lie_in_pt_regs_where_the_compiler_puts_them(tmp_path: Path) -> None:
    names = ("r15", "r14", "r13", "r12", "r11", "r10", "r9", "r8")
    names += ("rbp", "rbx", "rax", "rcx", "rdx", "rsi", "rdi", "rsp")
    source, program = tmp_path / "regs.c", tmp_path / "regs"
    source.write_text(
        "#include <stddef.h>\n#include <stdio.h>\n#include <asm/ptrace.h>\nint main(void) {\n"
        + "".join(f'printf("%zu\\n", offsetof(struct pt_regs, {name}));' for name in names)
        + "}\n"
    )
    subprocess.run(["cc", source, "-o", program], check=True)
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    ours = [parse_arguments(f"8@%{name}")[0].base for name in names]
    assert ours == [int(line) for line in output.split()]
