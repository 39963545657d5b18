"""The seam between the tracer and everything that takes its records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from greenscope.model import Record


class Sink(Protocol):
    """Takes the records of one session in their order, from one thread."""

    def write(self, records: Sequence[Record]) -> None:
        """Takes records; the caller does not change them afterwards."""

    def close(self) -> None:
        """Finishes what was begun. After it nothing may be written."""


class MemorySink:
    """Keeps the records for the report at the end: about 1 KiB for each blocking hold."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, records: Sequence[Record]) -> None:
        """Keeps them."""
        self.records.extend(records)

    def close(self) -> None:
        """Keeps what there is: the report is made afterwards."""
