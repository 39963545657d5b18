"""The thread that owns the store, so that the gevent loop never waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from gevent.threadpool import ThreadPool  # type: ignore[import-untyped]

from collector.query import find_session
from collector.store.base import SessionRow, Store
from greenscope.errors import GreenscopeError
from greenscope.model import Record
from greenscope.records.decode import decode_batch, decode_session
from greenscope.records.encode import BatchEncoder

_T = TypeVar("_T")


class StoreWorker:
    """Runs all store work, and the decoding that precedes it, in one native thread.

    Its methods are called from greenlets, which wait while the loop goes on. Errors of the
    store and of decoding come out here.
    """

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._pool = ThreadPool(1)
        self._store = self._call(open_store)

    def close(self) -> None:
        """Closes the store after what is under way."""
        self._call(self._store.close)
        self._pool.kill()

    def add_session(self, session: bytes) -> str:
        """Keeps an encoded session; gives its id."""
        return self._call(lambda: self._add_session(session))

    def _add_session(self, session: bytes) -> str:
        decoded = decode_session(session)
        self._store.add_session(decoded)
        return decoded.session_id

    def add_batch(self, session_id: str, number: int, data: bytes) -> bool:
        """Keeps an encoded batch; False if it was there."""
        return self._call(lambda: self._add_batch(session_id, number, data))

    def _add_batch(self, session_id: str, number: int, data: bytes) -> bool:
        batch = decode_batch(data)
        return self._store.add_batch(session_id, number, batch.records, batch.skipped)

    def sessions(self) -> list[SessionRow]:
        """All sessions, the latest start first."""
        return self._call(self._store.sessions)

    def find(self, wanted: str) -> SessionRow:
        """One session."""
        return find_session(self.sessions(), wanted)

    def batches(self, session_id: str) -> Iterator[tuple[int, bytes]]:
        """The batches of a session, encoded; others get their turn between two."""
        batches = self._store.batches(session_id)
        while (found := self._call(lambda: _next_encoded(batches))) is not None:
            yield found

    def _call(self, work: Callable[[], _T]) -> _T:
        # Caught over there: what comes out of a pool's thread by itself is printed, too.
        done: _Done[_T] = self._pool.apply(_attempt, (work,))
        if done.error is not None:
            raise done.error
        return cast(_T, done.result)


@dataclass(frozen=True, slots=True)
class _Done(Generic[_T]):
    """What work gave: a result, or the error that it ended with."""

    result: _T | None
    error: GreenscopeError | None = None


def _attempt(work: Callable[[], _T]) -> _Done[_T]:
    try:
        return _Done(work())
    except GreenscopeError as error:
        return _Done(None, error)


def _next_encoded(batches: Iterator[tuple[int, list[Record]]]) -> tuple[int, bytes] | None:
    for number, records in batches:
        encoder = BatchEncoder()
        for record in records:
            encoder.add(record)
        return number, encoder.finish()
    return None
