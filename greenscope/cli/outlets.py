"""Where the records of a watch go: the report at the end, a file, a collector."""

from __future__ import annotations

import click

from greenscope.cli.options import WatchOptions


def say(options: WatchOptions, text: str) -> None:
    """Tells the user something on stderr, which --json leaves free for that; not with --quiet."""
    if not options.quiet:
        click.echo(text, err=True)
