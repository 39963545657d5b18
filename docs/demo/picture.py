"""Draws the report of a recording as it looks in a terminal: picture.py RECORDING OUT.svg."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from collector.reports.build import build_report
from collector.reports.text import render
from greenscope.records.recording import RecordingReader

WIDTH = 80
FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main(recording: Path, picture: Path) -> None:
    """Writes the SVG."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with RecordingReader(recording) as reader:
        render(build_report(reader.session, reader), console)
    svg = console.export_svg(title="greenscope attach PID")
    # rich's template fetches its font from the network; any monospaced one will do.
    picture.write_text(FONT_FACE.sub("", svg), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
