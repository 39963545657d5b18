"""Handing file descriptors over, without anything that is built."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import asdict

import pytest

from greenscope.bpf import handover
from greenscope.bpf.programs import Built, Limits, Order
from greenscope.errors import BpfUnavailable

ORDER = Order(Limits(threads=7), ("usdt",), for_links=True)
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_order_arrives_as_it_was_sent(pair: Pair) -> None:
    ours, theirs = pair
    handover._send(ours, asdict(ORDER))
    assert handover.read_order(theirs) == ORDER


def test_descriptors_arrive_under_their_names(pair: Pair) -> None:
    ours, theirs = pair
    files = [os.memfd_create(name) for name in ("a", "b", "c")]
    try:
        handover.send_built(
            theirs, Built({"a": files[0]}, {"b": files[1], "c": files[2]}, {1: "x"})
        )
        got = handover._receive_built(ours)
    finally:
        for fd in files:
            os.close(fd)
    assert (list(got.programs), list(got.maps), got.syscalls) == (["a"], ["b", "c"], {1: "x"})
    for name, fd in (got.programs | got.maps).items():
        assert f"memfd:{name}" in os.readlink(f"/proc/self/fd/{fd}")
        assert not os.get_inheritable(fd)
        os.close(fd)


def test_failure_arrives_in_its_words(pair: Pair) -> None:
    ours, theirs = pair
    handover.send_failure(theirs, BpfUnavailable("no headers", "Install them."))
    with pytest.raises(BpfUnavailable, match="no headers") as caught:
        handover._receive_built(ours)
    assert caught.value.hint == "Install them."


def test_long_message_arrives_in_pieces(pair: Pair) -> None:
    ours, theirs = pair
    many = dict.fromkeys(range(500), "x" * 50)
    handover.send_built(theirs, Built({}, {}, many))
    assert handover._receive_built(ours).syscalls == many


@pytest.mark.parametrize("module", ["greenscope.bpf.no_such_module", "greenscope.errors"])
def test_builder_that_ends_without_an_answer_is_told_of(
    module: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(handover, "_MODULE", module)
    with pytest.raises(BpfUnavailable, match=f"{module} ended with"):
        handover.build(ORDER)
    capfd.readouterr()  # what Python says of a module that is not there
