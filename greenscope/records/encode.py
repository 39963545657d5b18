"""Writing batches: records become arrays, each name once per batch, times as differences."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, fields
from typing import Any

import msgpack  # type: ignore[import-untyped]
import zstandard

from greenscope.model import (
    AgentCost,
    Code,
    Frame,
    GreenletTotals,
    Hold,
    HubProcess,
    Loss,
    Record,
    RunningTotals,
    Session,
    SessionEnd,
    Shed,
    Stack,
    StolenTime,
    ThreadTotals,
)
from greenscope.records.kinds import (
    ORIGIN_NUMBERS,
    STATUS_NUMBERS,
    HoldFlag,
    Kind,
    off_cpu_pieces_ns,
)
from greenscope.records.text import storable

# 10,000 holds: 9 ms. Level 3 takes 6 ms and 2 % more bytes, level 16 75 ms and 7 % fewer.
_ZSTD_LEVEL = 9
_U64 = 1 << 64
_HOLD_BYTES = 24

_Other = (
    GreenletTotals
    | ThreadTotals
    | RunningTotals
    | AgentCost
    | StolenTime
    | HubProcess
    | Loss
    | Shed
    | SessionEnd
)


def encode_session(session: Session) -> bytes:
    """A session as one msgpack array, not compressed: it precedes all batches."""
    record = [
        Kind.SESSION,
        session.session_id,
        storable(session.service),
        storable(session.host),
        session.pid,
        session.process_start_ticks,
        storable(session.executable),
        storable(session.python_version),
        storable(session.greenlet_version),
        session.threshold_ns,
        session.sample_hz,
        session.start_ktime_ns,
        session.start_unix_ns,
        {storable(name): storable(value) for name, value in session.labels.items()},
    ]
    packed: bytes = msgpack.packb(record)
    return packed


@dataclass(slots=True)
class _Run:
    """Holds that follow one another, by columns in the order of docs/record-format.md.

    What is alike lies together that way: a hold takes 12 bytes instead of 16.
    """

    threads: list[int] = field(default_factory=list)
    greenlets: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    durations: list[int] = field(default_factory=list)
    more_off: list[int] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    piece_durations: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    uncertainties: list[int] = field(default_factory=list)


def _piece_durations(hold: Hold) -> list[int]:
    """Each duration plus one; 0 for the longest one, which follows from the hold's."""
    durations = [piece.duration_ns for piece in hold.pieces]
    written = [duration_ns + 1 for duration_ns in durations]
    if durations and sum(durations) == hold.duration_ns:
        written[durations.index(max(durations))] = 0
    return written


