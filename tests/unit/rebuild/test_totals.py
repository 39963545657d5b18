"""Sums as increments: over any number of flushes they add up to the truth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenscope.bpf import abi
from greenscope.model import GreenletTotals, ThreadTotals
from greenscope.offsets.table import InstrKind
from greenscope.rebuild.code import CodeObject
from greenscope.rebuild.totals import (
    GreenletBooks,
    GreenletState,
    ThreadBooks,
    ended_greenlet,
    living_greenlet,
)
from tests.unit.rebuild.events import TID, end_event
from tests.unit.rebuild.resolvers import HUB_RUN, JOB, VIEW, KnownStacks, stack_of

MS = 1_000_000
STACKS = {1: stack_of(VIEW), 3: stack_of(JOB), 5: stack_of(HUB_RUN)}


def state(greenlet_id: int, **fields: int) -> GreenletState:
    nothing = GreenletState(greenlet_id, TID, 1, 0, False, 0, 0, 0, 0)
    return replace(nothing, **fields)


@pytest.fixture
def books() -> GreenletBooks:
    return GreenletBooks(KnownStacks(STACKS))


def totals(books: GreenletBooks, *living: GreenletState) -> list[GreenletTotals]:
    return list(books.totals(living))


def sums(**fields: object) -> GreenletTotals:
    nothing = GreenletTotals(TID, VIEW, False, 0, 0, 0, 0, 0, 0, 0)
    return replace(nothing, **fields)  # type: ignore[arg-type]


def test_first_record_has_everything_so_far(books: GreenletBooks) -> None:
    first = state(1, switches=2, running_ns=5, waiting_ns=7, longest_hold_ns=4)
    second = state(2, switches=1, running_ns=1, waiting_ns=2, longest_hold_ns=9)
    assert totals(books, first, second) == [
        sums(seen=2, alive=2, switches=3, running_ns=6, waiting_ns=9, longest_hold_ns=9)
    ]


def test_later_record_has_the_increments(books: GreenletBooks) -> None:
    totals(books, state(1, switches=2, running_ns=5, waiting_ns=7))
    assert totals(books, state(1, switches=6, running_ns=8, waiting_ns=7)) == [
        sums(alive=1, switches=4, running_ns=3)
    ]


def test_greenlet_that_lived_and_ended_between_two_records_is_counted_once(
    books: GreenletBooks,
) -> None:
    books.end(state(1, switches=3, running_ns=9))
    assert totals(books) == [sums(seen=1, ended=1, switches=3, running_ns=9)]
    assert totals(books) == []


def test_greenlet_that_was_reported_alive_ends_with_its_increments(books: GreenletBooks) -> None:
    totals(books, state(1, switches=3, running_ns=9))
    books.end(state(1, switches=5, running_ns=10, waiting_ns=4))
    assert totals(books) == [sums(ended=1, switches=2, running_ns=1, waiting_ns=4)]


def test_greenlet_whose_end_was_lost_is_forgotten(books: GreenletBooks) -> None:
    totals(books, state(1), state(2))
    for _ in range(3):
        totals(books, state(2))
    assert set(books._reported) == {2}


def test_end_that_arrives_after_the_map_was_read_is_no_second_greenlet(
    books: GreenletBooks,
) -> None:
    totals(books, state(1, switches=3))
    assert totals(books) == []
    books.end(state(1, switches=4))
    assert totals(books) == [sums(ended=1, switches=1)]


def test_kinds_threads_and_hubs_are_apart(books: GreenletBooks) -> None:
    living = [
        state(1),
        state(2, kind_stack_id=3),
        state(3, tid=TID + 1),
        state(4, kind_stack_id=5, is_hub=True),
        state(5, kind_stack_id=0),
    ]
    assert {(t.tid, t.kind, t.is_hub): t.seen for t in totals(books, *living)} == {
        (TID, VIEW, False): 1,
        (TID, JOB, False): 1,
        (TID + 1, VIEW, False): 1,
        (TID, HUB_RUN, True): 1,
        (TID, None, False): 1,
    }


def test_what_was_estimated_too_high_is_made_up_for(books: GreenletBooks) -> None:
    totals(books, state(1, running_ns=10 * MS, waiting_ns=5))
    assert totals(books, state(1, running_ns=9 * MS, waiting_ns=2)) == [sums(alive=1)]
    later = state(1, running_ns=12 * MS, waiting_ns=6)
    assert totals(books, later) == [sums(alive=1, running_ns=2 * MS, waiting_ns=1)]


def test_end_event_carries_the_sums_of_a_greenlet() -> None:
    event = end_event(
        9, stack_id=3, duration_ns=1, blocked_ns=2, preempted_ns=3, gc_ns=4, flags=abi.FLAG_HUB
    )
    assert ended_greenlet(event, TID) == GreenletState(
        greenlet_id=9,
        tid=TID,
        kind_stack_id=3,
        start_code=0,
        is_hub=True,
        switches=4,
        running_ns=1,
        waiting_ns=2,
        longest_hold_ns=3,
    )


LIVING = abi.Greenlet(
    id=9,
    kind_stack_id=3,
    switches=4,
    running_ns=10,
    waiting_ns=20,
    longest_hold_ns=6,
    tid=TID,
    role=abi.Role.GREENLET,
)


def test_what_it_was_started_with_names_a_greenlet_that_left_no_stack() -> None:
    resolver = KnownStacks(STACKS)
    resolver._codes[0x7F00] = CodeObject(VIEW, b"", 0, InstrKind.POINTER)
    books = GreenletBooks(resolver)
    books.end(state(9, kind_stack_id=0, start_code=0x7F00))
    books.end(state(10, kind_stack_id=3, start_code=0))
    books.end(state(11, kind_stack_id=0, start_code=0))
    assert {totals.kind for totals in books.totals(())} == {VIEW, JOB, None}


def test_living_greenlet_that_waits_counts_up_to_now() -> None:
    waiting = abi.Greenlet.from_buffer_copy(LIVING)
    waiting.left_ns = 70
    assert living_greenlet(waiting, TID, 100, 0) == GreenletState(9, TID, 3, 0, False, 4, 10, 50, 6)


def test_living_greenlet_that_runs_counts_up_to_now() -> None:
    assert living_greenlet(LIVING, TID, 100, 80) == GreenletState(
        9, TID, 3, 0, False, 4, 30, 20, 20
    )


def test_instant_in_the_future_adds_nothing() -> None:
    """The map is read after the clock."""
    left_later = abi.Greenlet.from_buffer_copy(LIVING)
    left_later.left_ns = 120
    nothing_new = GreenletState(9, TID, 3, 0, False, 4, 10, 20, 6)
    assert living_greenlet(left_later, TID, 100, 0) == nothing_new
    assert living_greenlet(LIVING, TID, 100, 120) == nothing_new


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[list[GreenletState], list[GreenletState]]]:
    """Rounds of (ended, living): every greenlet's sums grow until it ends."""
    rounds: list[tuple[list[GreenletState], list[GreenletState]]] = []
    alive: list[GreenletState] = []
    fresh = 1
    grow = st.integers(0, 1000)
    for _ in range(draw(st.integers(1, 5))):
        for _ in range(draw(st.integers(0, 3))):
            alive.append(state(fresh, kind_stack_id=draw(st.sampled_from([0, 1, 3]))))
            fresh += 1
        alive = [
            replace(
                one,
                switches=one.switches + draw(grow),
                running_ns=one.running_ns + draw(grow),
                waiting_ns=one.waiting_ns + draw(grow),
            )
            for one in alive
        ]
        ended = [one for one in alive if draw(st.booleans())]
        alive = [one for one in alive if one not in ended]
        rounds.append((ended, list(alive)))
    return rounds


