"""Durations, sizes and shares on the command line: 10ms, 1.5s, 64k, 2%."""

from __future__ import annotations

import re
from typing import Any

import click

_NUMBER = r"(\d+(?:\.\d+)?)"
_DURATION = re.compile(_NUMBER + r"\s*(ns|us|ms|s|m|h)?")
_SIZE = re.compile(_NUMBER + r"\s*([kKmM]?)(?:i?[bB])?")
_PERCENT = re.compile(_NUMBER + r"\s*%")
_NS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
SMALLEST_SHARE = 0.001
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20}


class Duration(click.ParamType[int]):
    """Nanoseconds; a number without a unit is in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """From text like 10ms."""
        if isinstance(value, int):
            return value
        match = _DURATION.fullmatch(str(value).strip())
        if not match:
            self.fail(f"{value!r} is no duration; write for example 10ms, 2s or 1.5m", param, ctx)
        duration_ns = int(float(match[1]) * _NS[match[2] or "s"])
        if duration_ns <= 0:
            self.fail("a duration must be more than nothing", param, ctx)
        return duration_ns


class RingSize(click.ParamType[int]):
    """Bytes of a ring buffer: a power of two, at least a page."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """From text like 64k."""
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value).strip())
        size = int(float(match[1]) * _BYTES[match[2].lower()]) if match else 0
        if size < 4096 or size > 1 << 28 or size & (size - 1):
            self.fail(f"{value!r} is no power of two from 4k to 256m", param, ctx)
        return size


class Share(click.ParamType["float | None"]):
    """A part of the whole, None for no limit: 0.02 for 2%."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | None:
        """From text like 2%; a percent sign is needed, as 2 might also mean twice."""
        if isinstance(value, float):
            return value
        text = str(value).strip().lower()
        if text == "none":
            return None
        match = _PERCENT.fullmatch(text)
        if not match:
            self.fail(f"{value!r} is no share; write for example 2%, 0.5% or none", param, ctx)
        share = float(match[1]) / 100
        if not SMALLEST_SHARE <= share <= 1:
            self.fail("a share goes from 0.1% to 100%; `none` is no limit", param, ctx)
        return share


DURATION = Duration()
RING_SIZE = RingSize()
SHARE = Share()
