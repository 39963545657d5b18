"""The ground truth itself: every target runs to its end, and its own account holds together.

No greenscope here. Where a length is compared with the clock, only the lower bound is certain:
a busy machine may make everything longer.
"""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from itertools import pairwise

import pytest

from tests.harness import (
    Act,
    RunningTarget,
    TargetUnavailable,
    TruthFile,
    run_target,
    state_watch,
)

MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Expected:
    """What a target must say: per guilty function, how many acts, how long at least, how."""

    target: str
    acts: dict[str, int]
    at_least_ms: float
    call: str
    args: tuple[str, ...] = ()


# A few acts each are enough here; the defaults are for the tests that measure.
GUILTY = [
    Expected("blocking_sleep", {"wait_for_stock": 2}, 40, "time.sleep(", ("times=2",)),
    Expected("cpu_loop", {"count_primes": 2}, 60, "while monotonic_ns()", ("times=2",)),
    Expected("hub_callback", {"refresh_cache": 2}, 50, "while monotonic_ns()", ("times=2",)),
    # Calibrated once, and the machine may become faster.
    Expected("long_c_call", {"compress_archive": 2, "export_rows": 2}, 10, "(", ("times=2",)),
    # From here on the other process's time runs before the act begins.
    Expected("file_lock", {"update_ledger": 2}, 10, "fcntl.flock(", ("times=2",)),
    Expected("unpatched_recv", {"read_answer": 2}, 10, ".recv(", ("times=2",)),
    Expected("unpatched_dns", {"find_host": 2}, 10, "socket.getaddrinfo(", ("times=2",)),
    Expected("forced_gc", {"drop_caches": 2}, 20, "gc.collect()", ("times=2",)),
    Expected("small_blocks", {"poll_device": 1}, 100, "time.sleep(", ("times=1",)),
    *(
        Expected(
            "monkey_patched",
            {"call_legacy_service": 2},
            40,
            "real_sleep(",
            ("times=2", f"patch={when}"),
        )
        for when in ("before", "after", "never")
    ),
]  # fmt: skip


def run_to_the_end(target: RunningTarget) -> TruthFile:
    target.go()
    target.wait_done()
    truth = target.truth()
    report = target.quit()
    assert (report.returncode, report.signals) == (0, ())
    return truth


def truth_of(name: str, python: str, *args: str) -> TruthFile:
    try:
        with run_target(name, python, args=args) as target:
            return run_to_the_end(target)
    except TargetUnavailable as unavailable:
        pytest.skip(str(unavailable))


def short_name(act: Act) -> str:
    """Before 3.11 a code object does not know its class."""
    return act.function.rpartition(".")[2]


def check_act(act: Act, call: str, at_least_ms: float) -> None:
    for line in act.lines:
        assert "# GUILTY" in linecache.getline(act.file, line)
    assert call in linecache.getline(act.file, act.line)
    assert act.line == act.lines[0]
    assert (act.stack[0].function, act.stack[0].line) == (act.function, act.line)
    assert act.duration_ns >= at_least_ms * MS
    if act.reason.startswith("syscall:"):
        assert act.cpu_ns < act.duration_ns / 2


@pytest.mark.parametrize("expected", GUILTY, ids=lambda e: " ".join((e.target, *e.args)))
def test_a_guilty_target_names_its_line_and_length(expected: Expected, target_python: str) -> None:
    truth = truth_of(expected.target, target_python, *expected.args)
    done: dict[str, int] = {}
    for act in truth.acts:
        check_act(act, expected.call, expected.at_least_ms)
        done[act.function] = done.get(act.function, 0) + 1
    assert done == expected.acts


def test_acts_of_one_thread_never_overlap(target_python: str) -> None:
    acts = truth_of("blocking_sleep", target_python).acts
    for earlier, later in pairwise(acts):
        assert earlier.end_ns <= later.begin_ns


def test_a_long_hold_may_end_by_itself(target_python: str) -> None:
    with run_target("long_hold", target_python, args=("how=sleep", "seconds=0.05")) as target:
        target.go()
        target.wait_event("holding")
        target.wait_done()
        acts = target.truth().acts
    assert [act.function for act in acts] == ["sleep_long", "sleep_afterwards"]
    for act in acts:
        check_act(act, "time.sleep(", 40)


