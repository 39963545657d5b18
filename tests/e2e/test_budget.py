"""A program that hands over all the time costs no more than allowed, and its holds are found."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.harness.agent import guilty, watch_script
from tests.harness.machine import stolen_time
from tests.harness.runner import TruthFile, run_target

HOLDS = ("hold_ms=40", "pause_ms=100", "seconds=4")
MS = 1_000_000


def watch(*args: str, options: tuple[str, ...] = ()) -> tuple[dict[str, Any], TruthFile, int]:
    """Report, truth, and what the host took from the machine meanwhile."""
    with run_target("fast_switches", args=args) as target, stolen_time() as stolen:
        report = watch_script(target, *options)
        truth = target.truth()
        target.quit()
    return report, truth, stolen.ns


def true_switches(truth: TruthFile) -> int:
    turns: int = truth.figures["turns"]
    return 2 * turns


@pytest.mark.parametrize("contexts", [0, 1])
@pytest.mark.parametrize("work_us", [0, 10])
def test_switches_that_were_not_seen_are_estimated(work_us: int, contexts: int) -> None:
    """By greenlet's own count, less what functions in contexts of their own add to it."""
    args = (f"work_us={work_us}", f"contexts={contexts}", "seconds=3")
    report, truth, _ = watch(*args)
    session = report["session"]
    assert session["watched_share"] < 0.9
    assert session["unwatched_switches"] > 0
    assert session["switches"] == pytest.approx(true_switches(truth), rel=0.1)
    assert report["cost"]["target_ns"] < 1.5 * report["cost"]["budget_ns"]


def test_without_a_limit_every_switch_is_counted() -> None:
    report, truth, _ = watch("seconds=1", options=("--budget", "none"))
    session = report["session"]
    assert (session["watched_share"], session["unwatched_switches"]) == (1.0, 0)
    assert report["cost"]["budget_ns"] == 0
    # Beside the hand-overs: the greenlets' begins and ends, and the script's own waiting.
    assert 0 <= session["switches"] - true_switches(truth) < 1000


def check_holds(report: dict[str, Any], truth: TruthFile, stolen_ns: int) -> None:
    """Every hold of an act, where it was, with its length as far as it claims to be known."""
    assert report["session"]["watched_share"] < 0.9
    acts = Counter(act.function for act in truth.acts)
    spots = {spot["function"]: spot for spot in guilty(report)}
    assert spots.keys() == acts.keys() == {"compute", "stop_all"}
    for function, count in acts.items():
        spot = spots[function]
        true_ns = sum(act.duration_ns for act in truth.acts if act.function == function)
        others_ns = stolen_ns + spot["reasons"].get("preempted", 0)
        assert spot["holds"] == count
        assert spot["total_ns"] == pytest.approx(
            true_ns, abs=spot["uncertainty_ns"] + 0.05 * true_ns + others_ns
        )


def test_holds_are_found_while_the_probe_is_off() -> None:
    report, truth, stolen_ns = watch(*HOLDS)
    check_holds(report, truth, stolen_ns)
    assert all(spot["uncertainty_ns"] for spot in guilty(report))
    # Not told of by their ends alone: most began while it was off.
    for spot in guilty(report):
        assert spot["uncertainty_ns"] < spot["holds"] * 20 * MS


def test_hold_of_a_hub_is_found_though_its_loop_may_turn_unseen() -> None:
    """A callback's: asleep all are found, computing most (docs/reports.md)."""
    report, truth, stolen_ns = watch(*HOLDS, "hub=1")
    acts = Counter(act.function for act in truth.acts)
    spots = {spot["function"]: spot for spot in guilty(report)}
    assert spots.keys() == {"compute", "stop_all"}
    assert spots["stop_all"]["holds"] == acts["stop_all"]
    assert spots["compute"]["holds"] >= 0.6 * acts["compute"]
    for spot in spots.values():
        acts_ns = 40 * MS * spot["holds"]
        others_ns = stolen_ns + spot["reasons"].get("preempted", 0)
        assert spot["total_ns"] == pytest.approx(
            acts_ns, abs=spot["uncertainty_ns"] + 0.05 * acts_ns + others_ns
        )


def test_program_with_few_switches_is_seen_all_the_time() -> None:
    report, truth, _ = watch("work_us=400", "seconds=2", "greenlets=10")
    session = report["session"]
    assert (session["watched_share"], session["unwatched_switches"]) == (1.0, 0)
    assert 0 <= session["switches"] - true_switches(truth) < 200
    assert report["cost"]["target_ns"] < report["cost"]["budget_ns"]
    # Without the compiler, which a process of its own had.
    assert report["cost"]["agent_rss_bytes"] < 60_000_000


def births(*options: str) -> tuple[dict[str, Any], int]:
    """Report, and how many greenlets were spawned."""
    with run_target("many_births") as target:
        report = watch_script(target, *options)
        spawned: int = target.truth().figures["spawned"]
        target.quit()
    return report, spawned


def test_births_come_in_bursts_too_where_they_are_too_dear() -> None:
    report, spawned = births()
    seen = sum(row["seen"] for row in report["greenlets"])
    assert 0 < seen < 0.7 * spawned
    assert ["births and ends" in shed["what"] for shed in report["shed"]] == [True]
    assert report["cost"]["target_ns"] < 2 * report["cost"]["budget_ns"]
    (thread,) = report["threads"]
    switches = thread["switches"] + thread["unwatched_switches"]
    # By greenlet.settrace: four for one that ends at once, with those to whoever joins it and
    # back, and six for one that hands over.
    assert switches == pytest.approx(5 * spawned, rel=0.1)


def test_every_birth_is_counted_without_a_limit() -> None:
    report, spawned = births("--budget", "none")
    # Beside them: the hub, the main greenlet, and what waits for the command.
    assert 0 <= sum(row["seen"] for row in report["greenlets"]) - spawned < 20
    assert report["shed"] == []