def total(records: Iterable[GreenletTotals], field: str) -> int:
    return sum(getattr(record, field) for record in records)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(rounds=lives())
def test_increments_add_up_to_the_last_state_of_every_greenlet(
    rounds: list[tuple[list[GreenletState], list[GreenletState]]],
) -> None:
    books = GreenletBooks(KnownStacks(STACKS))
    records: list[GreenletTotals] = []
    last: dict[int, GreenletState] = {}
    for ended, living in rounds:
        for one in ended:
            books.end(one)
        records += books.totals(living)
        last |= {one.greenlet_id: one for one in (*ended, *living)}
    for field in ("switches", "running_ns", "waiting_ns"):
        assert total(records, field) == sum(getattr(one, field) for one in last.values())
    assert total(records, "seen") == len(last)
    assert total(records, "ended") == sum(len(ended) for ended, _ in rounds)
    for field in ("seen", "ended", "alive", "switches", "running_ns", "waiting_ns"):
        assert all(getattr(record, field) >= 0 for record in records)


def thread(**fields: int) -> abi.Thread:
    return abi.Thread(**({"tgid": TID, "has_hub": abi.Hub.SEEN} | fields))


def thread_totals(books: ThreadBooks, now_ns: int, **fields: int) -> ThreadTotals:
    return books.totals(TID, TID, "python", thread(**fields), now_ns)


