"""What the loader knows without loading anything."""

from __future__ import annotations

import importlib.util
from dataclasses import fields
from pathlib import Path

import pytest

from greenscope.bpf import builder
from greenscope.bpf.builder import SYSCALLS, Builder
from greenscope.bpf.loader import online_cpus
from greenscope.bpf.programs import SOURCES, Built, Limits, Order, probes_dir
from greenscope.bpf.ring import PAGE
from greenscope.errors import BpfUnavailable

has_bcc = pytest.mark.skipif(importlib.util.find_spec("bcc") is None, reason="no bcc here")


@has_bcc
@pytest.mark.parametrize(
    ("number", "name"),
    [(0, "read"), (7, "poll"), (73, "flock"), (230, "clock_nanosleep"), (232, "epoll_wait")],
)
def test_system_call_has_its_name(number: int, name: str) -> None:
    assert Built({}, {}, SYSCALLS).syscall_name(number) == name


@pytest.mark.parametrize(("number", "name"), [(426, "io_uring_enter"), (441, "epoll_pwait2")])
def test_system_call_that_is_newer_than_the_table_has_its_name(number: int, name: str) -> None:
    assert Built({}, {}, SYSCALLS).syscall_name(number) == name


@pytest.mark.parametrize("number", [9999, -1])
def test_unknown_system_call_is_its_number(number: int) -> None:
    assert Built({}, {}, SYSCALLS).syscall_name(number) == str(number)


def test_usual_rings_are_powers_of_two_of_pages() -> None:
    limits = Limits()
    for size in (limits.event_ring_bytes, limits.stack_ring_bytes):
        assert size % PAGE == 0
        assert size & (size - 1) == 0


def test_every_limit_is_positive() -> None:
    assert all(getattr(Limits(), limit.name) > 0 for limit in fields(Limits))


def test_sources_lie_where_the_loader_looks() -> None:
    assert all((probes_dir() / f"{name}.bpf.c").is_file() for name in SOURCES)


def test_online_cpus_are_those_of_the_kernel() -> None:
    listed = Path("/sys/devices/system/cpu/online").read_text().strip()
    cpus = online_cpus()
    assert cpus[0] == int(listed.replace(",", "-").split("-")[0])
    assert cpus[-1] == int(listed.replace(",", "-").split("-")[-1])
    assert cpus == sorted(set(cpus))


def test_missing_bcc_is_an_answer_with_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(builder, "bcc", None)
    with pytest.raises(BpfUnavailable) as caught:
        Builder(Order(Limits(), (), for_links=True))
    assert "apt-get install python3-bpfcc" in caught.value.hint
