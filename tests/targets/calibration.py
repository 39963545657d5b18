"""Finds how much data a C call needs to take a given time on this machine."""

from __future__ import annotations

from time import monotonic_ns
from typing import Callable, TypeVar

T = TypeVar("T")


def sized_for(duration_ns: int, make: Callable[[int], T], call: Callable[[T], object]) -> T:
    """The data of `make(n)` with which `call` takes about this long; n doubles on the way."""
    size = 1000
    while True:
        data = make(size)
        took_ns = min(_time(call, data), _time(call, data))
        if took_ns >= duration_ns:
            return data
        # Before the next is made: a garbage collection would visit both.
        del data
        # At most doubled: a first call may be slow for reasons of its own.
        size = min(size * 2, int(size * 1.1 * duration_ns / took_ns) + 1)


def _time(call: Callable[[T], object], data: T) -> int:
    begin_ns = monotonic_ns()
    call(data)
    return max(monotonic_ns() - begin_ns, 1)
