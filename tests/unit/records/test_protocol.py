from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenscope.records.protocol import (
    End,
    Hello,
    Message,
    MessageReader,
    NumberedBatch,
    ProtocolError,
    Query,
    Refused,
    Stored,
    StoredSession,
    Welcome,
    pack,
)

MESSAGES = [
    Hello(1, 1, b"\0session", "secret"),
    Welcome(1),
    Refused("wörds"),
    NumberedBatch(2**63, bytes(range(256)) * 400),
    Stored(0),
    Query(1, 1, "", ""),
    StoredSession(b"", 3),
    End(),
]


def recv_from(data: bytes, at_once: int) -> Callable[[int], bytes]:
    left = bytearray(data)

    def recv(size: int) -> bytes:
        chunk = bytes(left[: min(size, at_once)])
        del left[: len(chunk)]
        return chunk

    return recv


@pytest.mark.parametrize("at_once", [1, 3, 1 << 20])
def test_messages_come_back_however_the_stream_is_cut(at_once: int) -> None:
    reader = MessageReader(recv_from(b"".join(map(pack, MESSAGES)), at_once))
    read: list[Message | None] = [reader.read() for _ in MESSAGES]
    assert read == MESSAGES
    assert reader.read() is None


@given(st.binary(min_size=1, max_size=100))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        MessageReader(recv_from(data, 9)).read()


def test_claimed_length_alone_takes_no_memory() -> None:
    asked = []

    def recv(size: int) -> bytes:
        asked.append(size)
        return b"" if len(asked) > 1 else b"\x00\x7f\xff\xff"

    with pytest.raises(ProtocolError, match="within a message"):
        MessageReader(recv).read()
    assert max(asked) <= 64 << 10
    with pytest.raises(ProtocolError, match="says to be"):
        MessageReader(recv_from(b"\xff\xff\xff\xff", 9)).read()


def test_fields_of_a_newer_side_are_ignored() -> None:
    newer = b"\x00\x00\x00\x05\x93\x05\x07\xa1x"
    assert MessageReader(recv_from(newer, 99)).read() == Stored(7)
