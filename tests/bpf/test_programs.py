"""The programs in probes/ on this kernel, without a target."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from greenscope.bpf import abi
from greenscope.bpf.loader import Kernel
from greenscope.bpf.programs import PARTS, SOURCES, WALKS, Limits, probes_dir

pytestmark = pytest.mark.bpf

_PROGRAM = re.compile(r"^int (gs_on_\w+)\(", re.MULTILINE)


EVERY_SOURCE = dict.fromkeys((*SOURCES, *(s for part in PARTS.values() for s in part.sources)))


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with Kernel(parts=tuple(PARTS)) as loaded:
        loaded.attach_sched()
        loaded.attach_sampler(19)
        yield loaded


def test_every_program_in_probes_passes_the_verifier(kernel: Kernel) -> None:
    sources = [(probes_dir() / f"{name}.bpf.c").read_text() for name in EVERY_SOURCE]
    assert sorted([*kernel._built.programs, *WALKS.values()]) == sorted(
        _PROGRAM.findall("\n".join(sources))
    )


def test_every_source_in_probes_is_compiled() -> None:
    assert {path.name for path in probes_dir().glob("*.bpf.c")} == {
        f"{name}.bpf.c" for name in EVERY_SOURCE
    }


def test_programs_without_a_target_send_and_lose_nothing(kernel: Kernel) -> None:
    assert kernel.events.fixed(abi.EVENT) == []
    assert list(kernel.stacks.records()) == []
    assert kernel.lost() == dict.fromkeys(abi.LossKind, 0)
    assert list(kernel.threads.items()) == []


def test_smallest_rings_and_maps_load() -> None:
    limits = Limits(
        targets=1, threads=1, greenlets=1, stacks=1, event_ring_bytes=4096, stack_ring_bytes=4096
    )
    with Kernel(limits) as kernel:
        assert kernel.limits == limits


def test_closing_twice_is_harmless() -> None:
    kernel = Kernel()
    kernel.close()
    kernel.close()
