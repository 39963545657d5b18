"""What a bench found: shown as a table, written as JSON, put into docs/overhead.md."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rich.table
from rich.console import Console

from greenscope.errors import GreenscopeError
from tests.bench.child import leave_target_cpu
from tests.bench.machine import Machine, this_machine

DOCS = Path(__file__).resolve().parents[2] / "docs" / "overhead.md"


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are text already; the first column is a name, the others are figures."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Aim:
    """What one figure should be: at most `limit`, or at least where `at_least`.

    Nothing is said of a figure whose `noise` (between its quartiles) is beyond `resolution`.
    """

    what: str
    limit: float
    measured: float
    unit: str = ""
    at_least: bool = False
    noise: float = 0.0
    resolution: float = math.inf

    @property
    def verdict(self) -> str:
        """In a word, for the table."""
        if self.noise > self.resolution:
            return "not decided: noise"
        return "met" if self.met else "**missed**"

    @property
    def met(self) -> bool:
        """Whether the figure is within the limit."""
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit


@dataclass(frozen=True, slots=True)
class Result:
    """All that one bench found; `figures` is what goes into JSON."""

    name: str
    tables: tuple[Table, ...]
    aims: tuple[Aim, ...]
    figures: dict[str, Any]

    def all_tables(self) -> tuple[Table, ...]:
        """The tables, and one of the aims."""
        if not self.aims:
            return self.tables
        rows = tuple(
            (
                aim.what,
                f"{'>=' if aim.at_least else '<='} {aim.limit:.10g}{aim.unit}",
                f"{aim.measured:.3f}{aim.unit}",
                aim.verdict,
            )
            for aim in self.aims
        )
        return (*self.tables, Table("Aims", ("what", "aim", "measured", ""), rows))


def run(name: str, measure: Callable[[bool], Result]) -> int:
    """The command line of one bench; `measure` is told whether to be quick. Gives the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.bench.bench_{name}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: does it work at all?")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write a document, too")
    parser.add_argument("--write-docs", action="store_true", help=f"refresh {DOCS.name}")
    options = parser.parse_args()
    leave_target_cpu()
    machine = this_machine()
    try:
        result = measure(options.quick)
    except GreenscopeError as error:
        print(f"{error}\n{error.hint}", file=sys.stderr)
        return error.exit_code
    show(result, Console())
    if options.json:
        options.json.write_text(json.dumps(document(result, machine), indent=1) + "\n")
    if options.write_docs:
        write_docs(DOCS, result, machine, options.quick)
    return 0


def show(result: Result, console: Console) -> None:
    """Prints every table."""
    for table in result.all_tables():
        shown = rich.table.Table(title=table.title, title_justify="left")
        for number, column in enumerate(table.columns):
            shown.add_column(column, justify="right" if number else "left")
        for row in table.rows:
            shown.add_row(*(cell.replace("**", "") for cell in row))
        console.print(shown)


def document(result: Result, machine: Machine) -> dict[str, Any]:
    """The result as JSON."""
    aims = [
        {
            "what": aim.what,
            "limit": aim.limit,
            "at_least": aim.at_least,
            "measured": aim.measured,
            "verdict": aim.verdict.strip("*"),
        }
        for aim in result.aims
    ]
    return {
        "bench": result.name,
        "machine": machine.document(),
        "figures": result.figures,
        "aims": aims,
    }


def write_docs(path: Path, result: Result, machine: Machine, quick: bool) -> None:
    """Replaces what stands between the two markers of this bench."""
    begin, end = f"<!-- bench:{result.name} -->", f"<!-- end:{result.name} -->"
    before, found, rest = path.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"{path} has no {begin} ... {end}")
    made = f"{machine.text()}{' Few rounds (--quick): rough.' if quick else ''}"
    parts = [made, *(markdown(table) for table in result.all_tables())]
    body = "\n\n".join(parts)
    path.write_text(f"{before}{begin}\n{body}\n{end}{after}")


def markdown(table: Table) -> str:
    """The table as docs/ shows it."""
    ruler = ("---", *("---:" for _ in table.columns[1:]))
    lines = [_line(table.columns), _line(ruler), *map(_line, table.rows)]
    return f"*{table.title}*\n\n" + "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
