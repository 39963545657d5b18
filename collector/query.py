"""Reading sessions back: from a store, or from the collector that has it open."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from collector.store.base import SessionRow, Store
from collector.store.directory import DataDirectory, DirectoryInUse
from collector.store.embedded import EmbeddedStore
from greenscope.errors import CollectorError
from greenscope.model import Record, Session
from greenscope.records.address import Address, connect, parse_address
from greenscope.records.decode import decode_batch, decode_session
from greenscope.records.kinds import SCHEMA_VERSION
from greenscope.records.protocol import (
    PROTOCOL_VERSION,
    End,
    Message,
    MessageReader,
    NumberedBatch,
    ProtocolError,
    Query,
    Refused,
    StoredSession,
    Welcome,
    pack,
)

LATEST = "latest"
_ANSWER_TIMEOUT_S = 60.0


class Source(Protocol):
    """What reports are made from."""

    def sessions(self) -> Sequence[SessionRow]:
        """All sessions, the latest start first."""

    def session(self, wanted: str) -> tuple[Session, Iterable[Record]]:
        """A session (id, the beginning of one, or "latest") and its records in their order."""


def find_session(sessions: Sequence[SessionRow], wanted: str) -> SessionRow:
    """The session that is meant.

    Raises:
        CollectorError: none or several fit.
    """
    if not sessions:
        raise CollectorError(
            "no session is stored yet", "Send one with `greenscope attach PID --collector ADDRESS`."
        )
    if wanted == LATEST:
        return sessions[0]
    found = [row for row in sessions if row.session.session_id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    number = "no session" if not found else f"{len(found)} sessions"
    raise CollectorError(
        f"{number} with an id that begins with {wanted!r}",
        "`greenscope-collector report sessions` lists them.",
    )


class StoreSource:
    """A store that is open in this process."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def sessions(self) -> Sequence[SessionRow]:
        """All sessions, the latest start first."""
        return self._store.sessions()

    def session(self, wanted: str) -> tuple[Session, Iterable[Record]]:
        """A session and its records; they are read as they are iterated over."""
        found = find_session(self._store.sessions(), wanted).session
        batches = self._store.batches(found.session_id)
        return found, (record for _, records in batches for record in records)


class RemoteSource:
    """A collector that runs, asked over its socket."""

    def __init__(self, address: Address, token: str = "") -> None:
        self._address = address
        self._token = token

    def sessions(self) -> Sequence[SessionRow]:
        """All sessions, the latest start first."""
        return [
            SessionRow(decode_session(message.session), message.batches)
            for message in self._ask("")
            if isinstance(message, StoredSession)
        ]

    def session(self, wanted: str) -> tuple[Session, Iterable[Record]]:
        """A session and its records; they are received as they are iterated over."""
        answer = self._ask(wanted)
        first = next(answer, None)
        if not isinstance(first, StoredSession):
            raise ProtocolError(f"the collector at {self._address} answers with no session")
        return decode_session(first.session), _records(answer)

    def _ask(self, session: str) -> Iterator[Message]:
        query = Query(PROTOCOL_VERSION, SCHEMA_VERSION, session, self._token)
        with connect(self._address, _ANSWER_TIMEOUT_S) as connection:
            reader = MessageReader(connection.recv)
            try:
                connection.sendall(pack(query))
                while not isinstance(message := reader.read(), End):
                    if message is None:
                        raise ProtocolError(f"the collector at {self._address} hung up")
                    if isinstance(message, Refused):
                        raise CollectorError(
                            f"the collector at {self._address} refuses: {message.text}"
                        )
                    if not isinstance(message, Welcome):
                        yield message
            except OSError as error:
                raise CollectorError(
                    f"the collector at {self._address} does not answer: {error}"
                ) from error


def _records(answer: Iterator[Message]) -> Iterator[Record]:
    for message in answer:
        if isinstance(message, NumberedBatch):
            yield from decode_batch(message.batch).records


@contextlib.contextmanager
def open_source(data: Path, collector: Address | None, token: str) -> Iterator[Source]:
    """The named collector; else the data directory, or the collector that has it open.

    Raises:
        CollectorError: neither can be read; the hint says what to do.
    """
    if collector is not None:
        yield RemoteSource(collector, token)
        return
    try:
        directory = DataDirectory(data, create=False)
    except DirectoryInUse as error:
        if not error.address:
            raise
        yield RemoteSource(parse_address(error.address), token)
        return
    with contextlib.closing(directory), contextlib.closing(EmbeddedStore(directory.path)) as store:
        yield StoreSource(store)
