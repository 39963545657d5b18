"""`greenscope report FILE`: print the report of a recording again."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from collector.reports.build import build_report
from collector.reports.document import to_json
from collector.reports.text import render
from greenscope.cli.options import verbose_option
from greenscope.records.recording import RecordingReader


@click.command(short_help="Print a recording's report.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@verbose_option
def report(file: Path, as_json: bool, verbose: bool) -> None:
    """Print what a recording (`greenscope attach PID -o FILE`) tells.

    A recording whose end is missing is reported as far as it goes.
    """
    with RecordingReader(file) as reader:
        found = build_report(reader.session, reader)
        if reader.tail_cut:
            click.echo(f"{file}: the end is missing; this is what is before it", err=True)
    if as_json:
        click.echo(json.dumps(to_json(found)))
    else:
        render(found, Console(), verbose=verbose)
