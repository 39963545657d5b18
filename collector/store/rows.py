"""Records as rows of the tables in schema.sql, and back. Without a database."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from greenscope.model import (
    AgentCost,
    Code,
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
from greenscope.records.kinds import (
    ORIGIN_NUMBERS,
    STATUS_NUMBERS,
    HoldFlag,
    Kind,
    origin_of,
    status_of,
)
from greenscope.records.recording import LOST_KINDS

Row = dict[str, Any]
Columns = dict[str, list[Any]]

BATCH_KIND: Final = 0
"""The row that stands for the batch itself; records have kinds from 16 on."""

_EMPTY: Final[Row] = {
    "position": 0, "kind": BATCH_KIND, "tid": 0, "greenlet_id": 0, "from_ktime_ns": 0,
    "to_ktime_ns": 0, "duration_ns": 0, "on_cpu_ns": 0, "flags": 0, "piece_stack_ids": [],
    "piece_reasons": [], "piece_durations_ns": [], "piece_counts": [], "what": "", "why": "",
    "kind_known": 0, "kind_function": "", "kind_file": "", "kind_first_line": 0,
    "kind_origin": 0, "seen": 0, "ended": 0, "alive": 0, "switches": 0, "holds": 0,
    "running_ns": 0, "waiting_ns": 0, "idle_ns": 0, "longest_hold_ns": 0,
    "uncertainty_ns": 0, "unwatched_ns": 0, "unwatched_switches": 0, "function_known": 0,
    "function": "", "function_file": "", "function_first_line": 0, "function_origin": 0,
    "cost_ns": 0, "budget_ns": 0, "cpu_ns": 0, "rss_bytes": 0,
}  # fmt: skip
RECORD_COLUMNS: Final = ("session_id", "number", *_EMPTY)
STACK_COLUMNS: Final = (
    "session_id", "stack_id", "status", "functions", "files", "first_lines", "origins", "lines",
)  # fmt: skip
SESSION_COLUMNS: Final = (
    "session_id", "received_unix_ns", "service", "host", "pid", "process_start_ticks",
    "executable", "python_version", "greenlet_version", "threshold_ns", "sample_hz",
    "start_ktime_ns", "start_unix_ns", "label_names", "label_values",
)  # fmt: skip
_LOST_STACK: Final = Stack((), StackStatus.LOST)


def as_columns(names: Sequence[str], rows: Iterable[Row]) -> Columns:
    """Rows turned on their side."""
    rows = list(rows)
    return {name: [row[name] for row in rows] for name in names}


# Sessions.


def session_row(session: Session, received_unix_ns: int) -> Row:
    """A row of `sessions`."""
    own = {name: getattr(session, name, None) for name in SESSION_COLUMNS}
    return own | {
        "received_unix_ns": received_unix_ns,
        "label_names": list(session.labels),
        "label_values": list(session.labels.values()),
    }


def session_of(row: Row) -> Session:
    """The session of a row."""
    labels = dict(zip(row["label_names"], row["label_values"], strict=True))
    left_out = ("received_unix_ns", "label_names", "label_values")
    return Session(**{n: row[n] for n in SESSION_COLUMNS if n not in left_out}, labels=labels)


# Stacks.


def stack_row(session_id: str, stack: Stack) -> Row:
    """A row of `stacks`; its `stack_id` is a hash of everything else but the session."""
    codes = [frame.code for frame in stack.frames]
    row = {
        "status": STATUS_NUMBERS[stack.status],
        "functions": [code.function for code in codes],
        "files": [code.file for code in codes],
        "first_lines": [code.first_line for code in codes],
        "origins": [ORIGIN_NUMBERS[code.origin] for code in codes],
        "lines": [frame.line for frame in stack.frames],
    }
    digest = hashlib.blake2b(json.dumps(row).encode(), digest_size=8).digest()
    return {"session_id": session_id, "stack_id": int.from_bytes(digest, "little"), **row}


def stack_of(row: Row) -> Stack:
    """The stack of a row."""
    columns = (row[name] for name in ("functions", "files", "first_lines", "origins", "lines"))
    frames = tuple(
        Frame(Code(function, file, first_line, origin_of(origin)), line)
        for function, file, first_line, origin, line in zip(*columns, strict=True)
    )
    return Stack(frames, status_of(row["status"]))


def stacks_in(records: Iterable[Record]) -> set[Stack]:
    """Every stack that the records refer to."""
    return {
        piece.stack for record in records if isinstance(record, Hold) for piece in record.pieces
    }


# Records.


def batch_rows(
    session_id: str,
    number: int,
    records: Sequence[Record],
    skipped: int,
    stack_ids: Mapping[Stack, int],
) -> Iterator[Row]:
    """The rows of `records` for one batch: its own and one for each record."""
    batch = {"session_id": session_id, "number": number}
    yield batch | _EMPTY | {"seen": skipped}
    for position, record in enumerate(records, start=1):
        yield batch | _EMPTY | {"position": position} | _record_row(record, stack_ids)


def _record_row(record: Record, stack_ids: Mapping[Stack, int]) -> Row:
    if isinstance(record, Hold):
        return _hold_row(record, stack_ids)
    return _WRITERS[type(record)](record)


def _thread_row(totals: ThreadTotals) -> Row:
    return {
        "kind": Kind.THREAD_TOTALS,
        "tid": totals.tid,
        "what": totals.name,
        "flags": HoldFlag.IS_OPEN if totals.has_hub else 0,
        "switches": totals.switches,
        "holds": totals.holds,
        "running_ns": totals.holding_ns,
        "waiting_ns": totals.hub_ns,
        "idle_ns": totals.idle_ns,
        "longest_hold_ns": totals.longest_hold_ns,
        "unwatched_ns": totals.unwatched_ns,
        "unwatched_switches": totals.unwatched_switches,
    }


def _times_row(kind: Kind, record: Loss | Shed | StolenTime, **columns: Any) -> Row:
    times = {"from_ktime_ns": record.from_ktime_ns, "to_ktime_ns": record.to_ktime_ns}
    return {"kind": kind, **times, **columns}


def _hold_row(hold: Hold, stack_ids: Mapping[Stack, int]) -> Row:
    flags = HoldFlag.IS_HUB if hold.is_hub else 0
    flags |= HoldFlag.IS_OPEN if hold.is_open else 0
    flags |= HoldFlag.BEGAN_BEFORE if hold.began_before else 0
    return {
        "kind": Kind.HOLDS,
        "tid": hold.tid,
        "greenlet_id": hold.greenlet_id,
        "from_ktime_ns": hold.start_ktime_ns,
        "to_ktime_ns": hold.start_ktime_ns + hold.duration_ns,
        "duration_ns": hold.duration_ns,
        "on_cpu_ns": hold.on_cpu_ns,
        "flags": flags,
        "piece_stack_ids": [stack_ids[piece.stack] for piece in hold.pieces],
        "piece_reasons": [piece.reason for piece in hold.pieces],
        "piece_durations_ns": [piece.duration_ns for piece in hold.pieces],
        "piece_counts": [piece.count for piece in hold.pieces],
        "uncertainty_ns": hold.uncertainty_ns,
        **_kind_columns(hold.kind),
    }


def _kind_columns(kind: Code | None) -> Row:
    if kind is None:
        return {}
    return {
        "kind_known": 1,
        "kind_function": kind.function,
        "kind_file": kind.file,
        "kind_first_line": kind.first_line,
        "kind_origin": ORIGIN_NUMBERS[kind.origin],
    }


def _kind_of(row: Row) -> Code | None:
    if not row["kind_known"]:
        return None
    names = row["kind_function"], row["kind_file"], row["kind_first_line"]
    return Code(*names, origin_of(row["kind_origin"]))


def _greenlet_row(totals: GreenletTotals) -> Row:
    return {
        "kind": Kind.GREENLET_TOTALS,
        "tid": totals.tid,
        "flags": HoldFlag.IS_HUB if totals.is_hub else 0,
        "seen": totals.seen,
        "ended": totals.ended,
        "alive": totals.alive,
        "switches": totals.switches,
        "running_ns": totals.running_ns,
        "waiting_ns": totals.waiting_ns,
        "longest_hold_ns": totals.longest_hold_ns,
        **_kind_columns(totals.kind),
    }


def _running_row(totals: RunningTotals) -> Row:
    row = {
        "kind": Kind.RUNNING_TOTALS,
        "tid": totals.tid,
        "seen": totals.samples,
        "running_ns": totals.running_ns,
        **_kind_columns(totals.kind),
    }
    function = totals.function
    if function is None:
        return row
    return row | {
        "function_known": 1,
        "function": function.function,
        "function_file": function.file,
        "function_first_line": function.first_line,
        "function_origin": ORIGIN_NUMBERS[function.origin],
    }


def _cost_row(cost: AgentCost) -> Row:
    return {
        "kind": Kind.AGENT_COST,
        "from_ktime_ns": cost.from_ktime_ns,
        "to_ktime_ns": cost.to_ktime_ns,
        "seen": cost.hits,
        "cost_ns": cost.cost_ns,
        "budget_ns": cost.budget_ns,
        "cpu_ns": cost.cpu_ns,
        "rss_bytes": cost.rss_bytes,
    }


_WRITERS: Final[Mapping[type, Callable[[Any], Row]]] = {
    GreenletTotals: _greenlet_row,
    ThreadTotals: _thread_row,
    RunningTotals: _running_row,
    AgentCost: _cost_row,
    StolenTime: lambda it: _times_row(Kind.STOLEN_TIME, it, duration_ns=it.stolen_ns, seen=it.cpus),
    HubProcess: lambda it: {"kind": Kind.HUB_PROCESS, "tid": it.pid, "what": it.command},
    Loss: lambda it: _times_row(Kind.LOSS, it, what=it.what, seen=it.count),
    Shed: lambda it: _times_row(Kind.SHED, it, what=it.what, why=it.why),
    SessionEnd: lambda it: {
        "kind": Kind.SESSION_END,
        "from_ktime_ns": it.end_ktime_ns,
        "why": it.why,
    },
}


def record_of(row: Row, stacks: Mapping[int, Stack]) -> Record | None:
    """The record of a row; None for one that tells nothing to a report."""
    kind = row["kind"]
    if kind == Kind.HOLDS:
        return _hold_of(row, stacks)
    if kind == BATCH_KIND:
        return Loss(LOST_KINDS, row["seen"], 0, 0) if row["seen"] else None
    read = _READERS.get(kind)
    return None if read is None else read(row)


def _thread_of(row: Row) -> ThreadTotals:
    return ThreadTotals(
        tid=row["tid"],
        name=row["what"],
        has_hub=bool(row["flags"]),
        switches=row["switches"],
        holds=row["holds"],
        holding_ns=row["running_ns"],
        hub_ns=row["waiting_ns"],
        idle_ns=row["idle_ns"],
        longest_hold_ns=row["longest_hold_ns"],
        unwatched_ns=row["unwatched_ns"],
        unwatched_switches=row["unwatched_switches"],
    )


def _hold_of(row: Row, stacks: Mapping[int, Stack]) -> Hold:
    pieces = zip(
        row["piece_stack_ids"],
        row["piece_reasons"],
        row["piece_durations_ns"],
        row["piece_counts"],
        strict=True,
    )
    return Hold(
        tid=row["tid"],
        greenlet_id=row["greenlet_id"],
        start_ktime_ns=row["from_ktime_ns"],
        duration_ns=row["duration_ns"],
        on_cpu_ns=row["on_cpu_ns"],
        is_hub=bool(row["flags"] & HoldFlag.IS_HUB),
        is_open=bool(row["flags"] & HoldFlag.IS_OPEN),
        began_before=bool(row["flags"] & HoldFlag.BEGAN_BEFORE),
        pieces=tuple(
            HoldPiece(stacks.get(stack_id, _LOST_STACK), reason, duration_ns, count)
            for stack_id, reason, duration_ns, count in pieces
        ),
        kind=_kind_of(row),
        uncertainty_ns=row["uncertainty_ns"],
    )


def _greenlet_of(row: Row) -> GreenletTotals:
    return GreenletTotals(
        tid=row["tid"],
        kind=_kind_of(row),
        is_hub=bool(row["flags"] & HoldFlag.IS_HUB),
        seen=row["seen"],
        ended=row["ended"],
        alive=row["alive"],
        switches=row["switches"],
        running_ns=row["running_ns"],
        waiting_ns=row["waiting_ns"],
        longest_hold_ns=row["longest_hold_ns"],
    )


def _running_of(row: Row) -> RunningTotals:
    function = None
    if row["function_known"]:
        names = row["function"], row["function_file"], row["function_first_line"]
        function = Code(*names, origin_of(row["function_origin"]))
    return RunningTotals(row["tid"], _kind_of(row), function, row["seen"], row["running_ns"])


def _cost_of(row: Row) -> AgentCost:
    return AgentCost(
        from_ktime_ns=row["from_ktime_ns"],
        to_ktime_ns=row["to_ktime_ns"],
        hits=row["seen"],
        cost_ns=row["cost_ns"],
        budget_ns=row["budget_ns"],
        cpu_ns=row["cpu_ns"],
        rss_bytes=row["rss_bytes"],
    )


def _stolen_of(row: Row) -> StolenTime:
    return StolenTime(row["from_ktime_ns"], row["to_ktime_ns"], row["duration_ns"], row["seen"])


_READERS: Final[Mapping[int, Callable[[Row], Record]]] = {
    Kind.GREENLET_TOTALS: _greenlet_of,
    Kind.THREAD_TOTALS: _thread_of,
    Kind.LOSS: lambda row: Loss(row["what"], row["seen"], row["from_ktime_ns"], row["to_ktime_ns"]),
    Kind.SHED: lambda row: Shed(row["what"], row["why"], row["from_ktime_ns"], row["to_ktime_ns"]),
    Kind.RUNNING_TOTALS: _running_of,
    Kind.AGENT_COST: _cost_of,
    Kind.STOLEN_TIME: _stolen_of,
    Kind.HUB_PROCESS: lambda row: HubProcess(row["tid"], row["what"]),
    Kind.SESSION_END: lambda row: SessionEnd(row["from_ktime_ns"], row["why"]),
}
