import io
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from collector.reports.build import build_report
from collector.reports.document import to_json
from collector.reports.quantities import (
    duration,
    percent,
    printable,
    reason_in_words,
    round_duration,
    shortened,
    shortened_place,
)
from collector.reports.text import render, render_text
from greenscope.model import (
    AgentCost,
    GreenletTotals,
    HubProcess,
    Record,
    RunningTotals,
    SessionEnd,
    StolenTime,
    ThreadTotals,
)
from tests.harness.records import (
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

END = SessionEnd(START + 10 * SECOND, "duration")

SAMPLE_TEXT = """\
shop (pid 4711 on web-1), CPython 3.11.2, greenlet 3.5.6
10.0 s watched (its time was over), 0 switches, 2 blocking holds

HOTSPOTS  code that held the hub for 10 ms or more
share             total  longest  holds  function
25.0%  ████████  2.50 s   2.50 s      1  charge_card
       app.py:41  system call recvfrom (still going on), in recv_into (ssl.py:9)
 2.0%  ▋         200 ms   200 ms      1  render_report
       /srv/shop/reports.py:88  cpu (at least)

No greenlet was seen.

nothing lost
nothing left off
"""


def test_report_at_80_columns_without_colour() -> None:
    records: list[Record] = [
        hold(piece(RECEIVE, "syscall:recvfrom", 2500 * MS), is_open=True),
        hold(piece(COMPUTE, "cpu", 200 * MS), began_before=True),
        END,
    ]
    text = render_text(build_report(SESSION, records), 80)
    assert text == SAMPLE_TEXT


def test_quiet_program_is_said_in_one_sentence() -> None:
    thread = ThreadTotals(4711, "x", True, 52310, 999, SECOND, 0, 9 * SECOND, 3_200_000)
    text = render_text(build_report(SESSION, [thread, END]))
    assert "No hold reached 10 ms: 52,310 switches, the longest hold was 3.20 ms.\n" in text
    assert "HOTSPOTS" not in text


def test_what_is_missing_is_said() -> None:
    text = render_text(build_report(SESSION, sample_records()))
    assert "lost: 15 events (from 0 ns to 2.00 s)" in text
    assert "left off: wait stacks, the budget (from 0 ns to 2.00 s)" in text
    assert "nothing" not in text


def test_terminal_without_unicode_gets_ascii() -> None:
    raw = io.BytesIO()
    output = io.TextIOWrapper(raw, encoding="ascii")
    deep = replace(COMPUTE, frames=(frame("f" * 90, "/srv" + "/deep" * 30 + "/x.py", 3),))
    report = build_report(SESSION, [hold(piece(deep, "cpu", SECOND)), END])
    render(report, Console(file=output, width=80))
    output.flush()
    assert b"#" in raw.getvalue()
    assert re.search(rb"holds  function\n.*  f{10,20}\.\.f{10,20}\n", raw.getvalue())
    assert b"/../deep/deep" in raw.getvalue()
    assert b"/deep/x.py:3  cpu\n" in raw.getvalue()


def test_colours_are_there_only_on_a_terminal() -> None:
    report = build_report(SESSION, sample_records())
    plain, coloured = io.StringIO(), io.StringIO()
    render(report, Console(file=plain, width=80))
    render(report, Console(file=coloured, width=80, force_terminal=True))
    assert "\x1b" not in plain.getvalue()
    assert "\x1b" in coloured.getvalue()


@given(st.lists(RECORDS, max_size=8), st.integers(80, 160))
def test_any_report_fits_its_width_and_its_document_is_json(
    records: list[Record], width: int
) -> None:
    report = build_report(SESSION, records)
    json.loads(json.dumps(to_json(report)))
    text = render_text(report, width)
    # Counts of 20 digits may take a line's whole width; those of a real session do not.
    if all(row.switches < 10**9 and row.holds < 10**9 for row in report.threads):
        assert all(cell_len(line) <= width for line in text.split("\n"))
    assert "\x1b" not in text


def test_name_with_control_characters_does_not_steer_the_terminal() -> None:
    evil = replace(COMPUTE, frames=(frame("f\x1b[2J\r\n", "/x\u202e/\x07.py", 3),))
    text = render_text(build_report(SESSION, [hold(piece(evil, "cpu", SECOND)), END]), 120)
    assert r"f\x1b[2J\r\n" + "\n" in text
    assert r"/x\u202e/\x07.py:3  cpu" in text


def test_without_a_hub_nothing_is_called_blocked() -> None:
    thread = ThreadTotals(4711, "x", False, 3, 0, 9 * SECOND, 0, 0, 0)
    kind = COMPUTE.frames[0].code
    ran = GreenletTotals(4711, kind, False, 1, 0, 1, 3, SECOND, 0, 54 * MS)
    children = [HubProcess(7652, "gunicorn"), HubProcess(7655, "gunicorn")]
    text = render_text(build_report(SESSION, [thread, ran, *children, END]), 200)
    assert (
        "No hub was seen in this process, so nothing can be called blocked. The longest run "
        "without a switch: 54.0 ms, by render_report.\n"
        "2 of its children run a hub: 7652 (gunicorn), 7655 (gunicorn); attach to one of them.\n"
    ) in text
    assert "No hold reached" not in text


def test_time_that_the_host_stole_is_said_from_one_percent_on() -> None:
    def text_of(stolen_ns: int) -> str:
        stolen = StolenTime(START, START + 10 * SECOND, stolen_ns, 2)
        return render_text(build_report(SESSION, [stolen, END]), 120)

    assert "the host took 1.5% of this machine's CPU time" in text_of(300 * MS)
    assert "the host took" not in text_of(200 * MS)


def test_costs_of_all_stretches_are_added_up() -> None:
    costs = [
        AgentCost(START, START + SECOND, 1000, 50 * MS, 100 * MS, 100 * MS, 80_000_000),
        AgentCost(START + SECOND, START + 2 * SECOND, 500, 50 * MS, 100 * MS, 100 * MS, 60_000_000),
    ]
    report = build_report(SESSION, [*costs, END])
    assert to_json(report)["cost"] == {
        "agent_cpu_ns": 200 * MS,
        "agent_rss_bytes": 80_000_000,
        "hits": 1500,
        "target_ns": 100 * MS,
        "budget_ns": 200 * MS,
    }
    assert (
        "cost: the probes about 1.0% of a CPU in the target of the 2.0% allowed, greenscope "
        "itself 2.0% of a CPU and 80 MB"
    ) in render_text(report, 200)


def test_cpu_time_is_summed_by_function_over_all_kinds() -> None:
    worker = RECEIVE.frames[-1].code
    slow = replace(worker, function="slow")
    query = RECEIVE.frames[1].code
    records: list[Record] = [
        RunningTotals(4711, worker, query, 20, 100 * MS),
        RunningTotals(4711, slow, query, 10, 50 * MS),
        RunningTotals(4711, slow, slow, 20, 100 * MS),
        RunningTotals(4712, None, None, 1, 5 * MS),
        END,
    ]
    report = build_report(SESSION, records)
    lines = [line.split("  ") for line in render_text(report, 120).split("\n")]
    rows = [
        [cell.strip() for cell in line if cell] for line in lines if any("~" in c for c in line)
    ]
    assert [row[:2] for row in rows] == [
        ["1.5%", "~150 ms"],
        ["1.0%", "~100 ms"],
        ["0.1%", "~5.00 ms"],
    ]
    assert [row[2] for row in rows] == [query.function, slow.function, "(no Python frame)"]
    running = to_json(report)["running"]
    assert sum(row["samples"] for row in running) == 51
    by_kind = {row["kind"]["function"]: 0 for row in running}
    for row in running:
        by_kind[row["kind"]["function"]] += row["running_ns"]
    assert by_kind == {worker.function: 100 * MS, slow.function: 150 * MS, None: 5 * MS}


def test_verbose_shows_by_whom_and_the_stack() -> None:
    worker, other = RECEIVE.frames[-1].code, COMPUTE.frames[-1].code
    records: list[Record] = [
        hold(piece(RECEIVE, "syscall:recvfrom", 30 * MS), kind=worker),
        hold(piece(RECEIVE, "syscall:recvfrom", 20 * MS), kind=replace(other, function="slow")),
        hold(piece(RECEIVE, "syscall:recvfrom", 10 * MS)),
        END,
    ]
    console = Console(file=io.StringIO(), width=120, color_system=None)
    with console.capture() as capture:
        render(build_report(SESSION, records), console, verbose=True)
    lines = [line.strip() for line in capture.get().split("\n")]
    first = next(i for i, line in enumerate(lines) if line.startswith("30.0 ms in"))
    assert lines[first].startswith(f"30.0 ms in {worker.function}")
    assert lines[first + 1].startswith("20.0 ms in slow")
    assert lines[first + 2] == "10.0 ms in (kind not known)"
    for line, stack_frame in zip(lines[first + 3 :], RECEIVE.frames, strict=False):
        assert line.startswith(f"{stack_frame.code.function}  ")
        assert line.endswith(f":{stack_frame.line}")


def test_what_was_not_seen_is_told_from_what_was() -> None:
    """A tenth of the running time was watched: 100 of 1,000 switches, 90 ms of 900."""
    records: list[Record] = [
        hold(piece(COMPUTE, "cpu", 50 * MS), uncertainty_ns=3 * MS),
        GreenletTotals(4711, COMPUTE.frames[-1].code, False, 2, 0, 2, 100, 80 * MS, SECOND, MS),
        ThreadTotals(
            4711,
            "x",
            has_hub=True,
            switches=100,
            holds=1,
            holding_ns=80 * MS,
            hub_ns=10 * MS,
            idle_ns=9100 * MS,
            longest_hold_ns=50 * MS,
            unwatched_ns=810 * MS,
            unwatched_switches=900,
        ),
        END,
    ]
    report = build_report(SESSION, records)
    text = render_text(report, 120)
    assert "about 1,000 switches, 1 blocking hold" in text
    assert "(give or take 3.00 ms)" in text
    assert "by start function; seen in 10.0% of the running time" in text
    assert "single switches were seen in 10.0% of the running time" in text
    assert "~800 ms" in text
    assert "~1,000" in text
    document = to_json(report)
    assert document["session"]["switches"] == 1000
    assert document["session"]["unwatched_switches"] == 900
    assert document["session"]["watched_share"] == 0.1
    assert document["hotspots"][0]["uncertainty_ns"] == 3 * MS
    assert document["greenlets"][0]["running_ns"] == 80 * MS
    assert document["greenlets"][0]["estimated_running_ns"] == 800 * MS
    assert document["threads"][0]["unwatched_ns"] == 810 * MS


def test_document_shortens_nothing() -> None:
    path = "/srv" + "/very/deep" * 30 + "/app.py"
    deep = replace(COMPUTE, frames=(frame("f" * 200, path, 3),))
    document = to_json(build_report(SESSION, [hold(piece(deep, "cpu", SECOND)), END]))
    assert document["hotspots"] == [
        {
            "function": "f" * 200,
            "file": path,
            "line": 3,
            "leaf": f"{'f' * 200} {path}:3",
            "reason": "cpu",
            "reasons": {"cpu": SECOND},
            "holds": 1,
            "open": 0,
            "began_before": 0,
            "total_ns": SECOND,
            "max_ns": SECOND,
            "share": 0.1,
            "uncertainty_ns": 0,
            "kinds": [{"function": None, "file": None, "line": None, "total_ns": SECOND}],
            "stack": [{"function": "f" * 200, "file": path, "line": 3}],
            "stack_status": "complete",
        }
    ]
    assert list(document) == [
        "session",
        "hotspots",
        "greenlets",
        "running",
        "threads",
        "lost",
        "shed",
        "cost",
        "stolen_share",
        "has_hub",
        "hub_children",
    ]


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 us"),
        (12_345, "12.3 us"),
        (999_949, "1.00 ms"),
        (12_345_678, "12.3 ms"),
        (120_050_000, "120 ms"),
        (999_999_999, "1.00 s"),
        (59_960_000_000, "60.0 s"),
        (3_599_000_000_000, "3,599 s"),
        (9_000_000_000_000, "2.50 h"),
    ],
)
def test_durations_have_three_digits_and_a_unit(value_ns: int, text: str) -> None:
    assert duration(value_ns) == text


