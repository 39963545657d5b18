"""HoldAssembler: the events of one hold become one Hold."""

from __future__ import annotations

import pytest

from greenscope.bpf import abi
from greenscope.model import REASON_CPU, Hold, HoldPiece
from greenscope.rebuild.holds import HoldAssembler, Judged, block_reason, sample_reason
from greenscope.rebuild.stacks import LOST_STACK, NO_STACK
from tests.unit.rebuild.events import GREENLET, TID, block_event, hold_event, sample_event
from tests.unit.rebuild.resolvers import HUB_RUN, JOB, VIEW, KnownStacks, stack_of

MS = 1_000_000
NAMES = {0: "read", 7: "poll", 232: "epoll_wait", 230: "clock_nanosleep"}
SLEEP_NR = 230
SLEEP = "syscall:clock_nanosleep"


def name(number: int) -> str:
    return NAMES[number]


@pytest.fixture
def assembler() -> HoldAssembler:
    return HoldAssembler(
        KnownStacks({1: stack_of(VIEW), 3: stack_of(JOB), 5: stack_of(HUB_RUN)}), name, MS
    )


def only(assembler: HoldAssembler, event: abi.Event, tid: int, is_open: bool = False) -> Hold:
    """The one hold that a HOLD event is."""
    judged = assembler.hold(event, tid, is_open)
    assert judged.idle_ns == 0
    [hold] = judged.holds
    return hold


def pieces(hold: Hold) -> set[HoldPiece]:
    return set(hold.pieces)


@pytest.mark.parametrize(
    ("flags", "nr", "reason"),
    [
        (0, -1, "cpu"),
        (0, 0, "cpu"),
        (abi.FLAG_IN_SYSCALL, 0, "syscall:read"),
        (abi.FLAG_IN_SYSCALL, -1, "cpu"),
        (abi.FLAG_GC, -1, "gc"),
        (abi.FLAG_GC | abi.FLAG_IN_SYSCALL, 0, "gc"),
    ],
)
def test_reason_of_a_sample(flags: int, nr: int, reason: str) -> None:
    assert sample_reason(flags, nr, name) == reason


@pytest.mark.parametrize(
    ("off_kind", "nr", "reason"),
    [
        (abi.OffKind.BLOCKED, SLEEP_NR, SLEEP),
        (abi.OffKind.BLOCKED, 0, "syscall:read"),
        (abi.OffKind.PREEMPTED, -1, "preempted"),
        (abi.OffKind.FAULT, -1, "fault"),
    ],
)
def test_reason_of_a_block(off_kind: int, nr: int, reason: str) -> None:
    assert block_reason(off_kind, nr, name) == reason


def test_hold_has_the_pieces_that_were_seen_in_it(assembler: HoldAssembler) -> None:
    assembler.sample(sample_event(1))
    assembler.block(block_event(3, 20 * MS, nr=SLEEP_NR))
    event = hold_event(32 * MS, ktime_ns=100 * MS, stack_id=1, blocked_ns=20 * MS)
    assert only(assembler, event, 55) == Hold(
        tid=55,
        greenlet_id=GREENLET,
        start_ktime_ns=68 * MS,
        duration_ns=32 * MS,
        on_cpu_ns=12 * MS,
        is_hub=False,
        is_open=False,
        began_before=False,
        pieces=(
            HoldPiece(stack_of(JOB), SLEEP, 20 * MS, 1),
            HoldPiece(stack_of(VIEW), REASON_CPU, 12 * MS, 1),
        ),
        kind=JOB,
    )


@pytest.mark.parametrize("flag", [abi.FLAG_HUB, abi.FLAG_BEGAN_BEFORE])
def test_flags_become_fields(assembler: HoldAssembler, flag: int) -> None:
    hold = only(assembler, hold_event(MS, flags=flag), TID)
    assert (hold.is_hub, hold.began_before) == (
        flag == abi.FLAG_HUB,
        flag == abi.FLAG_BEGAN_BEFORE,
    )


def test_equal_places_become_one_piece(assembler: HoldAssembler) -> None:
    for _ in range(3):
        assembler.block(block_event(1, 5 * MS, nr=0))
        assembler.sample(sample_event(3))
    hold = only(assembler, hold_event(20 * MS, blocked_ns=15 * MS), TID)
    assert pieces(hold) == {
        HoldPiece(stack_of(VIEW), "syscall:read", 15 * MS, 3),
        HoldPiece(stack_of(JOB), REASON_CPU, 5 * MS, 3),
    }


