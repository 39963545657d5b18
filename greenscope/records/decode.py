"""Reading batches. Input comes from files and sockets and is not trusted.

Extra fields at the end of an array and unknown kinds come from newer writers: the former are
ignored, the latter skipped and counted. Everything else that does not fit is `DamagedBatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgpack  # type: ignore[import-untyped]
import zstandard

from greenscope.errors import RecordingError
from greenscope.model import (
    AgentCost,
    Code,
    Frame,
    GreenletTotals,
    Hold,
    HoldPiece,
    HubProcess,
    Loss,
    Reason,
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
    MAX_BATCH_BYTES,
    HoldFlag,
    Kind,
    off_cpu_pieces_ns,
    origin_of,
    status_of,
)

_T = TypeVar("_T")
_U64 = 1 << 64
# What the bytes of a hostile or damaged batch raise on their way through. RuntimeError: a
# generator ran out, that is a hold claims more pieces than there are.
_DAMAGE = ValueError, TypeError, IndexError, RuntimeError, msgpack.UnpackException


class DamagedBatch(RecordingError):
    """Bytes that are no batch, or a batch that refers to what it does not define."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The records of a batch in their order, and how many of unknown kinds were skipped."""

    records: tuple[Record, ...]
    skipped: int = 0


def decode_batch(data: bytes) -> Batch:
    """Reads what `BatchEncoder.finish` gave.

    Raises:
        DamagedBatch: whatever else the bytes are.
    """
    decoder = _Decoder()
    try:
        stream = _decompress(data)
        unpacker = msgpack.Unpacker(max_buffer_size=MAX_BATCH_BYTES)
        unpacker.feed(stream)
        for item in unpacker:
            decoder.take(item)
        if unpacker.tell() != len(stream):
            raise ValueError("ends inside of a record")
    except _DAMAGE as error:
        raise DamagedBatch(f"damaged batch: {error}") from error
    return Batch(tuple(decoder.records), decoder.skipped)


def decode_session(data: bytes) -> Session:
    """Reads what `encode_session` gave.

    Raises:
        DamagedBatch: whatever else the bytes are.
    """
    try:
        kind, *fields = msgpack.unpackb(data)
        if kind != Kind.SESSION:
            raise ValueError(f"kind {kind!r} is no session")
        return _session(fields)
    except _DAMAGE as error:
        raise DamagedBatch(f"damaged session record: {error}") from error


def _decompress(data: bytes) -> bytes:
    # Looked at before anything is allocated: a frame may claim any length.
    try:
        size_bytes = zstandard.frame_content_size(data)
        if not 0 <= size_bytes <= MAX_BATCH_BYTES:
            raise ValueError(f"says to be {size_bytes} bytes long")
        return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


def _session(fields: Sequence[Any]) -> Session:
    labels = fields[12]
    if not isinstance(labels, dict):
        raise TypeError("labels are no map")
    session_id = _text(fields[0])
    if len(session_id) != 32 or not set(session_id) <= set("0123456789abcdef"):
        raise ValueError("a session id is 32 hex digits")
    return Session(
        session_id=session_id,
        service=_text(fields[1]),
        host=_text(fields[2]),
        pid=_uint(fields[3]),
        process_start_ticks=_uint(fields[4]),
        executable=_text(fields[5]),
        python_version=_text(fields[6]),
        greenlet_version=_text(fields[7]),
        threshold_ns=_uint(fields[8]),
        sample_hz=_uint(fields[9]),
        start_ktime_ns=_uint(fields[10]),
        start_unix_ns=_uint(fields[11]),
        labels={_text(name): _text(value) for name, value in labels.items()},
    )


# Each of these returns the value if it is of the type, and raises TypeError or ValueError.


def _int(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r:.40} is no integer")
    return value


def _uint(value: object) -> int:
    number = _int(value)
    if not 0 <= number < _U64:
        raise ValueError(f"{number} does not fit into 64 bits")
    return number


def _text(value: object) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _bool(value: object) -> bool:
    if type(value) is not bool:
        raise TypeError(f"{value!r:.40} is no boolean")
    return value


def _list(value: object) -> list[Any]:
    if type(value) is not list:
        raise TypeError(f"{value!r:.40} is no array")
    return value


def _at(defined: Sequence[_T], number: object) -> _T:
    return defined[_uint(number)]


