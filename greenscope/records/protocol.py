"""What agents, collectors and those who ask them say to each other. docs/protocol.md.

Messages are plain data; `pack` and `MessageReader` turn them into bytes and back on any kind
of socket.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]

from greenscope.errors import CollectorError
from greenscope.records.kinds import MAX_BATCH_BYTES

PROTOCOL_VERSION: Final = 1
MAX_MESSAGE_BYTES: Final = MAX_BATCH_BYTES + 4096
_LENGTH = struct.Struct(">I")
_CHUNK_BYTES = 64 << 10


class ProtocolError(CollectorError):
    """The other side sent something that is no message."""


@dataclass(frozen=True, slots=True)
class Hello:
    """First from an agent. `session` is what `encode_session` gave."""

    protocol_version: int
    schema_version: int
    session: bytes
    token: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to a Hello or Query that is accepted."""

    protocol_version: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer to anything that is not accepted, in words; the connection ends."""

    text: str


@dataclass(frozen=True, slots=True)
class NumberedBatch:
    """A batch of the session; numbers begin at 0 and are never used twice."""

    number: int
    batch: bytes


@dataclass(frozen=True, slots=True)
class Stored:
    """The batch of this number is stored, now or before."""

    number: int


@dataclass(frozen=True, slots=True)
class Query:
    """First from one who asks. An empty `session` asks for the list of sessions.

    Otherwise it is a session id, the unambiguous beginning of one, or "latest"; the answer is
    that session and its batches.
    """

    protocol_version: int
    schema_version: int
    session: str
    token: str


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session that the collector has: what `encode_session` gave, and how many batches."""

    session: bytes
    batches: int


@dataclass(frozen=True, slots=True)
class End:
    """The answer to a Query is complete."""


Message = Hello | Welcome | Refused | NumberedBatch | Stored | Query | StoredSession | End

# First element of a message; like the kinds of records never given another meaning.
_TYPES: Final[dict[int, type[Message]]] = {
    1: Hello,
    2: Welcome,
    3: Refused,
    4: NumberedBatch,
    5: Stored,
    6: Query,
    7: StoredSession,
    8: End,
}
_NUMBERS = {message_type: number for number, message_type in _TYPES.items()}
# Annotations are strings here, so the types of the fields are looked up by name.
_FIELD_TYPES: Final = {"int": int, "str": str, "bytes": bytes}


def pack(message: Message) -> bytes:
    """A message with its length in front."""
    payload: bytes = msgpack.packb([_NUMBERS[type(message)], *astuple(message)])
    return _LENGTH.pack(len(payload)) + payload


def _unpack(payload: bytes) -> Message:
    try:
        number, *values = msgpack.unpackb(payload)
        message_type = _TYPES[number]
        names = message_type.__dataclass_fields__
        # A newer side may say more; what it adds comes at the end.
        fields: list[Any] = values[: len(names)]
        for value, field in zip(fields, names.values(), strict=True):
            if type(value) is not _FIELD_TYPES[str(field.type)]:
                raise TypeError(f"{field.name} is no {field.type}")
            if isinstance(value, int) and value < 0:
                raise ValueError(f"{field.name} is negative")
        return message_type(*fields)
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise ProtocolError(f"no message of greenscope: {error}") from error


class MessageReader:
    """Reads messages by way of a socket's `recv`, whether it blocks or waits in gevent."""

    def __init__(self, recv: Callable[[int], bytes], max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._recv = recv
        self._max_bytes = max_bytes

    def read(self) -> Message | None:
        """The next message, None when the other side closed the connection between two.

        Raises:
            ProtocolError: what came is no message, too long, or cut.
            OSError: as the socket's recv.
        """
        header = self._exactly(_LENGTH.size, may_end=True)
        if not header:
            return None
        length_bytes = _LENGTH.unpack(header)[0]
        if not 0 < length_bytes <= self._max_bytes:
            raise ProtocolError(f"a message says to be {length_bytes} bytes long")
        return _unpack(self._exactly(length_bytes))

    def _exactly(self, size_bytes: int, may_end: bool = False) -> bytes:
        # Grows as data comes, so that a claimed length alone takes no memory.
        data = bytearray()
        while len(data) < size_bytes:
            chunk = self._recv(min(_CHUNK_BYTES, size_bytes - len(data)))
            if not chunk:
                if may_end and not data:
                    return b""
                raise ProtocolError("the connection ended within a message")
            data += chunk
        return bytes(data)
