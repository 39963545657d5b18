"""The governor against probes that are only imagined; the clock is real, the counts are not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from greenscope.budget.costs import CALL, Hits
from greenscope.budget.governor import Governor
from greenscope.errors import BpfUnavailable, TargetNotFound
from greenscope.model import AgentCost, Shed

TIMEOUT_S = 30.0
BARE_NS = 1_000.0


class Imagined:
    """Probes that are hit `calls_per_count` times between two counts while they are armed."""

    def __init__(self, calls_per_count: int, error: Exception | None = None) -> None:
        self.armed = False
        self.log: list[bool] = []
        self._per_count = calls_per_count
        self._calls = 0
        self._error = error
        self._changed = threading.Condition()

    def arm(self) -> None:
        if self._error:
            raise self._error
        self._set(True)

    def disarm(self) -> None:
        self._set(False)

    def hits(self) -> Hits:
        self._calls += self._per_count if self.armed else 0
        return Hits(calls=self._calls)

    def wait_for(self, *log: bool) -> None:
        """Until they were armed and disarmed in this order."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.log[: len(log)] == list(log), TIMEOUT_S)

    def _set(self, armed: bool) -> None:
        with self._changed:
            self.armed = armed
            self.log.append(armed)
            self._changed.notify_all()


@contextmanager
def governed(probes: Imagined, share: float | None) -> Iterator[Governor]:
    governor = Governor(probes, lambda: BARE_NS, share)
    governor.start()
    try:
        yield governor
    finally:
        governor.stop()


def test_cheap_calls_stay_armed_until_the_end() -> None:
    probes = Imagined(calls_per_count=0)
    with governed(probes, share=1.0):
        probes.wait_for(True)
    assert probes.log == [True, False]


def test_dear_calls_come_in_bursts() -> None:
    # 40 ms worth of hits at each count: over any budget.
    probes = Imagined(calls_per_count=int(40_000_000 / BARE_NS / CALL))
    with governed(probes, share=0.5) as governor:
        probes.wait_for(True, False, True, False)
    records = governor.take()
    off = [record for record in records if isinstance(record, Shed)]
    assert len(off) >= 3
    assert all(record.what == "calls" and record.why == "budget" for record in off)
    edges = [edge for record in off for edge in (record.from_ktime_ns, record.to_ktime_ns)]
    assert edges == sorted(edges)
    assert probes.armed is False


def test_no_limit_means_no_bursts() -> None:
    probes = Imagined(calls_per_count=10_000_000)
    with governed(probes, share=None) as governor:
        probes.wait_for(True)
    assert probes.log == [True, False]
    assert sum(isinstance(record, AgentCost) for record in governor.take()) >= 1


def test_cost_is_hits_times_what_one_costs() -> None:
    probes = Imagined(calls_per_count=1_000)
    with governed(probes, share=None) as governor:
        probes.wait_for(True)
    costs = [record for record in governor.take() if isinstance(record, AgentCost)]
    hits = sum(cost.hits for cost in costs)
    assert hits == probes.hits().calls > 0
    assert sum(cost.cost_ns for cost in costs) == pytest.approx(hits * BARE_NS * CALL, abs=2)


def test_target_that_is_gone_is_no_failure() -> None:
    governor = Governor(Imagined(0, TargetNotFound("gone")), lambda: BARE_NS, None)
    governor.start()
    governor._thread.join(TIMEOUT_S)
    governor.stop()
    assert all(isinstance(record, AgentCost | Shed) for record in governor.take())


def test_refused_probe_is_told_to_whoever_takes_the_records() -> None:
    governor = Governor(Imagined(0, BpfUnavailable("refused")), lambda: BARE_NS, None)
    governor.start()
    governor._thread.join(TIMEOUT_S)
    with pytest.raises(BpfUnavailable, match="refused"):
        governor.take()
    governor.stop()
