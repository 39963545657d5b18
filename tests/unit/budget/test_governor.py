"""The governor against probes that are only imagined; the clock is real, the counts are not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from greenscope.budget.allowance import BURST_NS
from greenscope.budget.costs import SWITCH, Hits
from greenscope.budget.governor import Governor
from greenscope.errors import BpfUnavailable, TargetNotFound

TIMEOUT_S = 30.0
BARE_NS = 1_000.0
DEAR = int(2 * BURST_NS / BARE_NS / SWITCH)  # switches that cost two bursts


class Imagined:
    """Probes that are hit `per_count` times between two counts while they are in place."""

    def __init__(self, per_count: int, error: Exception | None = None) -> None:
        self.is_on = True
        self.log: list[bool] = []
        self.per_count = per_count
        self._switches = self._births = self.births_per_count = 0
        self.has_births = False
        self._error = error
        self._counts = 0
        self._changed = threading.Condition()

    def turn_on(self) -> None:
        if self._error:
            raise self._error
        self._turn(True)

    def turn_off(self) -> None:
        self._turn(False)

    def include_births(self) -> None:
        with self._changed:
            self.has_births = True
            self._changed.notify_all()

    def hits(self) -> Hits:
        with self._changed:
            self._switches += self.per_count if self.is_on else 0
            self._counts += 1
            self._changed.notify_all()
            self._births += self.births_per_count
            return Hits(switches=self._switches, births=self._births)

    def wait_for_counts(self, more: int) -> None:
        """Until the governor has looked so often again."""
        with self._changed:
            until = self._counts + more
            assert self._changed.wait_for(lambda: self._counts >= until, TIMEOUT_S)

    def wait_for(self, *log: bool) -> None:
        """Until they were turned in this order."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.log[: len(log)] == list(log), TIMEOUT_S)

    def _turn(self, is_on: bool) -> None:
        with self._changed:
            self.is_on = is_on
            self.log.append(is_on)
            self._changed.notify_all()


@contextmanager
def governed(probes: Imagined, share: float) -> Iterator[Governor]:
    governor = Governor(probes, BARE_NS, share)
    governor.start()
    try:
        yield governor
    finally:
        governor.stop()


def test_cheap_probes_stay_in_place() -> None:
    probes = Imagined(per_count=0)
    with governed(probes, share=0.02):
        probes.wait_for_counts(5)
    assert probes.log == []


def test_dear_probes_come_in_bursts() -> None:
    probes = Imagined(DEAR)
    with governed(probes, share=0.5):
        probes.wait_for(False, True, False, True)


def test_hold_that_goes_on_brings_them_back_before_the_next_burst() -> None:
    # Less than two bursts in debt, and with this share the next one is minutes away.
    probes = Imagined(int(DEAR * 0.7))
    with governed(probes, share=0.0001) as governor:
        probes.wait_for(False)
        probes.per_count = 0
        governor.see_stuck()
        probes.wait_for(False, True)
        probes.wait_for_counts(3)
        assert probes.is_on  # until there are hits again
        probes.per_count = DEAR
        probes.wait_for(False, True, False)


def test_holds_again_and_again_are_no_way_around_the_budget() -> None:
    probes = Imagined(3 * DEAR)
    with governed(probes, share=0.0001) as governor:
        probes.wait_for(False)
        governor.see_stuck()
        probes.wait_for_counts(3)
    assert probes.log == [False]


@pytest.mark.parametrize(("per_count", "shed"), [(0, False), (DEAR, True)])
def test_births_are_turned_too_where_they_alone_are_too_dear(per_count: int, shed: bool) -> None:
    probes = Imagined(per_count=0)
    probes.births_per_count = per_count
    with governed(probes, share=0.5):
        if shed:
            with probes._changed:
                assert probes._changed.wait_for(lambda: probes.has_births, TIMEOUT_S)
        else:
            probes.wait_for_counts(25)
    assert probes.has_births == shed


def test_target_that_is_gone_is_no_failure() -> None:
    probes = Imagined(DEAR, TargetNotFound("gone"))
    with governed(probes, share=1.0) as governor:
        probes.wait_for(False)
        governor._thread.join(TIMEOUT_S)
        governor.check()


def test_refused_probe_is_told() -> None:
    probes = Imagined(DEAR, BpfUnavailable("refused"))
    with governed(probes, share=1.0) as governor:
        probes.wait_for(False)
        governor._thread.join(TIMEOUT_S)
        with pytest.raises(BpfUnavailable, match="refused"):
            governor.check()