def test_chosen_durations_are_shown_as_chosen() -> None:
    chosen = [10 * MS, 100 * MS, 2 * SECOND, 1_500_000, 50_000]
    assert [round_duration(value) for value in chosen] == [
        "10 ms", "100 ms", "2 s", "1.5 ms", "50 us",
    ]  # fmt: skip


def test_places_lose_the_middle_of_their_path() -> None:
    file = "/srv/shop/billing/payment_client.py"
    assert [shortened_place(file, 41, width, "…") for width in (80, 36, 30, 5)] == [
        "/srv/shop/billing/payment_client.py:41",
        "/…/shop/billing/payment_client.py:41",
        "/…/payment_client.py:41",
        "payment_client.py:41",
    ]


@given(st.text(), st.integers(4, 50), st.sampled_from(["…", ".."]))
def test_shortened_text_fits(text: str, width: int, dots: str) -> None:
    assert cell_len(shortened(printable(text), width, dots)) <= width


def test_words() -> None:
    assert reason_in_words("syscall:clock_nanosleep") == "system call clock_nanosleep"
    assert reason_in_words("gc") == "garbage collection"
    assert [percent(share) for share in (0.0, 0.0001, 0.612, 1.5)] == [
        "0.0%", "<0.1%", "61.2%", "150.0%",
    ]  # fmt: skip
