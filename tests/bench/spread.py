"""Medians with their spread: on a busy machine one figure says nothing."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some measurements, and their first and third quartile."""

    median: float
    low: float
    high: float
    count: int

    def text(self, digits: int) -> str:
        """`1.23 (1.20 to 1.31)`."""
        return f"{self.median:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"

    def document(self) -> dict[str, float]:
        """For JSON."""
        return {
            "median": self.median,
            "quartile_1": self.low,
            "quartile_3": self.high,
            "count": self.count,
        }


def spread(values: Iterable[float]) -> Spread:
    """Of at least one measurement."""
    ordered = sorted(values)
    if len(ordered) == 1:
        return Spread(ordered[0], ordered[0], ordered[0], 1)
    low, median, high = statistics.quantiles(ordered, n=4, method="inclusive")
    return Spread(median, low, high, len(ordered))