@pytest.mark.parametrize(("how", "reason"), [("read", "syscall:read"), ("cpu", "cpu")])
def test_a_long_hold_lasts_until_it_is_released(how: str, reason: str, target_python: str) -> None:
    with run_target("long_hold", target_python, args=(f"how={how}",)) as target:
        target.go()
        holding = target.wait_event("holding")
        target.send("release")
        target.wait_done()
        held, afterwards = target.truth().acts
        assert target.quit().returncode == 0
    assert (held.function, held.line, held.reason) == (
        holding["function"], holding["line"], reason,
    )  # fmt: skip
    assert held.begin_ns >= holding["at_ns"]
    assert afterwards.function == "sleep_afterwards"


def test_stacks_of_twenty_greenlets_are_five_deep_and_their_own(target_python: str) -> None:
    truth = truth_of("deep_stacks", target_python, "times=1", "ms=1")
    assert len(truth.stacks) == len({stack.greenlet for stack in truth.stacks}) == 20
    for stack, act in zip(truth.stacks, truth.acts, strict=True):
        assert stack.frames[:5] == act.stack[:5]
        assert [frame.function for frame in stack.frames[:5]] == [
            f"{stack.greenlet}_level{level}" for level in (4, 3, 2, 1, 0)
        ]


def test_well_behaved_greenlets_know_their_longest_hold(target_python: str) -> None:
    truth = truth_of("well_behaved", target_python, "seconds=0.3")
    assert truth.acts == ()
    assert truth.figures["greenlets"] == 200
    assert 0 < truth.figures["longest_hold_ns"] <= truth.figures["total_hold_ns"]


@pytest.mark.parametrize("name", ["switch_script_raw", "switch_script_gevent"])
def test_switch_scripts_make_the_same_switches_every_time(name: str, target_python: str) -> None:
    first, second = (truth_of(name, target_python).figures for _ in range(2))
    assert first == second
    assert first["switches"] > 100_000
    assert first["switches"] == first["switch_events"] + first["throw_events"]
    assert first["switches"] == sum(first["arrivals"].values())
    assert first["throw_events"] > 0


def test_short_greenlets_reuse_addresses(target_python: str) -> None:
    figures = truth_of("short_greenlets", target_python).figures
    assert figures["greenlets"] == 1001 == sum(figures["greenlets_of"].values())
    assert figures["addresses"] < 100


def test_pool_threads_act_on_threads_of_their_own(target_python: str) -> None:
    with run_target("pool_threads", target_python, args=("times=1", "gil=1")) as target:
        truth = run_to_the_end(target)
    assert {act.function for act in truth.acts} == {
        "sleep_in_pool", "compress_in_pool", "compute_in_pool",
    }  # fmt: skip
    assert all(not act.holds_hub and act.tid != target.pid for act in truth.acts)


def test_a_forced_collection_lies_within_its_act(target_python: str) -> None:
    truth = truth_of("forced_gc", target_python, "times=2")
    for act, (begin_ns, end_ns) in zip(truth.acts, truth.figures["gc_pauses"], strict=True):
        assert act.begin_ns <= begin_ns <= end_ns <= act.end_ns


def test_the_mixed_server_acts_once_for_each_guilty_request(target_python: str) -> None:
    truth = truth_of("mixed_server", target_python, "times=1")
    guilty_requests, innocent_requests = truth.figures["requests"]
    assert len(innocent_requests) == 80
    assert {status for _, status, _, _ in guilty_requests + innocent_requests} == {200}
    assert [act.greenlet for act in truth.acts] == [request[0] for request in guilty_requests]
    for act, (_, _, begin_ns, end_ns) in zip(truth.acts, guilty_requests, strict=True):
        assert begin_ns <= act.begin_ns <= act.end_ns <= end_ns
    assert [short_name(act) for act in truth.acts if act.is_hub] == ["refresh"]


def test_the_idle_server_answers_and_does_nothing_else(target_python: str) -> None:
    truth = truth_of("idle_server", target_python, "requests=2", "pause_ms=1")
    assert [request[:2] for request in truth.figures["requests"][0]] == [["/", 200]] * 2
    assert truth.acts == ()


def test_a_storm_counts_its_switches(target_python: str) -> None:
    figures = truth_of("ring_storm", target_python, "seconds=0.1").figures
    assert figures["switches"] > 2000
    assert figures["switches"] % 2 == 0


def test_a_target_is_never_stopped_on_its_own(target_python: str) -> None:
    with (
        run_target("blocking_sleep", target_python, args=("times=2",)) as target,
        state_watch(target.pid) as watch,
    ):
        target.go()
        target.wait_done()
    assert watch.rounds > 10
    assert watch.stopped == 0
