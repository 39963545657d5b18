"""Draws the report of a recording as it looks in a terminal: picture.py RECORDING OUT.svg."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from rich.console import Console

from collector.reports.build import build_report
from collector.reports.text import render
from greenscope.records.recording import RecordingReader

WIDTH = 80


def main(recording: Path, picture: Path) -> None:
    """Writes the SVG."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with RecordingReader(recording) as reader:
        render(build_report(reader.session, reader), console)
    console.save_svg(str(picture), title="greenscope attach PID")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
