"""Hubs that are not gevent's: found by themselves, or by the name that the user gives."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.harness.agent import guilty, watch_script
from tests.harness.machine import stolen_time
from tests.harness.runner import run_target


@pytest.mark.parametrize(
    ("name", "options", "hub"),
    [
        ("eventlet_holds", (), "BaseHub.run"),
        ("asyncio_greenlets", (), "<module>"),
        ("own_hub", ("--hub", "dispatch"), "<module>"),
    ],
)
def test_holds_are_judged_and_the_hub_is_named(
    name: str, options: tuple[str, ...], hub: str
) -> None:
    with run_target(name) as target, stolen_time() as stolen:
        report = watch_script(target, *options)
        truth = target.truth()
        target.quit()
    assert report["has_hub"]
    (row,) = (row for row in report["greenlets"] if row["is_hub"])
    assert row["function"] == hub
    acts = Counter(act.function for act in truth.acts)
    spots = {spot["function"]: spot for spot in guilty(report)}
    assert spots.keys() == acts.keys()
    for function, spot in spots.items():
        true_ns = truth.total_ns(function)
        others_ns = stolen.ns + spot["reasons"].get("preempted", 0)
        assert spot["holds"] == acts[function]
        assert spot["reason"] == "cpu"
        assert spot["total_ns"] == pytest.approx(true_ns, abs=0.05 * true_ns + others_ns)
    # What is no hold is idle, as the program does nothing else.
    (thread,) = report["threads"]
    assert thread["idle_ns"] > 150_000_000


def test_without_its_name_a_hub_of_ones_own_is_not_guessed() -> None:
    with run_target("own_hub") as target:
        report = watch_script(target)
        target.quit()
    assert not report["has_hub"]
    assert report["hotspots"] == []
    longest = max(report["greenlets"], key=lambda row: row["longest_hold_ns"])
    assert longest["function"] == "worker"
    assert longest["longest_hold_ns"] > 39_000_000
