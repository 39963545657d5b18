"""What a hit costs here, measured on ourselves."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from greenscope.bpf import links
from greenscope.bpf.loader import Kernel
from greenscope.budget.calibration import HITS, ROUNDS, hit_cost_ns
from tests.bench.bare_uprobe import CountProgram

pytestmark = pytest.mark.bpf


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with Kernel() as loaded:
        yield loaded


def test_hit_costs_more_than_nothing_and_less_than_a_single_step(kernel: Kernel) -> None:
    """A `nop` that the kernel had to step through would cost some 12 us."""
    opened = []

    def open_probe(path: str, offset: int, pid: int) -> int:
        opened.append(kernel.open_place("gs_on_gc_done", path, offset, pid, 0, index=0))
        return opened[-1]

    cost_ns = hit_cost_ns(open_probe)
    assert 50 < cost_ns < 12_000
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_loop_hits_as_often_as_it_says() -> None:
    """Against a program that counts: no hit is missed, so the time is divided by the right N."""
    counter = CountProgram()

    def open_probe(path: str, offset: int, pid: int) -> int:
        return links.open_uprobe(counter.fd, path, offset, pid)

    hit_cost_ns(open_probe)
    assert counter.hits() == HITS * (ROUNDS + 1)