def test_evidence_of_an_earlier_hold_is_not_taken_over(assembler: HoldAssembler) -> None:
    assembler.sample(sample_event(3, hold_id=1))
    assembler.sample(sample_event(1, hold_id=2))
    hold = only(assembler, hold_event(20 * MS, hold_id=2), TID)
    assert hold.pieces == (HoldPiece(stack_of(VIEW), REASON_CPU, 20 * MS, 1),)


def test_hold_takes_its_evidence_with_it(assembler: HoldAssembler) -> None:
    assembler.sample(sample_event(3))
    only(assembler, hold_event(20 * MS), TID)
    hold = only(assembler, hold_event(20 * MS, stack_id=1), TID)
    assert hold.pieces == (HoldPiece(stack_of(VIEW), REASON_CPU, 20 * MS, 1),)


def test_threads_do_not_mix(assembler: HoldAssembler) -> None:
    assembler.sample(sample_event(1, tid=TID))
    assembler.sample(sample_event(3, tid=TID + 1))
    hold = only(assembler, hold_event(20 * MS, tid=TID), TID)
    assert hold.pieces == (HoldPiece(stack_of(VIEW), REASON_CPU, 20 * MS, 1),)


def test_thread_that_ended_leaves_no_evidence(assembler: HoldAssembler) -> None:
    assembler.sample(sample_event(3))
    assembler.forget(TID)
    assert only(assembler, hold_event(20 * MS), TID).pieces == (
        HoldPiece(NO_STACK, REASON_CPU, 20 * MS, 1),
    )


def test_stack_that_was_lost_says_so(assembler: HoldAssembler) -> None:
    assembler.sample(sample_event(77))
    assert only(assembler, hold_event(20 * MS), TID).pieces == (
        HoldPiece(LOST_STACK, REASON_CPU, 20 * MS, 1),
    )


def test_time_off_the_cpu_never_exceeds_the_hold(assembler: HoldAssembler) -> None:
    event = hold_event(20 * MS, blocked_ns=15 * MS, preempted_ns=15 * MS)
    assert only(assembler, event, TID).on_cpu_ns == 0


def present_hold(**fields: int) -> abi.Thread:
    values = {
        "tgid": TID,
        "hold_id": 1,
        "hold_start_ns": 10 * MS,
        "greenlet_id": GREENLET,
        "off_nr": -1,
        "role": abi.Role.GREENLET,
    }
    return abi.Thread(**(values | fields))


def open_hold(assembler: HoldAssembler, thread: abi.Thread, now_ns: int) -> Hold:
    return only(assembler, assembler.open_hold(TID, thread, now_ns), TID, is_open=True)


def test_open_hold_on_the_cpu_has_its_samples(assembler: HoldAssembler) -> None:
    assembler.sample(sample_event(1))
    hold = open_hold(assembler, present_hold(), 50 * MS)
    assert (hold.start_ktime_ns, hold.duration_ns, hold.on_cpu_ns) == (10 * MS, 40 * MS, 40 * MS)
    assert hold.pieces == (HoldPiece(stack_of(VIEW), REASON_CPU, 40 * MS, 1),)
    assert hold.is_open


@pytest.mark.parametrize(
    ("off_kind", "nr", "reason"),
    [
        (abi.OffKind.BLOCKED, SLEEP_NR, SLEEP),
        (abi.OffKind.PREEMPTED, -1, "preempted"),
        (abi.OffKind.FAULT, -1, "fault"),
    ],
)
def test_open_hold_contains_the_block_that_still_lasts(
    assembler: HoldAssembler, off_kind: int, nr: int, reason: str
) -> None:
    assembler.block(block_event(1, 5 * MS, nr=0))
    thread = present_hold(
        off_since_ns=20 * MS, off_stack_id=3, off_kind=off_kind, off_nr=nr, blocked_ns=5 * MS
    )
    hold = open_hold(assembler, thread, 50 * MS)
    # 5 ms on the CPU that were not sampled go to the largest piece.
    assert pieces(hold) == {
        HoldPiece(stack_of(JOB), reason, 35 * MS, 1),
        HoldPiece(stack_of(VIEW), "syscall:read", 5 * MS, 1),
    }
    assert (hold.duration_ns, hold.on_cpu_ns) == (40 * MS, 5 * MS)


def test_block_that_began_before_the_hold_counts_from_its_begin(assembler: HoldAssembler) -> None:
    thread = present_hold(
        off_since_ns=2 * MS, off_stack_id=3, off_kind=abi.OffKind.BLOCKED, off_nr=SLEEP_NR
    )
    hold = open_hold(assembler, thread, 50 * MS)
    assert hold.pieces == (HoldPiece(stack_of(JOB), SLEEP, 40 * MS, 1),)


