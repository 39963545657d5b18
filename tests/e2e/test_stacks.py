"""Stacks are those of the greenlet. Cases S3 (not another's), S5 (attach in mid-call), L1."""

from __future__ import annotations

import pytest

from tests.harness import run_target
from tests.harness.agent import attached_agent, guilty, watch_script

pytestmark = pytest.mark.bpf


def test_each_of_twenty_greenlets_has_its_own_stack() -> None:
    with run_target("deep_stacks") as target:
        report = watch_script(target)
        truth = target.truth()
        target.quit()
    # By the innermost two: the target's own list ends in the blocking call's line as well.
    found = {tuple((f["function"], f["line"]) for f in spot["stack"]) for spot in guilty(report)}
    expected = {tuple((f.function, f.line) for f in stack.frames) for stack in truth.stacks}
    assert len(expected) == 20
    assert found == expected
    assert all(spot["stack_status"] == "complete" for spot in guilty(report))


OPEN_HOLDS = {
    "read": ("read_until_released", "syscall:read"),
    "cpu": ("compute_until_released", "cpu"),
    "sleep": ("sleep_long", "syscall:clock_nanosleep"),
}


@pytest.mark.parametrize("how", OPEN_HOLDS)
def test_a_hold_longer_than_the_watch_is_reported_as_open(how: str) -> None:
    """The hold begins before the watch (S5: attach in mid-call) and outlasts it."""
    with run_target("long_hold", args=(f"how={how}", "seconds=30")) as target:
        target.go()
        target.wait_event("holding")
        with attached_agent(target.pid, "-d", "1s") as agent:
            report = agent.report()
        target.kill()
    (spot,) = guilty(report)
    function, reason = OPEN_HOLDS[how]
    assert spot["reason"] == reason
    assert spot["open"] == spot["holds"] == 1
    assert spot["total_ns"] == pytest.approx(report["session"]["duration_ns"], rel=0.05)
    assert spot["stack_status"] == "complete"
    assert spot["function"] == function


def test_a_hold_that_began_before_the_watch_ends_in_it() -> None:
    with run_target("long_hold", args=("how=read",)) as target:
        target.go()
        target.wait_event("holding")
        # What is seen of it may be short: the release follows the attach at once.
        with attached_agent(target.pid, "-t", "100us") as agent:
            target.send("release")
            target.wait_done()
            agent.interrupt()
            report = agent.report()
        target.quit()
    reads = [spot for spot in guilty(report) if spot["reason"] == "syscall:read"]
    assert len(reads) == 1
    assert reads[0]["open"] == 0


def test_1001_short_greenlets_are_1001_identities() -> None:
    """Case L1: their addresses are a handful. Most end without ever waiting, and have a name."""
    with run_target("short_greenlets") as target:
        report = watch_script(target)
        truth = target.truth()
        target.quit()
    short = [row for row in report["greenlets"] if row["ended"]]
    assert sum(row["ended"] for row in short) == truth.figures["greenlets"] == 1001
    assert truth.figures["addresses"] < 100
    assert {row["function"]: row["ended"] for row in short} == truth.figures["greenlets_of"]
    switches = {row["function"]: row["switches"] for row in short}
    assert switches == truth.figures["arrivals_of"]
