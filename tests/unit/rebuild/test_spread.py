"""spread(): dividing a hold's length over what was seen in it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenscope.model import REASON_CPU, REASON_FAULT, REASON_GC, REASON_PREEMPTED
from greenscope.rebuild.holds import Evidence, Place, Spent, spread
from tests.unit.rebuild.events import hold_event

MS = 1_000_000
FALLBACK = 99
SLEEP = "syscall:clock_nanosleep"
READ = "syscall:read"
BRK = "syscall:brk"


def evidence(
    samples: dict[Place, int] | None = None, blocks: dict[Place, Spent] | None = None
) -> Evidence:
    return Evidence(1, samples or {}, blocks or {})


def divided(event_fields: dict[str, int], seen: Evidence) -> dict[Place, tuple[int, int]]:
    event = hold_event(**event_fields)
    pieces = spread(event, seen, FALLBACK)
    return {place: (spent.duration_ns, spent.count) for place, spent in pieces.items()}


def test_hold_without_evidence_is_computing_at_the_stack_of_its_end() -> None:
    assert divided({"duration_ns": 12 * MS}, evidence()) == {(FALLBACK, REASON_CPU): (12 * MS, 1)}


def test_computing_is_divided_by_samples() -> None:
    seen = evidence({(1, REASON_CPU): 3, (2, REASON_CPU): 1})
    assert divided({"duration_ns": 40 * MS}, seen) == {
        (1, REASON_CPU): (30 * MS, 3),
        (2, REASON_CPU): (10 * MS, 1),
    }


def test_block_keeps_its_exact_length_beside_samples() -> None:
    seen = evidence({(1, REASON_CPU): 2}, {(2, SLEEP): Spent(30 * MS + 7, 1)})
    fields = {"duration_ns": 50 * MS, "blocked_ns": 30 * MS + 7}
    assert divided(fields, seen) == {
        (1, REASON_CPU): (20 * MS - 7, 2),
        (2, SLEEP): (30 * MS + 7, 1),
    }


def test_several_blocks_keep_their_lengths() -> None:
    seen = evidence(
        {(1, REASON_CPU): 1},
        {
            (2, SLEEP): Spent(20 * MS, 1),
            (3, READ): Spent(3 * MS, 2),
            (1, REASON_PREEMPTED): Spent(4 * MS, 3),
            (1, REASON_FAULT): Spent(2 * MS, 1),
        },
    )
    fields = {"duration_ns": 39 * MS, "blocked_ns": 25 * MS, "preempted_ns": 4 * MS}
    assert divided(fields, seen) == {
        (2, SLEEP): (20 * MS, 1),
        (3, READ): (3 * MS, 2),
        (1, REASON_PREEMPTED): (4 * MS, 3),
        (1, REASON_FAULT): (2 * MS, 1),
        (1, REASON_CPU): (10 * MS, 1),
    }


def test_computing_that_was_never_sampled_goes_to_the_largest_block() -> None:
    seen = evidence(blocks={(2, SLEEP): Spent(20 * MS, 1), (3, READ): Spent(2 * MS, 1)})
    fields = {"duration_ns": 23 * MS, "blocked_ns": 22 * MS}
    assert divided(fields, seen) == {(2, SLEEP): (21 * MS, 1), (3, READ): (2 * MS, 1)}


def test_blocks_that_were_too_short_to_send_are_charged_to_those_like_them() -> None:
    seen = evidence(
        {(1, REASON_CPU): 1},
        {
            (2, SLEEP): Spent(5 * MS, 3),
            (3, READ): Spent(5 * MS, 1),
            (1, REASON_PREEMPTED): Spent(1),
        },
    )
    seen.blocks[(1, REASON_PREEMPTED)].count = 1
    fields = {"duration_ns": 30 * MS, "blocked_ns": 14 * MS, "preempted_ns": 3 * MS}
    assert divided(fields, seen) == {
        (2, SLEEP): (8 * MS, 3),
        (3, READ): (6 * MS, 1),
        (1, REASON_PREEMPTED): (3 * MS, 1),
        (1, REASON_CPU): (13 * MS, 1),
    }


def test_block_that_began_before_the_hold_fills_it_at_most() -> None:
    seen = evidence(blocks={(2, SLEEP): Spent(80 * MS, 1)})
    assert divided({"duration_ns": 30 * MS, "blocked_ns": 30 * MS}, seen) == {
        (2, SLEEP): (30 * MS, 1)
    }


def test_collecting_gets_its_own_time_and_computing_the_rest() -> None:
    seen = evidence({(1, REASON_GC): 1, (1, REASON_CPU): 1, (2, REASON_CPU): 1})
    assert divided({"duration_ns": 20 * MS, "gc_ns": 12 * MS}, seen) == {
        (1, REASON_GC): (12 * MS, 1),
        (1, REASON_CPU): (4 * MS, 1),
        (2, REASON_CPU): (4 * MS, 1),
    }


def test_collecting_alone_gets_the_whole_hold() -> None:
    seen = evidence({(1, REASON_GC): 4})
    assert divided({"duration_ns": 20 * MS, "gc_ns": 19 * MS}, seen) == {
        (1, REASON_GC): (20 * MS, 4)
    }


def test_rare_samples_in_system_calls_count_as_computing() -> None:
    """A loop that computes allocates memory too."""
    seen = evidence({(1, REASON_CPU): 7, (1, BRK): 2, (2, BRK): 1})
    assert divided({"duration_ns": 100 * MS}, seen) == {
        (1, REASON_CPU): (90 * MS, 9),
        (2, REASON_CPU): (10 * MS, 1),
    }


def test_system_call_that_takes_half_of_the_samples_is_named() -> None:
    seen = evidence({(1, REASON_CPU): 5, (1, READ): 5})
    assert divided({"duration_ns": 100 * MS}, seen) == {
        (1, REASON_CPU): (50 * MS, 5),
        (1, READ): (50 * MS, 5),
    }


def test_call_that_both_computes_in_the_kernel_and_blocks_is_one_piece() -> None:
    seen = evidence({(1, READ): 2}, {(1, READ): Spent(10 * MS, 1)})
    fields = {"duration_ns": 30 * MS, "blocked_ns": 10 * MS}
    assert divided(fields, seen) == {(1, READ): (30 * MS, 3)}


REASONS = st.sampled_from([REASON_CPU, REASON_GC, READ, BRK])
OFF_REASONS = st.sampled_from([REASON_PREEMPTED, REASON_FAULT, READ, SLEEP])
TIMES = st.integers(0, 200 * MS) | st.integers(0, 20)
SEEN = st.builds(
    evidence,
    st.dictionaries(st.tuples(st.integers(0, 5), REASONS), st.integers(1, 50), max_size=6),
    st.dictionaries(
        st.tuples(st.integers(0, 5), OFF_REASONS),
        st.builds(Spent, TIMES, st.integers(1, 50)),
        max_size=6,
    ),
)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(seen=SEEN, duration=TIMES, blocked=TIMES, preempted=TIMES, gc=TIMES)
def test_pieces_add_up_to_the_hold_and_none_is_negative(
    seen: Evidence, duration: int, blocked: int, preempted: int, gc: int
) -> None:
    event = hold_event(duration, blocked_ns=blocked, preempted_ns=preempted, gc_ns=gc)
    pieces = spread(event, seen, FALLBACK)
    assert sum(spent.duration_ns for spent in pieces.values()) == duration
    assert all(spent.duration_ns >= 0 and spent.count >= 1 for spent in pieces.values())


@settings(max_examples=300, deadline=None, derandomize=True)
@given(seen=SEEN, computing=TIMES, gc=TIMES)
def test_blocks_keep_their_lengths_where_computing_was_sampled(
    seen: Evidence, computing: int, gc: int
) -> None:
    exact = {place: spent.duration_ns for place, spent in seen.blocks.items()}
    preempted = sum(ns for (_, reason), ns in exact.items() if reason == REASON_PREEMPTED)
    blocked = sum(exact.values()) - preempted
    seen.samples = {(9, REASON_CPU): 1} | seen.samples
    event = hold_event(
        blocked + preempted + computing, blocked_ns=blocked, preempted_ns=preempted, gc_ns=gc
    )
    pieces = spread(event, seen, FALLBACK)
    for place, length in exact.items():
        # Nanoseconds that do not divide go to the largest piece; samples may add to a block.
        if length and place not in seen.samples:
            rounding = pieces[place].duration_ns - length
            assert 0 <= rounding <= len(seen.samples)


@pytest.mark.parametrize("samples", [{}, {(1, REASON_CPU): 1}])
def test_evidence_is_not_changed(samples: dict[Place, int]) -> None:
    seen = evidence(dict(samples), {(2, SLEEP): Spent(80 * MS, 1)})
    spread(hold_event(30 * MS, blocked_ns=40 * MS), seen, FALLBACK)
    assert (seen.samples, seen.blocks) == (samples, {(2, SLEEP): Spent(80 * MS, 1)})
