from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from collector.reports.build import build_report
from collector.reports.model import GreenletRow, Hotspot, ThreadRow
from greenscope.model import GreenletTotals, Hold, Loss, Record, SessionEnd, Shed, ThreadTotals
from tests.harness.records import (
    CALLBACK,
    COMPUTE,
    MS,
    RECEIVE,
    RECORDS,
    SECOND,
    SESSION,
    START,
    frame,
    hold,
    piece,
    sample_records,
)

END = SessionEnd(START + 4 * SECOND, "duration")


def test_holds_of_one_line_are_one_hotspot() -> None:
    records = [
        hold(piece(RECEIVE, "syscall:recvfrom", 100 * MS), start_ns=START),
        hold(piece(RECEIVE, "syscall:recvfrom", 300 * MS), start_ns=START + SECOND, is_open=True),
        END,
    ]
    assert build_report(SESSION, records).hotspots == (
        Hotspot(
            function="charge_card",
            file="/srv/shop/app.py",
            line=41,
            leaf="recv_into /usr/lib/python3.11/ssl.py:9",
            leaf_function="recv_into",
            reason="syscall:recvfrom",
            reasons={"syscall:recvfrom": 400 * MS},
            holds=2,
            open=1,
            began_before=0,
            total_ns=400 * MS,
            max_ns=300 * MS,
            share=0.1,
            stack=RECEIVE,
            kinds=((None, 400 * MS),),
        ),
    )


def test_two_lines_that_wait_are_two_hotspots_and_two_that_compute_are_one() -> None:
    def at(line: int) -> object:
        return replace(RECEIVE, frames=(frame("f", line=line),))

    waiting = [hold(piece(at(line), "syscall:read", 20 * MS)) for line in (5, 6)]
    computing = [hold(piece(at(line), "cpu", line * 10 * MS)) for line in (5, 6)]
    spots = build_report(SESSION, [*waiting, *computing, END]).hotspots
    assert [(spot.reason, spot.line, spot.total_ns, spot.max_ns) for spot in spots] == [
        ("cpu", 6, 110 * MS, 60 * MS),
        ("syscall:read", 5, 20 * MS, 20 * MS),
        ("syscall:read", 6, 20 * MS, 20 * MS),
    ]


def test_longest_total_comes_first_and_ties_by_name() -> None:
    records = [
        hold(piece(COMPUTE, "cpu", 20 * MS)),
        hold(piece(RECEIVE, "cpu", 20 * MS)),
        hold(piece(CALLBACK, "cpu", 30 * MS), is_hub=True),
    ]
    spots = build_report(SESSION, records).hotspots
    assert [spot.function for spot in spots] == ["tick", "charge_card", "render_report"]


def test_whole_report_of_a_session() -> None:
    report = build_report(SESSION, sample_records())
    worker, hub = RECEIVE.frames[-1].code, CALLBACK.frames[-1].code
    assert report.greenlets == (
        GreenletRow(worker, False, 23, 23, 0, 440, 141 * MS, 3 * SECOND, 120 * MS, 141 * MS),
        GreenletRow(hub, True, 1, 0, 1, 9, 15 * MS, 0, 15 * MS, 15 * MS),
        GreenletRow(None, False, 1, 0, 1, 0, 0, 0, 0),
    )
    assert report.threads == (
        ThreadRow(4711, "gunicorn: wörker", True, 500, 300, 155 * MS, 15 * MS, 830 * MS, 0),
        ThreadRow(4712, "", False, 0, 0, 0, 0, 0, 0, 250 * MS, 90_000),
    )
    assert report.lost == (Loss("events", 15, START, START + 2 * SECOND),)
    assert report.shed == (Shed("wait stacks", "the budget", START, START + 2 * SECOND),)
    assert (report.duration_ns, report.ended) == (4 * SECOND, "duration")
    assert (report.switches, report.holds, report.longest_hold_ns) == (90_500, 4, 120 * MS)


def test_alive_is_the_last_figure_of_each_thread() -> None:
    def totals(tid: int, alive: int) -> GreenletTotals:
        return GreenletTotals(tid, None, False, 1, 0, alive, 0, 0, 0, 0)

    (row,) = build_report(SESSION, [totals(1, 5), totals(2, 7), totals(1, 3)]).greenlets
    assert (row.alive, row.seen) == (10, 3)


def test_session_without_an_end_lasts_as_far_as_is_known() -> None:
    known = build_report(SESSION, [hold(piece(COMPUTE, "cpu", SECOND), start_ns=START + SECOND)])
    assert (known.duration_ns, known.ended) == (2 * SECOND, None)
    thread = ThreadTotals(1, "x", True, 1, 1, SECOND, SECOND, 3 * SECOND, 0)
    assert build_report(SESSION, [thread]).duration_ns == 5 * SECOND
    assert build_report(SESSION, []).duration_ns == 0


def test_holds_of_threads_without_a_hub_are_not_the_longest() -> None:
    worker = ThreadTotals(1, "pool", False, 1, 1, 9 * SECOND, 0, 0, 9 * SECOND)
    hub = ThreadTotals(2, "main", True, 1, 1, SECOND, 0, 0, 7 * MS)
    assert build_report(SESSION, [worker, hub, END]).longest_hold_ns == 7 * MS


@given(st.permutations([record for record in sample_records() if isinstance(record, Hold)]))
def test_order_of_holds_does_not_matter(records: list[Record]) -> None:
    given_order = [record for record in sample_records() if isinstance(record, Hold)]
    assert build_report(SESSION, records).hotspots == build_report(SESSION, given_order).hotspots


@given(st.lists(RECORDS, max_size=15))
def test_hotspots_add_up_to_the_holds(records: list[Record]) -> None:
    report = build_report(SESSION, records)
    pieces = [p for record in records if isinstance(record, Hold) for p in record.pieces]
    assert sum(spot.total_ns for spot in report.hotspots) == sum(p.duration_ns for p in pieces)
