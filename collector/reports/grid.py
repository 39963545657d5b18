"""Aligned rows whose last column takes what is left of the width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from collector.reports.quantities import printable, shortened, shortened_place

_GAP: Final = "  "
_MIN_TAIL: Final = 20
BAR_WIDTH: Final = 8

Tail = Callable[["Fit"], Text]
"""Makes the last cell for the width that there is."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Room for a text: cells, and whether the terminal has more than ASCII."""

    width: int
    ascii_only: bool

    @property
    def dots(self) -> str:
        """What stands for something left out."""
        return ".." if self.ascii_only else "…"


@dataclass(frozen=True, slots=True)
class Row:
    """Cells that are aligned to the right, the tail, and indented lines below."""

    cells: Sequence[str]
    tail: Tail
    below: Sequence[Tail] = ()


def print_grid(console: Console, headers: Sequence[str], rows: Sequence[Row]) -> None:
    """Prints rows under headers; the last header is the tail's. No line is too wide."""
    widths = [
        max(cell_len(cell) for cell in column)
        for column in zip(headers, *(row.cells for row in rows), strict=False)
    ]
    taken = sum(widths) + len(_GAP) * len(widths)
    fit = Fit(max(_MIN_TAIL, console.width - taken), console.options.ascii_only)
    _print(console, _aligned(headers[:-1], widths) + headers[-1], style="dim")
    for row in rows:
        line = Text(_aligned(row.cells, widths))
        _print(console, line.append_text(row.tail(fit)))
        indent = widths[0] + len(_GAP)
        for tail in row.below:
            below = tail(Fit(console.width - indent, fit.ascii_only))
            _print(console, Text(" " * indent).append_text(below))


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(
        " " * (width - cell_len(cell)) + cell + _GAP
        for cell, width in zip(cells, widths, strict=True)
    )


def _print(console: Console, text: str | Text, style: str = "") -> None:
    # Python's own output may wrap lines, but rich's would break them at blanks.
    text = text if isinstance(text, Text) else Text(text, style=style)
    console.print(text, highlight=False, no_wrap=True, overflow="crop", soft_wrap=False)


def code_tail(function: str, file: str, line: int) -> Tail:
    """`function  file:line`; the place is shortened, then left out, before the name is."""

    def tail(fit: Fit) -> Text:
        name = shortened(printable(function), fit.width, fit.dots)
        left = fit.width - cell_len(name) - len(_GAP)
        where = shortened_place(printable(file), line, left, fit.dots)
        return Text(name + _GAP + where if file and cell_len(where) <= left else name)

    return tail


def place_tail(file: str, line: int, after: str) -> Tail:
    """`file:line  after`, the path without its middle where both are too long."""

    def tail(fit: Fit) -> Text:
        if not file:
            return Text(shortened(printable(after), fit.width, fit.dots))
        left = fit.width - cell_len(printable(after)) - len(_GAP)
        where = shortened_place(printable(file), line, left, fit.dots)
        return Text(shortened(where + _GAP + printable(after), fit.width, fit.dots))

    return tail


def text_tail(text: str, style: str = "") -> Tail:
    """A text without its middle where it is too long."""
    return lambda fit: Text(shortened(printable(text), fit.width, fit.dots), style=style)


def bar(part: float, ascii_only: bool) -> str:
    """A bar for a part of 1, always BAR_WIDTH wide; something is seen even of a small part."""
    if ascii_only:
        return ("#" * max(1, round(part * BAR_WIDTH))).ljust(BAR_WIDTH)
    eighths = max(1, round(part * BAR_WIDTH * 8))
    return ("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()).ljust(BAR_WIDTH)