@pytest.fixture
def thread_books() -> ThreadBooks:
    return ThreadBooks()


def test_thread_record_has_the_increments(thread_books: ThreadBooks) -> None:
    first = {"switches": 5, "holds": 1, "holding_ns": 30, "hub_ns": 20, "idle_ns": 10}
    thread_totals(thread_books, 100, hold_start_ns=100, **first)
    second = {"switches": 9, "holds": 1, "holding_ns": 35, "hub_ns": 29, "idle_ns": 40}
    assert thread_totals(
        thread_books, 200, hold_start_ns=200, longest_hold_ns=15, **second
    ) == ThreadTotals(
        tid=TID,
        name="python",
        has_hub=True,
        switches=4,
        holds=0,
        holding_ns=5,
        hub_ns=9,
        idle_ns=30,
        longest_hold_ns=15,
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"role": abi.Role.GREENLET, "hold_start_ns": 60}, (40, 0, 0)),
        ({"role": abi.Role.HUB, "hold_start_ns": 60}, (0, 40, 0)),
        ({"role": abi.Role.HUB, "idle": 1, "off_since_ns": 60, "hold_start_ns": 5}, (0, 0, 40)),
        ({"role": abi.Role.GREENLET, "hold_start_ns": 60, "exited": 1}, (0, 0, 0)),
        ({"role": abi.Role.GREENLET, "hold_start_ns": 140}, (0, 0, 0)),
    ],
)
def test_what_still_lasts_counts_up_to_now(
    thread_books: ThreadBooks, fields: dict[str, int], expected: tuple[int, int, int]
) -> None:
    found = thread_totals(thread_books, 100, **fields)
    assert (found.holding_ns, found.hub_ns, found.idle_ns) == expected


def test_times_of_a_thread_add_up_to_the_time_watched(thread_books: ThreadBooks) -> None:
    """A hold that is open at two flushes is not counted twice."""
    steps = [
        (100, thread(role=abi.Role.GREENLET, hold_start_ns=0)),
        (200, thread(role=abi.Role.GREENLET, hold_start_ns=0)),
        (300, thread(role=abi.Role.HUB, holding_ns=250, hold_start_ns=250)),
        (400, thread(role=abi.Role.HUB, holding_ns=250, hub_ns=80, idle=1, off_since_ns=330)),
    ]
    watched = [thread_books.totals(TID, TID, "python", state, now) for now, state in steps]
    assert sum(t.holding_ns for t in watched) == 250
    assert sum(t.hub_ns for t in watched) == 80
    assert sum(t.idle_ns for t in watched) == 70


def test_hold_that_turned_out_to_be_of_the_hub_is_made_up_for(thread_books: ThreadBooks) -> None:
    thread_totals(thread_books, 100, role=abi.Role.UNKNOWN, hold_start_ns=0)
    thread_totals(thread_books, 150, role=abi.Role.HUB, hold_start_ns=0)
    later = thread_totals(thread_books, 300, hub_ns=150, holding_ns=120, hold_start_ns=300)
    assert later.holding_ns == 20


@pytest.mark.parametrize(
    ("has_hub", "expected"), [(abi.Hub.NONE, 7), (abi.Hub.SEEN, 100), (abi.Hub.ASSUMED, 7)]
)
def test_longest_hold_contains_the_open_one_where_it_matters(
    thread_books: ThreadBooks, has_hub: int, expected: int
) -> None:
    found = thread_totals(
        thread_books, 100, has_hub=has_hub, role=abi.Role.GREENLET, longest_hold_ns=7
    )
    assert found.longest_hold_ns == expected


@pytest.mark.parametrize(
    ("has_hub", "expected"),
    [(abi.Hub.NONE, False), (abi.Hub.SEEN, True), (abi.Hub.ASSUMED, False)],
)
def test_thread_has_a_hub_once_one_was_seen(
    thread_books: ThreadBooks, has_hub: int, expected: bool
) -> None:
    assert thread_totals(thread_books, 100, has_hub=has_hub).has_hub is expected


def test_thread_id_that_comes_back_is_another_thread(thread_books: ThreadBooks) -> None:
    thread_totals(thread_books, 100, switches=50, hold_start_ns=100)
    thread_books.forget(TID)
    assert thread_totals(thread_books, 200, switches=3, hold_start_ns=200).switches == 3
