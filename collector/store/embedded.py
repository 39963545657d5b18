"""The default store: ClickHouse inside of this process, by way of chdb."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

from collector.store import rows
from collector.store.base import SessionRow
from greenscope.errors import CollectorError
from greenscope.model import Record, Session, Stack

try:
    # By name, as it has no types, and an agent's environment has not got it.
    _chdb_session: Any = importlib.import_module("chdb.session")
except ImportError:
    _chdb_session = None

_DATABASE: Final = "greenscope"
# Batches read at once: what is in memory while a session is read.
_PAGE_BATCHES: Final = 64
# Which stacks are stored is remembered for about this many, then asked anew: a stack that is
# stored twice does no harm.
_MAX_KNOWN_STACKS: Final = 200_000


class EmbeddedStore:
    """A Store in a directory, which the caller has locked (`DataDirectory`).

    chdb allows one open directory in a process, and is called from one thread at a time here.

    Raises:
        CollectorError: chdb is not installed, or does not open the directory.
    """

    def __init__(self, path: Path) -> None:
        if _chdb_session is None:
            raise CollectorError(
                "the store needs chdb, which is not installed",
                "pip install 'greenscope[collector]'",
            )
        self._known_stacks: set[tuple[str, int]] = set()
        try:
            self._chdb = _chdb_session.Session(str(path))
        except RuntimeError as error:
            raise CollectorError(f"the store in {path} does not open: {error}") from error
        self._run(f"CREATE DATABASE IF NOT EXISTS {_DATABASE}")
        self._run(f"USE {_DATABASE}")
        for statement in _schema():
            self._run(statement)

    def close(self) -> None:
        """Gives the directory back."""
        self._chdb.close()

    def add_session(self, session: Session) -> None:
        """Keeps a session unless it is known."""
        if not self._count("sessions", f"session_id = {quoted(session.session_id)}"):
            row = rows.session_row(session, time.time_ns())
            self._insert("sessions", rows.as_columns(rows.SESSION_COLUMNS, [row]))

    def add_batch(
        self, session_id: str, number: int, records: Sequence[Record], skipped: int = 0
    ) -> bool:
        """Keeps a batch; False if it was there. The last INSERT is what makes it stored."""
        if self._count("records", f"session_id = {quoted(session_id)} AND number = {number:d}"):
            return False
        stack_ids = self._add_stacks(session_id, records)
        batch = rows.batch_rows(session_id, number, records, skipped, stack_ids)
        self._insert("records", rows.as_columns(rows.RECORD_COLUMNS, batch))
        return True

    def _add_stacks(self, session_id: str, records: Sequence[Record]) -> Mapping[Stack, int]:
        stack_ids: dict[Stack, int] = {}
        new: list[rows.Row] = []
        for stack in rows.stacks_in(records):
            row = rows.stack_row(session_id, stack)
            stack_ids[stack] = row["stack_id"]
            if (session_id, row["stack_id"]) not in self._known_stacks:
                new.append(row)
        if new:
            self._insert("stacks", rows.as_columns(rows.STACK_COLUMNS, new))
        if len(self._known_stacks) + len(new) > _MAX_KNOWN_STACKS:
            self._known_stacks.clear()
        self._known_stacks.update((session_id, row["stack_id"]) for row in new)
        return stack_ids

    def sessions(self) -> list[SessionRow]:
        """All sessions, the latest start first."""
        batches = dict(
            self._select(
                "SELECT session_id, count() FROM records WHERE kind = 0 GROUP BY session_id"
            )
        )
        found = self._rows("sessions", rows.SESSION_COLUMNS, "1", "start_unix_ns DESC, session_id")
        known = {row["session_id"]: rows.session_of(row) for row in found}
        return [SessionRow(s, batches.get(s.session_id, 0)) for s in known.values()]

    def batches(self, session_id: str) -> Iterator[tuple[int, list[Record]]]:
        """The batches of a session by number; a page of them is in memory."""
        mine = f"session_id = {quoted(session_id)}"
        numbers = [
            int(row[0])
            for row in self._select(
                f"SELECT number FROM records WHERE {mine} AND kind = 0 ORDER BY number"
            )
        ]
        # After the numbers: so it has all the stacks of theirs.
        stacks = {
            row["stack_id"]: rows.stack_of(row)
            for row in self._rows("stacks", rows.STACK_COLUMNS, mine, "stack_id")
        }
        for start in range(0, len(numbers), _PAGE_BATCHES):
            page = numbers[start : start + _PAGE_BATCHES]
            batches: dict[int, list[Record]] = {number: [] for number in page}
            where = f"{mine} AND number IN ({', '.join(map(str, page))})"
            for row in self._rows("records", rows.RECORD_COLUMNS, where, "number, position"):
                record = rows.record_of(row, stacks)
                if record is not None:
                    batches[row["number"]].append(record)
            yield from batches.items()

    # SQL. Table and column names are ours; values are quoted or numbers.

    def _count(self, table: str, where: str) -> int:
        return int(self._select(f"SELECT count() FROM {table} WHERE {where}")[0][0])

    def _rows(
        self, table: str, columns: Sequence[str], where: str, order: str
    ) -> Iterator[rows.Row]:
        names = ", ".join(columns)
        query = f"SELECT {names} FROM {table} WHERE {where} ORDER BY {order}"
        return (dict(zip(columns, row, strict=True)) for row in self._select(query))

    def _select(self, query: str) -> list[list[Any]]:
        settings = "SETTINGS output_format_json_quote_64bit_integers = 0"
        answer = self._run(f"{query} {settings}", "JSONCompactEachRow")
        return [json.loads(line) for line in answer.split("\n") if line]

    def _insert(self, table: str, columns: rows.Columns) -> None:
        """One block, which becomes one part: it is there as a whole or not at all."""
        names = ", ".join(columns)
        data = json.dumps(list(columns.values()), ensure_ascii=False)
        self._run(f"INSERT INTO {table} ({names}) FORMAT JSONCompactColumns {data}")

    def _run(self, query: str, output_format: str = "CSV") -> str:
        try:
            answer: bytes = self._chdb.query(query, output_format).bytes()
        except RuntimeError as error:
            raise CollectorError(f"the store failed: {str(error)[:500]}") from error
        return answer.decode("utf-8")


def quoted(text: str) -> str:
    """A text as an SQL literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0")
    return f"'{escaped}'"


def _schema() -> list[str]:
    text = resources.files("collector.store").joinpath("schema.sql").read_text("utf-8")
    lines = [line.partition("--")[0].rstrip() for line in text.splitlines()]
    statements = "\n".join(line for line in lines if line).split(";\n")
    return [statement.rstrip(";\n") for statement in statements if statement.strip()]