class BatchEncoder:
    """Collects records and gives them as one self-contained batch.

    Not for several threads at once.
    """

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=False)
        self._packer = msgpack.Packer()
        self._begin()

    def _begin(self) -> None:
        self._out = bytearray()
        self._run = _Run()
        self._numbers: dict[Kind, dict[Hashable, int]] = {kind: {} for kind in Kind if kind < 16}
        self._time_ns = 0
        self._greenlet_id = 0
        self.record_count = 0

    @property
    def size_bytes(self) -> int:
        """About the length of the batch so far, not compressed."""
        return len(self._out) + _HOLD_BYTES * len(self._run.threads)

    def add(self, record: Record) -> None:
        """Appends a record, after the definitions that it needs."""
        self.record_count += 1
        if isinstance(record, Hold):
            self._add_hold(record)
        else:
            self._end_run()
            self._pack(self._fields(record))

    def finish(self) -> bytes:
        """The batch; the next record begins another one."""
        self._end_run()
        batch = self._compressor.compress(bytes(self._out))
        self._begin()
        return batch

    def _pack(self, array: list[Any]) -> None:
        self._out += self._packer.pack(array)

    def _fields(self, record: _Other) -> list[Any]:
        match record:
            case GreenletTotals():
                return self._greenlet_totals(record)
            case ThreadTotals():
                return self._thread_totals(record)
            case RunningTotals():
                return self._running_totals(record)
            case HubProcess(pid, command):
                return [Kind.HUB_PROCESS, pid, self._text(command)]
            case SessionEnd(end_ns, why):
                return [Kind.SESSION_END, self._since(end_ns), self._text(why)]
            case _:
                return self._stretch(record)

    def _stretch(self, record: AgentCost | StolenTime | Loss | Shed) -> list[Any]:
        """What is told of a stretch of the watch."""
        match record:
            case AgentCost():
                return self._agent_cost(record)
            case StolenTime(from_ns, to_ns, stolen_ns, cpus):
                return [Kind.STOLEN_TIME, *self._times(from_ns, to_ns), stolen_ns, cpus]
            case Loss(what, count, from_ns, to_ns):
                return [Kind.LOSS, self._text(what), count, *self._times(from_ns, to_ns)]
            case Shed(what, why, from_ns, to_ns):
                texts = self._text(what), self._text(why)
                return [Kind.SHED, *texts, *self._times(from_ns, to_ns)]

    def _add_hold(self, hold: Hold) -> None:
        flags = HoldFlag.IS_HUB if hold.is_hub else 0
        flags |= HoldFlag.IS_OPEN if hold.is_open else 0
        flags |= HoldFlag.BEGAN_BEFORE if hold.began_before else 0
        run = self._run
        run.threads.append(self._thread(hold.tid))
        run.greenlets.append(self._greenlet(hold.greenlet_id))
        run.starts.append(self._since(hold.start_ktime_ns))
        self._time_ns += hold.duration_ns
        run.durations.append(hold.duration_ns)
        off_cpu_ns = hold.duration_ns - hold.on_cpu_ns
        run.more_off.append(off_cpu_ns - off_cpu_pieces_ns(hold.pieces))
        run.flags.append(int(flags))
        run.lengths.append(len(hold.pieces))
        run.places += (self._place(piece.stack, piece.reason) for piece in hold.pieces)
        run.piece_durations += _piece_durations(hold)
        run.counts += (piece.count for piece in hold.pieces)
        run.kinds.append(self._greenlet_kind(hold.kind, hold.is_hub))
        run.uncertainties.append(hold.uncertainty_ns)

    def _end_run(self) -> None:
        if self._run.threads:
            columns = [getattr(self._run, field.name) for field in fields(self._run)]
            self._run = _Run()
            self._pack([Kind.HOLDS, *columns])

    def _greenlet_totals(self, totals: GreenletTotals) -> list[Any]:
        return [
            Kind.GREENLET_TOTALS,
            self._thread(totals.tid),
            self._greenlet_kind(totals.kind, totals.is_hub),
            totals.seen,
            totals.ended,
            totals.alive,
            totals.switches,
            totals.running_ns,
            totals.waiting_ns,
            totals.longest_hold_ns,
        ]

    def _thread_totals(self, totals: ThreadTotals) -> list[Any]:
        return [
            Kind.THREAD_TOTALS,
            self._thread(totals.tid),
            self._text(totals.name),
            totals.has_hub,
            totals.switches,
            totals.holds,
            totals.holding_ns,
            totals.hub_ns,
            totals.idle_ns,
            totals.longest_hold_ns,
            totals.unwatched_ns,
            totals.unwatched_switches,
        ]

    def _running_totals(self, totals: RunningTotals) -> list[Any]:
        return [
            Kind.RUNNING_TOTALS,
            self._thread(totals.tid),
            None if totals.kind is None else self._code(totals.kind),
            None if totals.function is None else self._code(totals.function),
            totals.samples,
            totals.running_ns,
        ]

    def _agent_cost(self, cost: AgentCost) -> list[Any]:
        return [
            Kind.AGENT_COST,
            *self._times(cost.from_ktime_ns, cost.to_ktime_ns),
            cost.hits,
            cost.cost_ns,
            cost.budget_ns,
            cost.cpu_ns,
            cost.rss_bytes,
        ]

    # Times and ids as differences.

    def _since(self, ktime_ns: int) -> int:
        difference_ns = ktime_ns - self._time_ns
        self._time_ns = ktime_ns
        return difference_ns

    def _times(self, from_ns: int, to_ns: int) -> tuple[int, int]:
        return self._since(from_ns), self._since(to_ns)

    def _greenlet(self, greenlet_id: int) -> int:
        # Ids use all 64 bits, so the difference is taken modulo 2**64 to fit into msgpack's.
        difference = (greenlet_id - self._greenlet_id + _U64 // 2) % _U64 - _U64 // 2
        self._greenlet_id = greenlet_id
        return difference

    # Definitions: written when first used, then numbered by their order within the kind.

    def _define(self, kind: Kind, key: Hashable, *values: Any) -> int:
        numbers = self._numbers[kind]
        self._pack([kind, *values])
        numbers[key] = len(numbers)
        return numbers[key]

    def _text(self, text: str) -> int:
        number = self._numbers[Kind.STRING].get(text)
        return self._define(Kind.STRING, text, storable(text)) if number is None else number

    def _code(self, code: Code) -> int:
        number = self._numbers[Kind.CODE].get(code)
        if number is not None:
            return number
        names = self._text(code.function), self._text(code.file)
        origin = ORIGIN_NUMBERS[code.origin]
        return self._define(Kind.CODE, code, *names, code.first_line, origin)

    def _frame(self, frame: Frame) -> int:
        number = self._numbers[Kind.FRAME].get(frame)
        if number is not None:
            return number
        return self._define(Kind.FRAME, frame, self._code(frame.code), frame.line)

    def _stack(self, stack: Stack) -> int:
        number = self._numbers[Kind.STACK].get(stack)
        if number is not None:
            return number
        frames = [self._frame(frame) for frame in stack.frames]
        return self._define(Kind.STACK, stack, STATUS_NUMBERS[stack.status], frames)

    def _place(self, stack: Stack, reason: str) -> int:
        key = stack, reason
        number = self._numbers[Kind.PLACE].get(key)
        if number is not None:
            return number
        return self._define(Kind.PLACE, key, self._stack(stack), self._text(reason))

    def _thread(self, tid: int) -> int:
        number = self._numbers[Kind.THREAD].get(tid)
        return self._define(Kind.THREAD, tid, tid) if number is None else number

    def _greenlet_kind(self, code: Code | None, is_hub: bool) -> int:
        key = code, is_hub
        number = self._numbers[Kind.GREENLET_KIND].get(key)
        if number is not None:
            return number
        code_number = None if code is None else self._code(code)
        return self._define(Kind.GREENLET_KIND, key, code_number, is_hub)
