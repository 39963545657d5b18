"""A ring that is far too small (case D1): what is lost is counted, and nothing else is wrong."""

from __future__ import annotations

import pytest

from greenscope.bpf import abi
from greenscope.bpf.loader import Kernel
from greenscope.bpf.programs import Limits
from greenscope.model import GreenletTotals, Hold, Loss, ThreadTotals
from greenscope.tracer import Options
from tests.bpf.tracing import Watch, watching
from tests.harness import TruthFile, run_target

pytestmark = pytest.mark.bpf

TINY = Limits(event_ring_bytes=4096)
EVERY_HOLD = Options(
    budget=None, threshold_ns=1, sample_hz=1, wait_stacks=abi.WaitStacks.OFF, limits=TINY
)


@pytest.fixture(scope="module")
def drained(target_python: str) -> tuple[Watch, TruthFile]:
    """The ring is drained as fast as this process can, which is not enough."""
    with (
        run_target("ring_storm", target_python, args=("seconds=1",)) as target,
        watching(target, EVERY_HOLD) as watch,
    ):
        watch.run_script(target)
        watch.finish()
        return watch, target.truth()


@pytest.fixture(scope="module")
def undrained(target_python: str) -> tuple[Watch, TruthFile]:
    """Nobody reads until the storm is over: what is left in the ring is what came first."""
    with (
        run_target("ring_storm", target_python, args=("seconds=0.2",)) as target,
        watching(target, EVERY_HOLD) as watch,
    ):
        target.go()
        target.wait_done()
        watch.finish()
        return watch, target.truth()


class SwitchesOnly(Kernel):
    """Without sampler and scheduler every event is a hold or the end of a greenlet."""

    def attach_sched(self) -> None:
        pass

    def attach_sampler(self, hz: int) -> None:
        pass


WAYS = pytest.mark.parametrize("way", ["drained", "undrained"])


def counts(way: str, request: pytest.FixtureRequest) -> tuple[int, int, int, int]:
    """(the target's switches, holds that ended, holds that arrived, events lost)."""
    watch, truth = request.getfixturevalue(way)
    ended = sum(totals.holds for totals in watch.of(ThreadTotals))
    arrived = sum(not hold.is_open for hold in watch.of(Hold))
    lost = sum(loss.count for loss in watch.of(Loss) if loss.what == "events")
    return truth.figures["switches"], ended, arrived, lost


@WAYS
def test_switches_are_counted_exactly_whatever_is_lost(
    way: str, request: pytest.FixtureRequest
) -> None:
    watch, truth = request.getfixturevalue(way)
    assert watch.switches == truth.figures["switches"]


@WAYS
def test_every_hold_either_arrives_or_is_counted_as_lost(
    way: str, request: pytest.FixtureRequest
) -> None:
    _, ended, arrived, lost = counts(way, request)
    assert arrived < ended
    assert ended - arrived <= lost


@WAYS
def test_loss_counts_nothing_that_was_not_sent(way: str, request: pytest.FixtureRequest) -> None:
    switches, ended, arrived, lost = counts(way, request)
    # Besides holds: a sample now and then, blocks of the naps, the ends of two greenlets.
    others = lost - (ended - arrived)
    assert 0 <= others < switches // 20


def test_arrived_and_lost_events_add_up_to_those_sent(target_python: str) -> None:
    with (
        run_target("ring_storm", target_python, args=("seconds=1",)) as target,
        watching(target, EVERY_HOLD, SwitchesOnly) as watch,
    ):
        watch.run_script(target)
        watch.finish()
    holds_sent = sum(totals.holds for totals in watch.of(ThreadTotals))
    holds_arrived = sum(not hold.is_open for hold in watch.of(Hold))
    ends_sent = 2  # the storm and its echo
    ends_arrived = sum(totals.ended for totals in watch.of(GreenletTotals))
    lost = sum(loss.count for loss in watch.of(Loss) if loss.what == "events")
    # The first switch ends no hold that was seen to begin; a turn of the hub's loop ends one too.
    assert holds_sent >= watch.switches - 1
    assert holds_arrived + ends_arrived + lost == holds_sent + ends_sent


def test_ring_that_nobody_drains_keeps_the_oldest(
    undrained: tuple[Watch, TruthFile], request: pytest.FixtureRequest
) -> None:
    _, _, arrived, _ = counts("undrained", request)
    # 46 records of 88 bytes fit into 4096.
    assert 40 <= arrived <= 46


def test_loss_lies_within_the_watch(drained: tuple[Watch, TruthFile]) -> None:
    watch, _ = drained
    assert watch.losses
    for loss in watch.losses:
        assert loss.from_ktime_ns < loss.to_ktime_ns
    assert watch.tracer.progress.lost == sum(loss.count for loss in watch.losses)
