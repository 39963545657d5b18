"""Records for tests: a small session that has everything, and strategies for arbitrary ones."""

from hypothesis import strategies as st

from greenscope.model import (
    AgentCost,
    Code,
    CodeOrigin,
    Frame,
    GreenletTotals,
    Hold,
    HoldPiece,
    HubProcess,
    Loss,
    Record,
    RunningTotals,
    Session,
    SessionEnd,
    Shed,
    Stack,
    StackStatus,
    StolenTime,
    ThreadTotals,
)

MS = 1_000_000
SECOND = 1_000_000_000
START = 5_000 * SECOND

SESSION = Session(
    session_id="0123456789abcdef" * 2,
    service="shop",
    host="web-1",
    pid=4711,
    process_start_ticks=123456,
    executable="/usr/bin/python3.11",
    python_version="3.11.2",
    greenlet_version="3.5.6",
    threshold_ns=10 * MS,
    sample_hz=199,
    start_ktime_ns=START,
    start_unix_ns=1_780_000_000 * SECOND,
    labels={"env": "test", "it's": 'a "label"\n'},
)


def frame(
    function: str,
    file: str = "/srv/shop/app.py",
    line: int = 1,
    origin: CodeOrigin = CodeOrigin.APPLICATION,
) -> Frame:
    return Frame(Code(function, file, max(1, line - 1), origin), line)


def library(function: str, file: str = "/v/site-packages/lib/x.py", line: int = 5) -> Frame:
    return frame(function, file, line, CodeOrigin.LIBRARY)


def stdlib(function: str, file: str = "/usr/lib/python3.11/ssl.py", line: int = 9) -> Frame:
    return frame(function, file, line, CodeOrigin.STDLIB)


def piece(stack: Stack, reason: str, duration_ns: int, count: int = 1) -> HoldPiece:
    return HoldPiece(stack, reason, duration_ns, count)


def hold(
    *pieces: HoldPiece,
    start_ns: int = START,
    tid: int = 4711,
    greenlet_id: int = 1,
    is_hub: bool = False,
    is_open: bool = False,
    began_before: bool = False,
    kind: Code | None = None,
    uncertainty_ns: int = 0,
) -> Hold:
    duration_ns = sum(piece.duration_ns for piece in pieces)
    on_cpu_ns = sum(piece.duration_ns for piece in pieces if piece.reason in ("cpu", "gc"))
    flags = is_hub, is_open, began_before
    times = start_ns, duration_ns, on_cpu_ns
    return Hold(tid, greenlet_id, *times, *flags, pieces, kind, uncertainty_ns)


RECEIVE = Stack((stdlib("recv_into"), frame("charge_card", line=41), frame("handle", line=10)))
COMPUTE = Stack((frame("render_report", "/srv/shop/reports.py", 88), frame("handle", line=11)))
CALLBACK = Stack((library("tick"), library("Hub.run", "/v/site-packages/gevent/hub.py", 700)))
NOTHING = Stack((), StackStatus.NO_FRAMES)


def sample_records() -> list[Record]:
    """Every kind of record, the empty and the extreme included."""
    first = hold(piece(RECEIVE, "syscall:recvfrom", 119 * MS), piece(RECEIVE, "cpu", 1 * MS))
    second = hold(
        piece(COMPUTE, "cpu", 19 * MS, 4),
        piece(COMPUTE, "preempted", 1 * MS),
        start_ns=START + 200 * MS,
        greenlet_id=2**64 - 1,
        began_before=True,
        kind=COMPUTE.frames[-1].code,
        uncertainty_ns=1 * MS,
    )
    hub = hold(
        piece(CALLBACK, "cpu", 15 * MS), start_ns=START + 100 * MS, is_hub=True, greenlet_id=0
    )
    still_on = hold(piece(NOTHING, "gc", 50 * MS, 9), start_ns=START + 3 * SECOND, is_open=True)
    worker = RECEIVE.frames[-1].code
    return [
        first,
        GreenletTotals(4711, worker, False, 20, 5, 15, 400, 140 * MS, 2 * SECOND, 120 * MS),
        second,
        hub,
        ThreadTotals(4711, "gunicorn: wörker", True, 500, 300, 155 * MS, 15 * MS, 830 * MS, 0),
        ThreadTotals(4712, "", False, 0, 0, 0, 0, 0, 0, 250 * MS, 90_000),
        RunningTotals(4711, worker, RECEIVE.frames[1].code, 24, 120 * MS),
        RunningTotals(4712, None, None, 1, 5 * MS),
        AgentCost(START, START + SECOND, 500, 400_000, 20 * MS, 9 * MS, 48 << 20),
        StolenTime(START, START + SECOND, 30 * MS, 2),
        HubProcess(7652, "gunicorn: wörker"),
        Loss("events", 12, START, START + SECOND),
        Loss("events", 3, START + SECOND, START + 2 * SECOND),
        Shed("wait stacks", "the budget", START, START + 2 * SECOND),
        GreenletTotals(4711, worker, False, 3, 18, 0, 40, 1 * MS, SECOND, 7 * MS),
        GreenletTotals(4712, None, False, 1, 0, 1, 0, 0, 0, 0),
        GreenletTotals(4711, CALLBACK.frames[-1].code, True, 1, 0, 1, 9, 15 * MS, 0, 15 * MS),
        still_on,
        SessionEnd(START + 4 * SECOND, "duration"),
    ]


# Arbitrary records. Times below 2**59 (18 years), so that no sum leaves 64 bits.

_u64 = st.integers(0, 2**64 - 1)
_time = st.integers(0, 2**59)
_text = st.text(max_size=20)  # hypothesis leaves surrogates out where it encodes UTF-8
_codes = st.builds(Code, _text, _text, _u64, st.sampled_from(CodeOrigin))
_stacks = st.builds(
    Stack,
    st.lists(st.builds(Frame, _codes, _u64), max_size=4).map(tuple),
    st.sampled_from(StackStatus),
)
_pieces = st.lists(st.builds(HoldPiece, _stacks, _text, _time, _u64), max_size=4).map(tuple)


@st.composite
def _holds(draw: st.DrawFn) -> Hold:
    pieces = draw(_pieces)
    exact = draw(st.booleans())
    duration_ns = sum(piece.duration_ns for piece in pieces) if exact else draw(_time)
    on_cpu_ns = draw(st.integers(0, duration_ns))
    flags = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    times = draw(_time), duration_ns, on_cpu_ns
    known = draw(st.none() | _codes), draw(_time)
    return Hold(draw(_u64), draw(_u64), *times, *flags, pieces, *known)


_seven = (_u64,) * 7
HOLDS = _holds()
RECORDS = st.one_of(
    HOLDS,
    st.builds(GreenletTotals, _u64, st.none() | _codes, st.booleans(), *_seven),
    st.builds(ThreadTotals, _u64, _text, st.booleans(), *_seven, _u64),
    st.builds(RunningTotals, _u64, st.none() | _codes, st.none() | _codes, _u64, _u64),
    st.builds(AgentCost, _time, _time, *_seven[:5]),
    st.builds(StolenTime, _time, _time, _u64, _u64),
    st.builds(HubProcess, _u64, _text),
    st.builds(Loss, _text, _u64, _time, _time),
    st.builds(Shed, _text, _text, _time, _time),
    st.builds(SessionEnd, _time, _text),
)
