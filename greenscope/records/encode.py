"""Writing batches: records become arrays, each name once per batch, times as differences."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgpack  # type: ignore[import-untyped]
import zstandard

from greenscope.model import (
    Code,
    Frame,
    GreenletTotals,
    Hold,
    Loss,
    Record,
    Session,
    SessionEnd,
    Shed,
    Stack,
    ThreadTotals,
)
from greenscope.records.kinds import ORIGIN_NUMBERS, STATUS_NUMBERS, HoldFlag, Kind
from greenscope.records.text import storable

# Level 3 is zstd's default: 1 MiB of records in about 5 ms, and level 9 gains 3 % more.
_ZSTD_LEVEL = 3
_U64 = 1 << 64


def encode_session(session: Session) -> bytes:
    """A session as one msgpack array, not compressed: it precedes all batches."""
    fields = [
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
    packed: bytes = msgpack.packb(fields)
    return packed


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
        self._numbers: dict[Kind, dict[Hashable, int]] = {kind: {} for kind in Kind if kind < 16}
        self._time_ns = 0
        self._greenlet_id = 0
        self.record_count = 0

    @property
    def size_bytes(self) -> int:
        """Length of the batch so far, not compressed."""
        return len(self._out)

    def add(self, record: Record) -> None:
        """Appends a record, after the definitions that it needs."""
        self._pack(self._fields(record))
        self.record_count += 1

    def finish(self) -> bytes:
        """The batch; the next record begins another one."""
        batch = self._compressor.compress(bytes(self._out))
        self._begin()
        return batch

    def _pack(self, fields: list[Any]) -> None:
        self._out += self._packer.pack(fields)

    def _fields(self, record: Record) -> list[Any]:
        match record:
            case Hold():
                return self._hold(record)
            case GreenletTotals():
                return self._greenlet_totals(record)
            case ThreadTotals():
                return self._thread_totals(record)
            case Loss(what, count, from_ns, to_ns):
                return [Kind.LOSS, self._text(what), count, *self._times(from_ns, to_ns)]
            case Shed(what, why, from_ns, to_ns):
                texts = self._text(what), self._text(why)
                return [Kind.SHED, *texts, *self._times(from_ns, to_ns)]
            case SessionEnd(end_ns, why):
                return [Kind.SESSION_END, self._since(end_ns), self._text(why)]

    def _hold(self, hold: Hold) -> list[Any]:
        flags = HoldFlag.IS_HUB if hold.is_hub else HoldFlag(0)
        flags |= HoldFlag.IS_OPEN if hold.is_open else HoldFlag(0)
        flags |= HoldFlag.BEGAN_BEFORE if hold.began_before else HoldFlag(0)
        places = [self._place(piece.stack, piece.reason) for piece in hold.pieces]
        pieces: list[int] = []
        rest_ns = hold.duration_ns
        for place, piece in zip(places, hold.pieces, strict=True):
            pieces += (place, piece.duration_ns, piece.count)
            rest_ns -= piece.duration_ns
        if pieces:
            # The pieces add up to the hold, so the last one need not be said: a zero.
            pieces[-2] = -rest_ns
        thread, greenlet = self._thread(hold.tid), self._greenlet(hold.greenlet_id)
        start = self._since(hold.start_ktime_ns)
        self._time_ns += hold.duration_ns
        off_cpu_ns = hold.duration_ns - hold.on_cpu_ns
        return [
            Kind.HOLD, thread, greenlet, start, hold.duration_ns, off_cpu_ns, int(flags), pieces,
        ]  # fmt: skip

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

    def _define(self, kind: Kind, key: Hashable, *fields: Any) -> int:
        numbers = self._numbers[kind]
        self._pack([kind, *fields])
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
