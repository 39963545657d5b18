"""BPF maps as dictionaries, by the system call: bcc's own tables come with its compiler."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from greenscope.bpf.syscall import sys_bpf
from greenscope.errors import BpfUnavailable

# enum bpf_cmd of include/uapi/linux/bpf.h
_LOOKUP_ELEM = 1
_UPDATE_ELEM = 2
_DELETE_ELEM = 3
_GET_NEXT_KEY = 4
_LOOKUP_BATCH = 24  # Linux 5.6
_BATCH = 1024
_POSSIBLE_CPUS = Path("/sys/devices/system/cpu/possible")

K = TypeVar("K", bound=Any)  # a ctypes type
V = TypeVar("V", bound=Any)


class _Element(ctypes.Structure):
    """union bpf_attr for one element; `value` is the next key for _GET_NEXT_KEY."""

    _fields_ = (
        ("map_fd", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
        ("key", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
    )


class _Batch(ctypes.Structure):
    """union bpf_attr for a batch."""

    _fields_ = (
        ("in_batch", ctypes.c_uint64),
        ("out_batch", ctypes.c_uint64),
        ("keys", ctypes.c_uint64),
        ("values", ctypes.c_uint64),
        ("count", ctypes.c_uint32),
        ("map_fd", ctypes.c_uint32),
        ("elem_flags", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
    )


class BpfMap(Generic[K, V]):
    """A hash map or array. `fd` stays the caller's; keys and values are ctypes.

    Raises:
        BpfUnavailable: the kernel refuses (a full map, mostly).
    """

    def __init__(self, fd: int, key_type: type[K], value_type: type[V]) -> None:
        self.fd = fd
        self._key_type = key_type
        self._value_type = value_type

    def get(self, key: K) -> V | None:
        """A copy of the value, None where there is none."""
        value: V = self._value_type()
        if self._call(_LOOKUP_ELEM, key, value):
            return value
        return None

    def __getitem__(self, key: K) -> V:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: K, value: V) -> None:
        if not self._call(_UPDATE_ELEM, key, value):
            raise BpfUnavailable("the kernel has no such place in a map")

    def __delitem__(self, key: K) -> None:
        if not self._call(_DELETE_ELEM, key, None):
            raise KeyError(key)

    def pop(self, key: K) -> None:
        """Deletes an entry, if it is there."""
        self._call(_DELETE_ELEM, key, None)

    def items(self) -> Iterator[tuple[K, V]]:
        """Copies of all entries of a hash map, in the order of its buckets.

        One that comes or goes meanwhile may be missed.
        """
        size = _BATCH
        place, following = ctypes.c_uint32(), ctypes.c_uint32()
        is_first = True
        while True:
            keys, values = (self._key_type * size)(), (self._value_type * size)()
            batch = _Batch(
                in_batch=0 if is_first else ctypes.addressof(place),
                out_batch=ctypes.addressof(following),
                keys=ctypes.addressof(keys),
                values=ctypes.addressof(values),
                count=size,
                map_fd=self.fd,
            )
            failed = sys_bpf(_LOOKUP_BATCH, batch) < 0
            number = ctypes.get_errno() if failed else 0
            if number == errno.ENOSPC:
                size *= 2  # one bucket has more than that
                continue
            if number not in (0, errno.ENOENT):
                raise BpfUnavailable(f"a map cannot be read: {os.strerror(number)}")
            for index in range(batch.count):
                key = self._at(self._key_type, keys, index)
                yield key, self._at(self._value_type, values, index)
            if number == errno.ENOENT:
                return
            place.value, is_first = following.value, False

    def clear(self) -> None:
        """Deletes all entries of a hash map."""
        for key, _ in list(self.items()):
            self.pop(key)

    @staticmethod
    def _at(kind: Any, array: Any, index: int) -> Any:
        # An array of integers would give int.
        return kind.from_buffer(array, index * ctypes.sizeof(kind))

    def _call(self, command: int, key: K, value: V | None) -> bool:
        """Whether it was done; not, where there is no such entry."""
        attributes = _Element(
            map_fd=self.fd,
            key=ctypes.addressof(key),
            value=0 if value is None else ctypes.addressof(value),
        )
        if sys_bpf(command, attributes) == 0:
            return True
        number = ctypes.get_errno()
        if number == errno.ENOENT:
            return False
        raise BpfUnavailable(f"the kernel refuses an access to a map: {os.strerror(number)}")


class CpuCounters:
    """A per-CPU array of u64 counters."""

    def __init__(self, fd: int) -> None:
        # All CPUs that there may ever be have a place, also those that are not.
        last = _POSSIBLE_CPUS.read_text("ascii").strip().replace("-", ",").rsplit(",", 1)[-1]
        self._values = BpfMap(fd, ctypes.c_uint32, ctypes.c_uint64 * (int(last) + 1))

    def __getitem__(self, index: int) -> int:
        """The sum over all CPUs."""
        return sum(self._values[ctypes.c_uint32(index)])
