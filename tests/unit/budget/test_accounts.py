import os
import time

from greenscope.budget.accounts import Accounts, resident_bytes, stolen_ns
from greenscope.budget.costs import SWITCH, Hits
from greenscope.model import AgentCost, StolenTime

STAT = "cpu  10 20 30 40 50 60 70 800 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n"


def test_stolen_time_is_the_eighth_figure_of_the_first_line() -> None:
    assert stolen_ns(STAT) == 800 * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def test_an_old_kernel_that_does_not_tell_stole_nothing() -> None:
    assert stolen_ns("cpu 1 2 3 4\n") == 0


def test_each_stretch_has_its_own_costs() -> None:
    accounts = Accounts(now_ns=100, bare_ns=1000.0, share=0.5)
    first, stolen = accounts.records(200, Hits(switches=10))
    second, _ = accounts.records(300, Hits(switches=15))
    assert isinstance(first, AgentCost)
    assert isinstance(second, AgentCost)
    assert isinstance(stolen, StolenTime)
    assert (first.from_ktime_ns, first.to_ktime_ns, first.hits) == (100, 200, 10)
    assert first.budget_ns == 50
    assert first.cost_ns == round(10 * 1000 * SWITCH)
    assert (second.from_ktime_ns, second.to_ktime_ns, second.hits) == (200, 300, 5)
    assert stolen.cpus >= 1


def test_the_cpu_time_is_this_process_own() -> None:
    accounts = Accounts(now_ns=0, bare_ns=0.0)
    begin_ns = time.process_time_ns()
    while time.process_time_ns() - begin_ns < 20_000_000:
        pass
    cost = next(accounts.records(1, Hits()))
    assert isinstance(cost, AgentCost)
    assert cost.cpu_ns >= 20_000_000


def test_memory_is_that_of_an_interpreter_at_least() -> None:
    assert 5_000_000 < resident_bytes() < 5_000_000_000
