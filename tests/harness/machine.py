"""What the machine did to everybody on it meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_STEAL = 8  # the column of /proc/stat (Documentation/filesystems/proc.rst)
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Stolen:
    """CPU time that the host took from this virtual machine; `ns` is known after the block.

    The guest cannot tell it from its own computing: whatever ran then seems to have computed.
    """

    ns: int = 0


@contextmanager
def stolen_time() -> Iterator[Stolen]:
    """Measures it over the block, on all CPUs, in steps of a clock tick."""
    stolen = Stolen()
    before = _stolen_ticks()
    yield stolen
    # Rounded up: a tick is counted when it is over.
    stolen.ns = (_stolen_ticks() - before) * _TICK_NS


def _stolen_ticks() -> int:
    first_line = Path("/proc/stat").read_text().partition("\n")[0]
    return int(first_line.split()[_STEAL])
