"""Reading Python objects of the target: dicts, types, functions.

Everything read here is untrusted and may change meanwhile: sizes are bounded, and what does not
look like the object gives nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from greenscope.offsets.table import InterpreterOffsets
from greenscope.rebuild.code import read_text
from greenscope.target.memory import ProcessMemory
from greenscope.target.threads import read_pointer

MAX_ENTRIES = 1 << 16
_MAX_BASES = 256
# enum DictKeysKind (Include/internal/pycore_dict.h): only general keys have their hash stored.
_KEYS_GENERAL = 0
_GENERAL_ENTRY = struct.Struct("<qQQ")
_TEXT_ENTRY = struct.Struct("<QQ")


def dict_items(
    memory: ProcessMemory, address: int, offsets: InterpreterOffsets
) -> Iterator[tuple[int, int]]:
    """(address of the key, address of the value) of a dict in the order of its entries."""
    keys = read_pointer(memory, address + offsets.dict_keys)
    values = read_pointer(memory, address + offsets.dict_values)
    head = memory.read(keys, offsets.keys_indices) if keys else None
    if not keys or head is None or values is None:
        return
    kind = head[offsets.keys_kind]
    log2_index_bytes = head[offsets.keys_log2_index_bytes]
    count = int.from_bytes(head[offsets.keys_nentries : offsets.keys_nentries + 8], "little")
    if not 0 < count <= MAX_ENTRIES or log2_index_bytes > 32:
        return
    entry = _GENERAL_ENTRY if kind == _KEYS_GENERAL else _TEXT_ENTRY
    start = keys + offsets.keys_indices + (1 << log2_index_bytes)
    data = memory.read(start, count * entry.size)
    if data is None:
        return
    pairs = [fields[-2:] for fields in entry.iter_unpack(data)]
    if values:
        # A split dict keeps the values by themselves.
        own = memory.read(values + offsets.values_items, 8 * count)
        if own is None:
            return
        addresses = struct.unpack(f"<{count}Q", own)
        pairs = [(key, value) for (key, _), value in zip(pairs, addresses, strict=True)]
    yield from ((key, value) for key, value in pairs if key and value)


def dict_value(
    memory: ProcessMemory, address: int, name: str, offsets: InterpreterOffsets
) -> int | None:
    """Address of the value under a text key, None when there is none."""
    for key, value in dict_items(memory, address, offsets):
        if read_text(memory, key, offsets) == name:
            return value
    return None


def method_code(
    memory: ProcessMemory, type_addr: int, name: str, offsets: InterpreterOffsets
) -> int | None:
    """Address of the code of a type's method, looked for in the order of its bases.

    Whether it is a function is not checked: `read_code()` of the address tells.
    """
    mro = read_pointer(memory, type_addr + offsets.type_mro)
    count = read_pointer(memory, mro + offsets.tuple_size) if mro else None
    if not mro or count is None or count > _MAX_BASES:
        return None
    for index in range(count):
        base = read_pointer(memory, mro + offsets.tuple_items + 8 * index)
        namespace = read_pointer(memory, base + offsets.type_dict) if base else None
        method = dict_value(memory, namespace, name, offsets) if namespace else None
        if method:
            return read_pointer(memory, method + offsets.function_code)
    return None
