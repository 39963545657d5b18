"""Counting switches and greenlets: the target's own figures, exactly."""

from __future__ import annotations

import pytest

from greenscope.model import GreenletTotals
from tests.bpf.tracing import Watch, watching
from tests.harness import TruthFile, run_target

pytestmark = pytest.mark.bpf

Watched = tuple[Watch, TruthFile]


def watch_script(name: str, python: str) -> Watched:
    with run_target(name, python) as target, watching(target) as watch:
        watch.run_script(target)
        watch.finish()
        return watch, target.truth()


@pytest.fixture(scope="module")
def raw(target_python: str) -> Watched:
    return watch_script("switch_script_raw", target_python)


@pytest.fixture(scope="module")
def gevent(target_python: str) -> Watched:
    return watch_script("switch_script_gevent", target_python)


@pytest.fixture(scope="module")
def short(target_python: str) -> Watched:
    return watch_script("short_greenlets", target_python)


@pytest.mark.parametrize("script", ["raw", "gevent"])
def test_every_switch_throw_and_kill_is_counted_once(
    script: str, request: pytest.FixtureRequest
) -> None:
    watch, truth = request.getfixturevalue(script)
    assert watch.switches == truth.figures["switches"] > 100_000
    assert truth.figures["throw_events"] > 0


@pytest.mark.parametrize("script", ["raw", "gevent", "short"])
def test_nothing_is_lost_at_the_usual_sizes(script: str, request: pytest.FixtureRequest) -> None:
    watch, _ = request.getfixturevalue(script)
    assert watch.losses == []


def test_switch_to_oneself_is_none(raw: Watched) -> None:
    watch, truth = raw
    assert truth.figures["switches_to_itself"] >= 500
    # greenlet tells the target of them, and they are not among these.
    assert watch.switches == truth.figures["switches"]


def test_progress_shows_the_switches_of_the_records(raw: Watched) -> None:
    watch, _ = raw
    assert watch.tracer.progress.switches == watch.switches


def test_switches_of_greenlets_add_up_to_those_of_their_threads(gevent: Watched) -> None:
    watch, _ = gevent
    everybody = sum(totals.switches for totals in watch.of(GreenletTotals))
    # The first switch has no origin: nobody was seen to leave.
    assert everybody == watch.switches - 1


def test_1001_short_greenlets_are_1001_identities(short: Watched) -> None:
    """Case L1: they use a handful of addresses."""
    watch, truth = short
    assert truth.figures["addresses"] < 100
    # And the main greenlet.
    assert sum(totals.seen for totals in watch.greenlets) == truth.figures["greenlets"] + 1


def test_greenlets_that_ended_are_counted_as_ended(short: Watched) -> None:
    watch, truth = short
    assert sum(totals.ended for totals in watch.greenlets) == truth.figures["greenlets"]


def test_greenlet_that_naps_is_named_by_its_function(short: Watched) -> None:
    watch, truth = short
    napping = [t for t in watch.greenlets if t.kind and t.kind.function == "napping_job"]
    assert sum(totals.seen for totals in napping) == truth.figures["greenlets_of"]["napping_job"]
