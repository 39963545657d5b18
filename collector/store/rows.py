"""Records as rows of the tables in schema.sql, and back. Without a database."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from greenscope.model import (
    Code,
    Frame,
    GreenletTotals,
    Hold,
    HoldPiece,
    Loss,
    Record,
    Session,
    SessionEnd,
    Shed,
    Stack,
    StackStatus,
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
    match record:
        case Hold():
            return _hold_row(record, stack_ids)
        case GreenletTotals():
            return _greenlet_row(record)
        case ThreadTotals():
            return {
                "kind": Kind.THREAD_TOTALS,
                "tid": record.tid,
                "what": record.name,
                "flags": HoldFlag.IS_OPEN if record.has_hub else 0,
                "switches": record.switches,
                "holds": record.holds,
                "running_ns": record.holding_ns,
                "waiting_ns": record.hub_ns,
                "idle_ns": record.idle_ns,
                "longest_hold_ns": record.longest_hold_ns,
            }
        case Loss(what, count, from_ns, to_ns):
            times = {"from_ktime_ns": from_ns, "to_ktime_ns": to_ns}
            return {"kind": Kind.LOSS, "what": what, "seen": count, **times}
        case Shed(what, why, from_ns, to_ns):
            times = {"from_ktime_ns": from_ns, "to_ktime_ns": to_ns}
            return {"kind": Kind.SHED, "what": what, "why": why, **times}
        case SessionEnd(end_ns, why):
            return {"kind": Kind.SESSION_END, "from_ktime_ns": end_ns, "why": why}


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
    }


def _greenlet_row(totals: GreenletTotals) -> Row:
    row = {
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
    }
    if totals.kind is None:
        return row
    return row | {
        "kind_known": 1,
        "kind_function": totals.kind.function,
        "kind_file": totals.kind.file,
        "kind_first_line": totals.kind.first_line,
        "kind_origin": ORIGIN_NUMBERS[totals.kind.origin],
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
    )


def _greenlet_of(row: Row) -> GreenletTotals:
    kind = None
    if row["kind_known"]:
        origin = origin_of(row["kind_origin"])
        kind = Code(row["kind_function"], row["kind_file"], row["kind_first_line"], origin)
    return GreenletTotals(
        tid=row["tid"],
        kind=kind,
        is_hub=bool(row["flags"] & HoldFlag.IS_HUB),
        seen=row["seen"],
        ended=row["ended"],
        alive=row["alive"],
        switches=row["switches"],
        running_ns=row["running_ns"],
        waiting_ns=row["waiting_ns"],
        longest_hold_ns=row["longest_hold_ns"],
    )


_READERS: Final[Mapping[int, Callable[[Row], Record]]] = {
    Kind.GREENLET_TOTALS: _greenlet_of,
    Kind.THREAD_TOTALS: _thread_of,
    Kind.LOSS: lambda row: Loss(row["what"], row["seen"], row["from_ktime_ns"], row["to_ktime_ns"]),
    Kind.SHED: lambda row: Shed(row["what"], row["why"], row["from_ktime_ns"], row["to_ktime_ns"]),
    Kind.SESSION_END: lambda row: SessionEnd(row["from_ktime_ns"], row["why"]),
}