def test_open_hold_counts_the_collection_that_still_lasts(assembler: HoldAssembler) -> None:
    thread = present_hold(gc_ns=MS, gc_since_ns=30 * MS)
    assert assembler.open_hold(TID, thread, 50 * MS).gc_ns == 21 * MS


def test_open_hold_of_a_hub_says_so(assembler: HoldAssembler) -> None:
    thread = present_hold(role=abi.Role.HUB, began_before=1)
    hold = open_hold(assembler, thread, 50 * MS)
    assert (hold.is_hub, hold.began_before) == (True, True)


EPOLL_WAIT_NR = 232


def test_the_hubs_own_poll_is_no_part_of_a_hold(assembler: HoldAssembler) -> None:
    assembler.sample(sample_event(3))
    assembler.block(block_event(5, 20 * MS, nr=EPOLL_WAIT_NR, ktime_ns=60 * MS))
    assembler.block(block_event(1, 5 * MS, nr=0, ktime_ns=70 * MS))
    judged = assembler.hold(hold_event(50 * MS, ktime_ns=80 * MS, blocked_ns=25 * MS), TID)
    before, after = judged.holds
    assert judged.idle_ns == 20 * MS
    assert (before.start_ktime_ns, before.duration_ns) == (30 * MS, 10 * MS)
    assert before.pieces == (HoldPiece(stack_of(JOB), REASON_CPU, 10 * MS, 1),)
    assert (after.start_ktime_ns, after.duration_ns) == (60 * MS, 20 * MS)
    # Of the time on the CPU afterwards nothing was sampled, so it goes to what was seen.
    assert after.pieces == (HoldPiece(stack_of(VIEW), "syscall:read", 20 * MS, 1),)


def test_what_is_left_without_the_poll_must_reach_the_threshold(assembler: HoldAssembler) -> None:
    assembler.block(block_event(5, 20 * MS, nr=EPOLL_WAIT_NR, ktime_ns=60 * MS))
    judged = assembler.hold(hold_event(20 * MS + 100, ktime_ns=60 * MS + 50), TID)
    assert judged == Judged((), 20 * MS, saw_hub=True)


def test_a_lost_stack_of_a_hub_that_polls_counts_as_idle(assembler: HoldAssembler) -> None:
    event = block_event(99, 20 * MS, nr=EPOLL_WAIT_NR, ktime_ns=60 * MS, flags=abi.FLAG_HUB)
    assembler.block(event)
    assert assembler.hold(hold_event(20 * MS, ktime_ns=60 * MS), TID) == Judged((), 20 * MS)


def test_a_poll_without_frames_on_a_thread_not_known_yet_counts_as_idle(
    assembler: HoldAssembler,
) -> None:
    event = block_event(0, 20 * MS, nr=EPOLL_WAIT_NR, ktime_ns=60 * MS, flags=abi.FLAG_UNDECIDED)
    assembler.block(event)
    judged = assembler.hold(hold_event(20 * MS, ktime_ns=60 * MS), TID)
    assert judged == Judged((), 20 * MS, saw_hub=False)


def test_a_callback_that_polls_is_blocked(assembler: HoldAssembler) -> None:
    assembler.block(block_event(1, 20 * MS, nr=EPOLL_WAIT_NR, ktime_ns=60 * MS))
    hold = only(assembler, hold_event(20 * MS, ktime_ns=60 * MS, blocked_ns=20 * MS), TID)
    assert [piece.reason for piece in hold.pieces] == ["syscall:epoll_wait"]


def test_an_undecided_hold_that_was_short_is_none(assembler: HoldAssembler) -> None:
    event = hold_event(MS // 2, flags=abi.FLAG_UNDECIDED)
    assert assembler.hold(event, TID) == Judged(())


def test_open_poll_of_a_hub_that_was_not_known_is_no_hold(assembler: HoldAssembler) -> None:
    thread = abi.Thread(
        hold_start_ns=10 * MS,
        off_since_ns=10 * MS,
        off_stack_id=5,
        off_nr=EPOLL_WAIT_NR,
        off_kind=abi.OffKind.BLOCKED,
        undecided=1,
    )
    event = assembler.open_hold(TID, thread, 90 * MS)
    assert assembler.hold(event, TID, is_open=True) == Judged((), 80 * MS, saw_hub=True)
