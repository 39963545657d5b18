"""The options that `attach` and `run` share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from greenscope.bpf.programs import Limits
from greenscope.cli.quantities import DURATION, RING_SIZE, SHARE
from greenscope.tracer import Options


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What the user asked for. `duration_ns` None: until something else ends the watch."""

    tracing: Options
    duration_ns: int | None
    as_json: bool
    output: Path | None
    collector: str | None
    token_file: Path | None
    quiet: bool
    verbose: bool


verbose_option = click.option(
    "--verbose",
    "-v",
    is_flag=True,
    help="Show each hotspot's stack, and in which kinds of greenlets it was.",
)

_OPTIONS = (
    click.option("--duration", "-d", type=DURATION, help="Stop after this long (10s, 2m)."),
    click.option(
        "--threshold",
        "-t",
        type=DURATION,
        default="10ms",
        show_default=True,
        help="Report holds that are not shorter.",
    ),
    click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout."),
    click.option(
        "-o",
        "--output",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Keep the records in this file, for `greenscope report`.",
    ),
    click.option(
        "--collector", metavar="ADDRESS", help="Send the records too: HOST:PORT or unix:PATH."
    ),
    click.option(
        "--token-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="File with the collector's token.",
    ),
    click.option("--service", default="", help="Name of the service [default: the command]."),
    click.option(
        "--sample-hz",
        type=click.IntRange(1, 10_000),
        default=199,
        show_default=True,
        help="Samples a second while a hold lasts too long.",
    ),
    click.option(
        "--hub",
        metavar="FUNCTION",
        default="",
        help="Name of the function that hands over to greenlets, in a program without a known hub.",
    ),
    click.option(
        "--budget",
        type=SHARE,
        default="2%",
        show_default=True,
        help="What the probes may take of one CPU from the target; `none`: no limit.",
    ),
    click.option(
        "--ring-size",
        type=RING_SIZE,
        default="1m",
        show_default=True,
        help="Memory between kernel and agent; too little shows as lost events.",
    ),
    verbose_option,
    click.option("--quiet", "-q", is_flag=True, help="Say nothing but the report and errors."),
)


def watch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options to a click command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def gather(values: dict[str, Any]) -> WatchOptions:
    """The options from click's parameters."""
    return WatchOptions(
        tracing=Options(
            threshold_ns=values["threshold"],
            sample_hz=values["sample_hz"],
            service=values["service"],
            budget=values["budget"],
            hub_function=values["hub"],
            limits=Limits(event_ring_bytes=values["ring_size"]),
        ),
        duration_ns=values["duration"],
        as_json=values["as_json"],
        output=values["output"],
        collector=values["collector"],
        token_file=values["token_file"],
        quiet=values["quiet"],
        verbose=values["verbose"],
    )
