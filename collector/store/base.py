"""The seam between the collector and its store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from greenscope.model import Record, Session


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session that is stored, and the number of its batches."""

    session: Session
    batches: int


class Store(Protocol):
    """Keeps sessions and numbered batches of records. Used from one thread at a time.

    Raises:
        CollectorError: from any method, when the store fails; nothing is half-stored then.
    """

    def add_session(self, session: Session) -> None:
        """Keeps a session unless it is known."""

    def add_batch(
        self, session_id: str, number: int, records: Sequence[Record], skipped: int = 0
    ) -> bool:
        """Keeps the records of a batch; False, and nothing is done, if it has that number.

        Once it returns, the batch outlives a kill -9. `skipped` is the number of records of
        unknown kinds that came with it.
        """

    def sessions(self) -> list[SessionRow]:
        """All sessions, the latest start first."""

    def batches(self, session_id: str) -> Iterator[tuple[int, list[Record]]]:
        """The batches of a session by number, read piece by piece as they are asked for."""

    def close(self) -> None:
        """Gives the store back, for another process to open."""