def _with_rest(pieces: list[HoldPiece], duration_ns: int) -> tuple[HoldPiece, ...]:
    """The pieces with the rest of the hold's duration given to the one that takes it."""
    takers = [index for index, piece in enumerate(pieces) if piece.duration_ns < 0]
    if len(takers) > 1:
        raise ValueError("one piece at most takes the rest")
    for index in takers:
        others_ns = sum(piece.duration_ns for piece in pieces) + 1
        pieces[index] = replace(pieces[index], duration_ns=_uint(duration_ns - others_ns))
    return tuple(pieces)


@dataclass(slots=True)
class _Decoder:
    """State of one batch: its definitions, and the instant and id before."""

    records: list[Record] = field(default_factory=list)
    skipped: int = 0
    _strings: list[str] = field(default_factory=list)
    _codes: list[Code] = field(default_factory=list)
    _frames: list[Frame] = field(default_factory=list)
    _stacks: list[Stack] = field(default_factory=list)
    _threads: list[int] = field(default_factory=list)
    _kinds: list[tuple[Code | None, bool]] = field(default_factory=list)
    _places: list[tuple[Stack, Reason]] = field(default_factory=list)
    _time_ns: int = 0
    _greenlet_id: int = 0

    def take(self, item: object) -> None:
        """One array of the stream."""
        fields = _list(item)
        kind = _uint(fields[0])
        define = _DEFINITIONS.get(kind)
        if define is not None:
            define(self, fields)
            return
        read = _RECORDS.get(kind)
        if kind == Kind.HOLDS:
            self.records.extend(self.holds(fields))
        elif read is not None:
            self.records.append(read(self, fields))
        else:
            self.skipped += 1

    def _since(self, difference_ns: object) -> int:
        self._time_ns = _uint(self._time_ns + _int(difference_ns))
        return self._time_ns

    # Definitions.

    def define_string(self, fields: list[Any]) -> None:
        self._strings.append(_text(fields[1]))

    def define_code(self, fields: list[Any]) -> None:
        function, file = _at(self._strings, fields[1]), _at(self._strings, fields[2])
        self._codes.append(Code(function, file, _uint(fields[3]), origin_of(_uint(fields[4]))))

    def define_frame(self, fields: list[Any]) -> None:
        self._frames.append(Frame(_at(self._codes, fields[1]), _uint(fields[2])))

    def define_stack(self, fields: list[Any]) -> None:
        frames = tuple(_at(self._frames, number) for number in _list(fields[2]))
        self._stacks.append(Stack(frames, status_of(_uint(fields[1]))))

    def define_thread(self, fields: list[Any]) -> None:
        self._threads.append(_uint(fields[1]))

    def define_greenlet_kind(self, fields: list[Any]) -> None:
        code = None if fields[1] is None else _at(self._codes, fields[1])
        self._kinds.append((code, _bool(fields[2])))

    def define_place(self, fields: list[Any]) -> None:
        self._places.append((_at(self._stacks, fields[1]), _at(self._strings, fields[2])))

    # Records.

    def holds(self, fields: list[Any]) -> Iterator[Hold]:
        columns = [_list(column) for column in fields[1:11]]
        threads, greenlets, starts, durations, more_off, hold_flags, lengths = columns[:7]
        pieces = self._pieces(*columns[7:])
        # Columns that earlier writers did not have.
        kinds = _list(fields[11]) if len(fields) > 11 else [None] * len(threads)
        uncertainties = _list(fields[12]) if len(fields) > 12 else [0] * len(threads)
        for thread, greenlet, start, duration, more, flags, length, kind, uncertainty in zip(
            threads,
            greenlets,
            starts,
            durations,
            more_off,
            hold_flags,
            lengths,
            kinds,
            uncertainties,
            strict=True,
        ):
            self._greenlet_id = (self._greenlet_id + _int(greenlet)) % _U64
            start_ns, duration_ns = self._since(start), _uint(duration)
            self._since(duration_ns)
            own = _with_rest([next(pieces) for _ in range(_uint(length))], duration_ns)
            off_cpu_ns = off_cpu_pieces_ns(own) + _int(more)
            yield Hold(
                tid=_at(self._threads, thread),
                greenlet_id=self._greenlet_id,
                start_ktime_ns=start_ns,
                duration_ns=duration_ns,
                on_cpu_ns=_uint(duration_ns - off_cpu_ns),
                is_hub=bool(_uint(flags) & HoldFlag.IS_HUB),
                is_open=bool(flags & HoldFlag.IS_OPEN),
                began_before=bool(flags & HoldFlag.BEGAN_BEFORE),
                pieces=own,
                kind=None if kind is None else _at(self._kinds, kind)[0],
                uncertainty_ns=_uint(uncertainty),
            )

    def _pieces(
        self, places: list[Any], durations: list[Any], counts: list[Any]
    ) -> Iterator[HoldPiece]:
        """Pieces with their durations as written; -1 for what takes the rest."""
        for place, duration, count in zip(places, durations, counts, strict=True):
            stack, reason = _at(self._places, place)
            yield HoldPiece(stack, reason, _uint(duration) - 1, _uint(count))

    def greenlet_totals(self, fields: list[Any]) -> GreenletTotals:
        code, is_hub = _at(self._kinds, fields[2])
        return GreenletTotals(
            tid=_at(self._threads, fields[1]),
            kind=code,
            is_hub=is_hub,
            seen=_uint(fields[3]),
            ended=_uint(fields[4]),
            alive=_uint(fields[5]),
            switches=_uint(fields[6]),
            running_ns=_uint(fields[7]),
            waiting_ns=_uint(fields[8]),
            longest_hold_ns=_uint(fields[9]),
        )

    def thread_totals(self, fields: list[Any]) -> ThreadTotals:
        return ThreadTotals(
            tid=_at(self._threads, fields[1]),
            name=_at(self._strings, fields[2]),
            has_hub=_bool(fields[3]),
            switches=_uint(fields[4]),
            holds=_uint(fields[5]),
            holding_ns=_uint(fields[6]),
            hub_ns=_uint(fields[7]),
            idle_ns=_uint(fields[8]),
            longest_hold_ns=_uint(fields[9]),
            unwatched_ns=_uint(fields[10]) if len(fields) > 10 else 0,
            unwatched_switches=_uint(fields[11]) if len(fields) > 11 else 0,
        )

    def running_totals(self, fields: list[Any]) -> RunningTotals:
        kind, function = (
            None if number is None else _at(self._codes, number) for number in fields[2:4]
        )
        return RunningTotals(
            tid=_at(self._threads, fields[1]),
            kind=kind,
            function=function,
            samples=_uint(fields[4]),
            running_ns=_uint(fields[5]),
        )

    def agent_cost(self, fields: list[Any]) -> AgentCost:
        from_ns, to_ns = self._since(fields[1]), self._since(fields[2])
        return AgentCost(from_ns, to_ns, *(_uint(fields[index]) for index in range(3, 8)))

    def stolen_time(self, fields: list[Any]) -> StolenTime:
        from_ns, to_ns = self._since(fields[1]), self._since(fields[2])
        return StolenTime(from_ns, to_ns, _uint(fields[3]), _uint(fields[4]))

    def hub_process(self, fields: list[Any]) -> HubProcess:
        return HubProcess(_uint(fields[1]), _at(self._strings, fields[2]))

    def loss(self, fields: list[Any]) -> Loss:
        what, count = _at(self._strings, fields[1]), _uint(fields[2])
        return Loss(what, count, self._since(fields[3]), self._since(fields[4]))

    def shed(self, fields: list[Any]) -> Shed:
        what, why = _at(self._strings, fields[1]), _at(self._strings, fields[2])
        return Shed(what, why, self._since(fields[3]), self._since(fields[4]))

    def session_end(self, fields: list[Any]) -> SessionEnd:
        return SessionEnd(self._since(fields[1]), _at(self._strings, fields[2]))


_DEFINITIONS: dict[int, Callable[[_Decoder, list[Any]], None]] = {
    Kind.STRING: _Decoder.define_string,
    Kind.CODE: _Decoder.define_code,
    Kind.FRAME: _Decoder.define_frame,
    Kind.STACK: _Decoder.define_stack,
    Kind.THREAD: _Decoder.define_thread,
    Kind.GREENLET_KIND: _Decoder.define_greenlet_kind,
    Kind.PLACE: _Decoder.define_place,
}
_RECORDS: dict[int, Callable[[_Decoder, list[Any]], Record]] = {
    Kind.GREENLET_TOTALS: _Decoder.greenlet_totals,
    Kind.THREAD_TOTALS: _Decoder.thread_totals,
    Kind.LOSS: _Decoder.loss,
    Kind.SHED: _Decoder.shed,
    Kind.SESSION_END: _Decoder.session_end,
    Kind.RUNNING_TOTALS: _Decoder.running_totals,
    Kind.AGENT_COST: _Decoder.agent_cost,
    Kind.STOLEN_TIME: _Decoder.stolen_time,
    Kind.HUB_PROCESS: _Decoder.hub_process,
}
