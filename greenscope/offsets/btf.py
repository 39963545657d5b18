"""Offsets of kernel structure members, from the running kernel's own BTF.

The layout of the data is include/uapi/linux/btf.h (Documentation/bpf/btf.rst). Only as much
of it is walked as is needed to find a structure; every offset in it is bounded.
"""

from __future__ import annotations

import functools
import struct
from pathlib import Path

from greenscope.errors import BpfUnavailable

KERNEL_BTF = "/sys/kernel/btf/vmlinux"

_MAGIC = 0xEB9F
_HEADER = struct.Struct("<HBBIIIII")  # struct btf_header
_TYPE = struct.Struct("<III")  # struct btf_type: name_off, info, size or type
_MEMBER = struct.Struct("<III")  # struct btf_member: name_off, type, offset
_STRUCT, _UNION = 4, 5
# BTF_KIND_TYPEDEF, VOLATILE, CONST, RESTRICT, TYPE_TAG: they name another type.
_MODIFIERS = frozenset({8, 9, 10, 11, 18})
_MAX_DEPTH = 16
# Bytes that follow struct btf_type, by kind: (fixed, for each of vlen).
_EXTRA: dict[int, tuple[int, int]] = {
    1: (4, 0),  # INT
    2: (0, 0),  # PTR
    3: (12, 0),  # ARRAY
    4: (0, 12),  # STRUCT
    5: (0, 12),  # UNION
    6: (0, 8),  # ENUM
    7: (0, 0),  # FWD
    8: (0, 0),  # TYPEDEF
    9: (0, 0),  # VOLATILE
    10: (0, 0),  # CONST
    11: (0, 0),  # RESTRICT
    12: (0, 0),  # FUNC
    13: (0, 8),  # FUNC_PROTO
    14: (4, 0),  # VAR
    15: (0, 12),  # DATASEC
    16: (0, 0),  # FLOAT
    17: (4, 0),  # DECL_TAG
    18: (0, 0),  # TYPE_TAG
    19: (0, 12),  # ENUM64
}


class Btf:
    """Parsed type information; `member_offset` answers in bytes.

    Raises:
        BpfUnavailable: the data is not BTF, or is damaged.
    """

    def __init__(self, data: bytes) -> None:
        if len(data) < _HEADER.size:
            raise _damaged("it is too short")
        magic, _, _, header, types, types_size, strings, strings_size = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise _damaged("it does not begin with the mark of BTF")
        first, end = header + types, header + types + types_size
        text = header + strings
        if max(end, text + strings_size) > len(data):
            raise _damaged("a section ends behind its end")
        self._types = data[first:end]
        self._strings = data[text : text + strings_size]
        self._offsets = [0]  # by type id; id 0 is void. Grows as the walk goes on.
        self._scanned = 0

    def member_offset(self, structure: str, member: str) -> int | None:
        """The offset in bytes of `member` ("thread.fsbase") in a struct.

        Members of anonymous structs and unions count as the outer one's own. None where there
        is no such struct or member, or the member is a bit field.
        """
        at = self._find_struct(structure)
        total = 0
        for name in member.split("."):
            found = self._member(at, self._name_offsets(name), 0) if at is not None else None
            if found is None:
                return None
            bits, type_id = found
            if bits % 8:
                return None
            total += bits // 8
            at = self._resolve(type_id)
        return total

    def _find_struct(self, name: str) -> int | None:
        """Where the struct of that name lies in the type section; scans on if need be."""
        names = self._name_offsets(name)
        type_id = 1
        while (at := self._at(type_id)) is not None:
            name_offset, info, _ = _TYPE.unpack_from(self._types, at)
            if name_offset in names and info >> 24 & 0x1F == _STRUCT:
                return at
            type_id += 1
        return None

    def _member(self, at: int, names: frozenset[int], depth: int) -> tuple[int, int] | None:
        """(offset in bits, type id) of a member of the struct at `at`."""
        _, info, _ = _TYPE.unpack_from(self._types, at)
        if info >> 24 & 0x1F not in (_STRUCT, _UNION) or depth > _MAX_DEPTH:
            return None
        has_bit_fields = bool(info >> 31)
        end = at + _TYPE.size + (info & 0xFFFF) * _MEMBER.size
        members = self._types[at + _TYPE.size : end]
        for name_offset, type_id, offset in _MEMBER.iter_unpack(members):
            # With kind_flag set, the upper 8 bits are the width of a bit field.
            bits = offset & 0xFFFFFF if has_bit_fields else offset
            is_bit_field = has_bit_fields and offset >> 24
            if name_offset in names:
                return None if is_bit_field else (bits, type_id)
            if name_offset == 0 and (inner := self._resolve(type_id)) is not None:
                found = self._member(inner, names, depth + 1)
                if found:
                    return bits + found[0], found[1]
        return None

    def _resolve(self, type_id: int) -> int | None:
        """Where the type lies that `type_id` names, through typedefs and qualifiers."""
        for _ in range(_MAX_DEPTH):
            at = self._at(type_id)
            if at is None:
                return None
            _, info, type_id = _TYPE.unpack_from(self._types, at)
            if info >> 24 & 0x1F not in _MODIFIERS:
                return at
        return None

    def _at(self, type_id: int) -> int | None:
        """The place of a type in the type section; None for void and past the end."""
        if type_id >= len(self._offsets):
            self._scan(type_id + 4096)
        return self._offsets[type_id] if 0 < type_id < len(self._offsets) else None

    def _scan(self, until: int) -> None:
        """Note where the types up to the id `until` lie."""
        types, offsets, at = self._types, self._offsets, self._scanned
        last = len(types) - _TYPE.size
        unpack = _TYPE.unpack_from
        while at <= last and len(offsets) <= until:
            info = unpack(types, at)[1]
            extra = _EXTRA.get(info >> 24 & 0x1F)
            if extra is None:
                raise _damaged(f"type {len(offsets)} is of a kind that is not known")
            size = _TYPE.size + extra[0] + extra[1] * (info & 0xFFFF)
            if at + size > len(types):
                raise _damaged(f"type {len(offsets)} ends behind the section")
            offsets.append(at)
            at += size
        self._scanned = at

    def _name_offsets(self, name: str) -> frozenset[int]:
        """Where a string lies; also as the tail of a longer one, as strings may be shared."""
        wanted = name.encode() + b"\0"
        found = set()
        at = self._strings.find(wanted)
        while at >= 0:
            found.add(at)
            at = self._strings.find(wanted, at + 1)
        return frozenset(found)


@functools.cache
def kernel_btf(path: str = KERNEL_BTF) -> Btf:
    """The running kernel's BTF, read once.

    Raises:
        BpfUnavailable: the kernel has none, or it is damaged.
    """
    try:
        return Btf(Path(path).read_bytes())
    except OSError as error:
        raise BpfUnavailable(
            f"the kernel's type information {path} cannot be read: {error.strerror}",
            "greenscope needs a kernel built with CONFIG_DEBUG_INFO_BTF (all distributions' "
            "kernels since 5.8 are); in a container, mount /sys read-only.",
        ) from error


def member_offset(structure: str, member: str) -> int | None:
    """`Btf.member_offset` of the running kernel."""
    return kernel_btf().member_offset(structure, member)


def _damaged(what: str) -> BpfUnavailable:
    return BpfUnavailable(f"the kernel's type information is damaged: {what}")
