"""The yardstick: a uprobe at the same place, whose program only counts (count.bpf.c)."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

import bcc

from greenscope.bpf import links
from greenscope.bpf.headers import ENVIRONMENT, find_kernel_headers
from greenscope.offsets.program import Program

SOURCE = Path(__file__).resolve().parent / "count.bpf.c"


class SwitchUprobe:
    """A program at the target's switch while the block runs. `program_fd` stays the caller's."""

    def __init__(self, program: Program, program_fd: int) -> None:
        self._program = program
        self._program_fd = program_fd
        self._fd = -1

    def __enter__(self) -> Self:
        greenlet = self._program.greenlet
        self._fd = links.open_uprobe(
            self._program_fd,
            greenlet.file.readable_path(),
            greenlet.places.switch,
            self._program.process.pid,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._fd)


class CountProgram:
    """The counting program in the kernel; `fd` lives as long as this object."""

    def __init__(self, for_links: bool = True) -> None:
        os.environ[ENVIRONMENT] = str(find_kernel_headers().path)
        self._bpf = bcc.BPF(text=SOURCE.read_bytes())
        loaded = self._bpf.load_func(
            b"bench_on_switch",
            bcc.BPF.KPROBE,
            attach_type=links.ATTACH_TYPE if for_links else -1,
        )
        self.fd: int = loaded.fd

    def hits(self) -> int:
        """How often it ran, on all CPUs."""
        return sum(self._bpf.get_table(b"bench_hits")[0])
