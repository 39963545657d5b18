from __future__ import annotations

from greenscope.model import Code, CodeOrigin, Frame, RunningTotals, Stack, StackStatus
from greenscope.rebuild.running import RunningBooks
from tests.harness.records import MS, frame

HANDLER, SERVE = frame("handle"), frame("serve")
READ = Frame(Code("read", "/usr/lib/python3.11/ssl.py", 1, CodeOrigin.STDLIB), 1)
STACK = Stack((READ, HANDLER, SERVE))


def test_ticks_are_summed_by_thread_kind_and_function() -> None:
    books = RunningBooks(period_ns=5 * MS)
    for tid in (1, 1, 2):
        books.add(tid, STACK)
    assert list(books.totals()) == [
        RunningTotals(1, SERVE.code, HANDLER.code, 2, 10 * MS),
        RunningTotals(2, SERVE.code, HANDLER.code, 1, 5 * MS),
    ]
    assert list(books.totals()) == []


def test_cut_stack_has_a_function_but_no_kind() -> None:
    books = RunningBooks(period_ns=MS)
    books.add(1, Stack(STACK.frames, StackStatus.TRUNCATED))
    assert list(books.totals()) == [RunningTotals(1, None, HANDLER.code, 1, MS)]


def test_no_frames_are_nobody_s() -> None:
    books = RunningBooks(period_ns=MS)
    books.add(1, Stack((), StackStatus.NO_FRAMES))
    assert list(books.totals()) == [RunningTotals(1, None, None, 1, MS)]
