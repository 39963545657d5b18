"""The list of stored sessions as text."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from rich.console import Console

from collector.reports.grid import Row, print_grid, text_tail
from collector.reports.text import session_title
from collector.store.base import SessionRow

_SHORT_ID = 12


def render_sessions(sessions: Sequence[SessionRow], console: Console) -> None:
    """Prints a line for each session, in their order."""
    if not sessions:
        console.print("No session is stored yet.", highlight=False)
        return
    rows = [
        Row(
            (
                row.session.session_id[:_SHORT_ID],
                _instant(row.session.start_unix_ns),
                f"{row.batches:,}",
            ),
            text_tail(session_title(row.session)),
        )
        for row in sessions
    ]
    print_grid(console, ("session", "started (UTC)", "batches", "process"), rows)


def _instant(unix_ns: int) -> str:
    seconds = dt.timedelta(seconds=unix_ns // 1_000_000_000)
    instant = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + seconds
    return f"{instant:%Y-%m-%d %H:%M:%S}"
