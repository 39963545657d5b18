"""Where the records of a watch go: the report at the end, a file, a collector."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import click
from rich.console import Console

from collector.config import read_token
from collector.reports.build import ReportBuilder
from collector.reports.document import to_json
from collector.reports.text import render
from greenscope.cli.options import WatchOptions
from greenscope.model import Record, Session
from greenscope.records.address import parse_address
from greenscope.ship.collector import CollectorSink
from greenscope.ship.recording import RecordingSink
from greenscope.ship.sink import Sink


def say(options: WatchOptions, text: str) -> None:
    """Tells the user something on stderr, which --json leaves free for that; not with --quiet."""
    if not options.quiet:
        click.echo(text, err=True)


class ReportSink:
    """Sums the records up for the report; its memory does not grow with the watch."""

    def __init__(self, session: Session) -> None:
        self.builder = ReportBuilder(session)

    def write(self, records: Sequence[Record]) -> None:
        """Adds them."""
        for record in records:
            self.builder.take(record)

    def close(self) -> None:
        """Keeps the sums: the report is made afterwards."""


class Outlets:
    """The sinks of one watch, opened before it begins, so that a bad path is said in time.

    A context manager; after it `report()` prints what the records told.

    Raises:
        RecordingError: the file cannot be written.
        CollectorError: the collector does not answer or refuses.
    """

    def __init__(self, options: WatchOptions, session: Session) -> None:
        self._options = options
        self._session = session
        self._sums = ReportSink(session)
        self._collector: CollectorSink | None = None
        self._stack = contextlib.ExitStack()
        self.sinks: list[Sink] = [self._sums]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opening:
            if self._options.output:
                self._add(opening, RecordingSink(self._options.output, self._session))
            if self._options.collector:
                self._add(opening, self._connect(self._options.collector))
            self._stack = opening.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _add(self, stack: contextlib.ExitStack, sink: Sink) -> None:
        stack.callback(sink.close)
        self.sinks.append(sink)

    def _connect(self, address: str) -> CollectorSink:
        token = read_token(self._options.token_file)
        self._collector = CollectorSink(parse_address(address), self._session, token)
        self._collector.connect_or_fail()
        return self._collector

    def report(self) -> None:
        """Prints the report to stdout, as text or as one JSON document."""
        missing = self._collector.unacknowledged if self._collector else 0
        if missing:
            click.echo(f"the collector did not confirm the last {missing} batches", err=True)
        report = self._sums.builder.report()
        if self._options.as_json:
            json.dump(to_json(report), sys.stdout)
            sys.stdout.write("\n")
        else:
            render(report, Console(), verbose=self._options.verbose)
