"""The parser on type information made by hand, and on the running kernel's own."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenscope.errors import BpfUnavailable
from greenscope.offsets.btf import KERNEL_BTF, Btf, kernel_btf

INT, STRUCT, UNION, TYPEDEF = 1, 4, 5, 8
KIND_FLAG = 1 << 31


class Builder:
    """Makes BTF as pahole does: types in a row, strings shared by their tails."""

    def __init__(self) -> None:
        self.types = b""
        self.strings = b"\0"

    def name(self, text: str) -> int:
        if not text:
            return 0
        wanted = text.encode() + b"\0"
        if wanted not in self.strings:
            self.strings += wanted
        return self.strings.index(wanted)

    def add(self, name: str, kind: int, rest: bytes = b"", vlen: int = 0, ref: int = 0) -> None:
        flag = KIND_FLAG if kind & KIND_FLAG else 0
        info = flag | (kind & 0x1F) << 24 | vlen
        self.types += struct.pack("<III", self.name(name), info, ref) + rest

    def members(self, *rows: tuple[str, int, int]) -> bytes:
        return b"".join(struct.pack("<III", self.name(n), type_, off) for n, type_, off in rows)

    def build(self) -> bytes:
        header = struct.pack(
            "<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(self.types), len(self.types), len(self.strings)
        )
        return header + self.types + self.strings


@pytest.fixture
def sample() -> bytes:
    build = Builder()
    build.add("int", INT, b"\0\0\0\0", ref=4)  # id 1
    build.add("thread_struct", STRUCT, build.members(("fsbase", 1, 64)), 1)  # 2
    build.add("thread_t", TYPEDEF, ref=2)  # 3
    build.add("", UNION, build.members(("state", 1, 0), ("", 6, 32)), 2)  # 4
    rows = build.members(("tgid", 1, 0), ("", 4, 64), ("thread", 3, 256), ("pid", 1, 32))
    build.add("task_struct", STRUCT, rows, 4)  # 5
    build.add("", STRUCT, build.members(("deep", 1, 32)), 1)  # 6
    rows = build.members(("narrow", 1, 3 << 24 | 8), ("wide", 1, 64))
    build.add("flags", STRUCT | KIND_FLAG, rows, 2)  # 7
    return build.build()


@pytest.mark.parametrize(
    ("structure", "member", "offset"),
    [
        ("task_struct", "tgid", 0),
        ("task_struct", "pid", 4),  # its name is not in the strings but as a tail... or alone
        ("task_struct", "state", 8),  # in an anonymous union
        ("task_struct", "deep", 16),  # in an anonymous struct in an anonymous union
        ("task_struct", "thread.fsbase", 40),  # through a typedef
        ("task_struct", "thread.nothing", None),
        ("task_struct", "pid.nothing", None),
        ("task_struct", "nothing", None),
        ("nothing", "pid", None),
        ("flags", "narrow", None),  # a bit field has no address
        ("flags", "wide", 8),
    ],
)
def test_member_offset_in_bytes(
    sample: bytes, structure: str, member: str, offset: int | None
) -> None:
    assert Btf(sample).member_offset(structure, member) == offset


def test_damaged_mark_is_refused(sample: bytes) -> None:
    with pytest.raises(BpfUnavailable, match="mark"):
        Btf(b"\0" + sample[1:])


def test_cut_file_is_refused(sample: bytes) -> None:
    with pytest.raises(BpfUnavailable, match="behind its end"):
        Btf(sample[:-1])


@given(st.integers(0, 300), st.integers(0, 255))
def test_any_changed_byte_gives_an_answer_or_a_named_error(place: int, value: int) -> None:
    build = Builder()
    build.add("int", INT, b"\0\0\0\0", ref=4)
    build.add("", UNION, build.members(("state", 1, 0), ("", 2, 32)), 2)  # holds itself
    build.add("task_struct", STRUCT, build.members(("", 2, 0), ("pid", 1, 32)), 2)
    data = bytearray(build.build())
    data[place % len(data)] = value
    try:
        Btf(bytes(data)).member_offset("task_struct", "pid")
    except BpfUnavailable as error:
        assert error.message  # noqa: PT017  both outcomes are right


@pytest.mark.skipif(not Path(KERNEL_BTF).exists(), reason="this kernel has no BTF")
def test_running_kernel_gives_plausible_offsets_of_a_task() -> None:
    btf = kernel_btf()
    pid = btf.member_offset("task_struct", "pid")
    assert pid is not None
    assert btf.member_offset("task_struct", "tgid") == pid + 4  # pid_t pid; pid_t tgid;
    fsbase = btf.member_offset("task_struct", "thread.fsbase")
    thread = btf.member_offset("task_struct", "thread")
    inner = btf.member_offset("thread_struct", "fsbase")
    assert thread is not None
    assert inner is not None
    assert fsbase == thread + inner


def test_kernel_without_btf_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(BpfUnavailable, match="cannot be read") as caught:
        kernel_btf(str(tmp_path / "vmlinux"))
    assert "CONFIG_DEBUG_INFO_BTF" in caught.value.hint
