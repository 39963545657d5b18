"""Programs that block nobody have no hotspot. Cases S1 (idle), B3 (the thread pool)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import run_target
from tests.harness.agent import attached_agent, guilty, watch_script
from tests.harness.machine import stolen_time

pytestmark = pytest.mark.bpf

THRESHOLD_NS = 10_000_000


def check_innocent(report: dict[str, Any], stolen_ns: int) -> None:
    """No hotspot beyond what the host itself took meanwhile."""
    spots = guilty(report)
    if sum(spot["total_ns"] for spot in spots) > stolen_ns:
        assert spots == []


@pytest.mark.parametrize("name", ["well_behaved", "idle_server", "pool_threads"])
def test_an_innocent_program_has_no_hotspot(name: str) -> None:
    with run_target(name) as target, stolen_time() as stolen:
        report = watch_script(target)
        truth = target.truth()
        target.quit()
    longest_ns = truth.figures.get("longest_hold_ns", 0)
    if longest_ns >= THRESHOLD_NS:
        # By the target's own clock the machine stopped it for so long: then a hold is right,
        # but none that is longer.
        assert all(spot["max_ns"] <= longest_ns + 2_000_000 for spot in guilty(report))
        return
    check_innocent(report, stolen.ns)
    assert report["lost"] == []


def test_an_idle_server_is_idle() -> None:
    with run_target("idle_server") as target:
        report = watch_script(target)
        target.quit()
    (thread,) = [thread for thread in report["threads"] if thread["has_hub"]]
    watched_ns = thread["idle_ns"] + thread["hub_ns"] + thread["holding_ns"]
    assert thread["idle_ns"] > 0.95 * watched_ns


@pytest.mark.parametrize("gil", ["gil=0", "gil=1"])
def test_pool_threads_are_threads_of_their_own(gil: str) -> None:
    with run_target("pool_threads", args=(gil,)) as target:
        report = watch_script(target, "-t", "20ms")
        truth = target.truth()
        target.quit()
    hubs = {thread["tid"] for thread in report["threads"] if thread["has_hub"]}
    assert hubs == {target.pid}
    assert {act.tid for act in truth.acts}.isdisjoint(hubs)
    assert guilty(report) == []


def test_a_busy_loop_of_short_callbacks_is_no_hold() -> None:
    """Its hub never sleeps for a second and a half; only its polls tell the turns apart."""
    with run_target("busy_callbacks") as target:
        report = watch_script(target, "-t", "100ms")
        truth = target.truth()
        target.quit()
    assert truth.figures["turns"] > 100
    assert truth.figures["longest_hold_ns"] < 100_000_000
    assert guilty(report) == []


def test_the_moment_of_attaching_is_no_hold() -> None:
    """A hub that sleeps and wakes all the time while the probes are put in place."""
    with run_target("well_behaved", args=("seconds=20",)) as target:
        target.go()
        reports = []
        for _ in range(4):
            with attached_agent(target.pid, "-d", "300ms", "-t", "20ms") as agent:
                reports.append(agent.report())
        target.kill()
    assert [guilty(report) for report in reports] == [[], [], [], []]
    assert all(report["session"]["switches"] for report in reports)
