import pytest
from hypothesis import given

from collector.reports.blame import Blame, charges_of
from greenscope.model import Frame, Hold, Stack
from tests.harness.records import (
    CALLBACK,
    COMPUTE,
    HOLDS,
    MS,
    NOTHING,
    RECEIVE,
    frame,
    hold,
    library,
    piece,
    stdlib,
)

SHOP, REPORTS = "/srv/shop/app.py", "/srv/shop/reports.py"


def charged(found: Hold) -> dict[Blame, int]:
    return {blame: charge.total_ns for blame, charge in charges_of(found, 10 * MS).items()}


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([stdlib("recv"), library("get"), frame("handler"), frame("main")], frame("handler")),
        ([stdlib("recv"), library("get"), library("run")], library("get")),
        (
            [
                library("wait", "/v/site-packages/gevent/hub.py"),
                library("switch", "/v/site-packages/greenlet/__init__.py"),
                library("get"),
            ],
            library("get"),
        ),
        (
            [stdlib("sleep"), library("run", "/v/site-packages/gevent/hub.py")],
            stdlib("sleep"),
        ),
        ([], None),
    ],
)
def test_innermost_application_frame_is_to_blame(
    frames: list[Frame], expected: Frame | None
) -> None:
    assert Stack(tuple(frames)).blamed_frame() == expected


def test_system_call_is_charged_to_its_line_and_computing_to_the_function() -> None:
    found = hold(piece(RECEIVE, "syscall:recvfrom", 50 * MS), piece(COMPUTE, "cpu", 40 * MS))
    assert charged(found) == {
        Blame("charge_card", SHOP, "syscall:recvfrom", 41): 50 * MS,
        Blame("render_report", REPORTS, "cpu", 0): 40 * MS,
    }


def test_stack_without_frames_is_charged_to_nobody() -> None:
    found = hold(piece(NOTHING, "gc", 50 * MS))
    assert charged(found) == {Blame("(no Python frame)", "", "gc", 0): 50 * MS}


def test_what_a_function_suffers_while_it_computes_is_its_computing() -> None:
    found = hold(
        piece(COMPUTE, "cpu", 60 * MS), piece(COMPUTE, "preempted", 30 * MS),
        piece(COMPUTE, "fault", 5 * MS),
    )  # fmt: skip
    assert charged(found) == {Blame("render_report", REPORTS, "cpu", 0): 95 * MS}
    (charge,) = charges_of(found, 10 * MS).values()
    assert charge.reasons == {"cpu": 60 * MS, "preempted": 30 * MS, "fault": 5 * MS}


def test_function_that_hardly_ran_was_preempted() -> None:
    found = hold(piece(COMPUTE, "cpu", 1 * MS), piece(COMPUTE, "preempted", 40 * MS))
    assert charged(found) == {Blame("render_report", REPORTS, "preempted", 0): 41 * MS}


def test_small_part_names_no_innocent_function() -> None:
    found = hold(piece(RECEIVE, "syscall:recvfrom", 100 * MS), piece(COMPUTE, "cpu", 1 * MS // 2))
    line = {Blame("charge_card", SHOP, "syscall:recvfrom", 41): 100 * MS + MS // 2}
    assert charged(found) == line
    (charge,) = charges_of(found, 10 * MS).values()
    assert {detail.stack for detail in charge.details} == {RECEIVE}


def test_callback_of_the_hub_is_charged_to_the_library_that_made_it() -> None:
    found = hold(piece(CALLBACK, "cpu", 20 * MS), is_hub=True)
    assert [blame.function for blame in charged(found)] == ["tick"]


@given(HOLDS)
def test_charges_always_add_up_to_the_pieces(found: Hold) -> None:
    charges = charges_of(found, 10 * MS).values()
    total_ns = sum(piece.duration_ns for piece in found.pieces)
    assert sum(charge.total_ns for charge in charges) == total_ns
    assert sum(sum(charge.reasons.values()) for charge in charges) == total_ns
    # Nobody is blamed without a stack that shows it.
    assert all(charge.details for charge in charges)
