"""The rule of the budget on made-up programs: what it spends, and how much it sees."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from greenscope.budget.allowance import BURST_NS, Allowance

TICK_NS = 5_000_000
SECOND_NS = 1_000_000_000


@dataclass
class Played:
    """What came of a program: parts of the time that were spent, and in which calls were seen."""

    spent: float
    armed: float
    bursts: int
    worst_second: float


def play(share: float, calls: float, switches: float = 0.0, seconds: int = 60) -> Played:
    """A program whose call probes would take `calls` of its time, its switches `switches`.

    One that would take more than all of it takes all of it, as it only makes fewer calls.
    """
    allowance = Allowance(share, last_ns=0)
    spent_ns = armed_ns = bursts = 0.0
    by_second = [0.0] * seconds
    for tick in range(seconds * SECOND_NS // TICK_NS):
        now_ns = (tick + 1) * TICK_NS
        cost_ns = TICK_NS * min(1.0, switches + (calls if allowance.is_armed else 0.0))
        spent_ns += cost_ns
        by_second[tick * TICK_NS // SECOND_NS] += cost_ns / SECOND_NS
        armed_ns += TICK_NS if allowance.is_armed else 0
        was_armed = allowance.is_armed
        allowance.pass_time(now_ns, cost_ns)
        bursts += allowance.decide() and not was_armed
    whole_ns = seconds * SECOND_NS
    return Played(spent_ns / whole_ns, armed_ns / whole_ns, int(bursts), max(by_second))


def test_few_calls_are_watched_all_the_time() -> None:
    played = play(0.02, calls=0.01)
    assert played.bursts == 1
    assert played.armed > 0.97


@pytest.mark.parametrize("share", [0.005, 0.02, 0.1])
@pytest.mark.parametrize("calls", [0.03, 0.3, 1.0])
def test_what_is_spent_stays_within_the_budget(share: float, calls: float) -> None:
    played = play(share, calls)
    assert played.spent <= share * 1.1
    assert played.armed > 0


def test_millions_of_calls_are_seen_in_short_bursts() -> None:
    played = play(0.02, calls=1.0)
    assert played.bursts > 30
    assert 0.01 < played.armed < 0.022
    assert played.worst_second < 0.05


def test_quiet_hours_are_not_spent_at_once() -> None:
    allowance = Allowance(0.02, last_ns=0, is_armed=True)
    allowance.pass_time(3600 * SECOND_NS, cost_ns=0.0)
    assert allowance.balance_ns == pytest.approx(0.02 * 5 * SECOND_NS)


def test_switches_that_use_the_budget_up_leave_no_calls() -> None:
    assert play(0.02, calls=0.5, switches=0.02).armed == 0
    assert play(0.02, calls=0.5, switches=0.01).spent <= 0.021


def test_burst_begins_when_its_price_is_saved() -> None:
    allowance = Allowance(0.02, last_ns=0)
    allowance.pass_time(int(BURST_NS / 0.02) - 1000, cost_ns=0.0)
    assert not allowance.decide()
    allowance.pass_time(int(BURST_NS / 0.02) + 1000, cost_ns=0.0)
    assert allowance.decide()
    allowance.pass_time(allowance.last_ns + 1000, cost_ns=BURST_NS + 10_000)
    assert not allowance.decide()
