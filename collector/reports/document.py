"""The JSON document of a report. Nothing is shortened or rounded in it. docs/reports.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from collector.reports.model import GreenletRow, Hotspot, Report, RunningRow
from collector.store.base import SessionRow
from greenscope.model import Code, Loss, Shed, Stack


def to_json(report: Report) -> dict[str, Any]:
    """The document, ready for `json.dumps`. Times are nanoseconds, instants ktime."""
    return {
        "session": _session(report),
        "hotspots": [_hotspot(spot) for spot in report.hotspots],
        "greenlets": [_greenlet(row) for row in report.greenlets],
        "running": [_running(row) for row in report.running],
        "threads": [dataclasses.asdict(row) for row in report.threads],
        "lost": _instants(report.lost),
        "shed": _instants(report.shed),
        "cost": None if report.cost is None else dataclasses.asdict(report.cost),
        "stolen_share": report.stolen_share,
        "has_hub": report.has_hub,
        "hub_children": [dataclasses.asdict(child) for child in report.hub_children],
    }


def sessions_to_json(rows: Sequence[SessionRow]) -> dict[str, Any]:
    """The document of the list of sessions."""
    return {
        "sessions": [dataclasses.asdict(row.session) | {"batches": row.batches} for row in rows]
    }


def _session(report: Report) -> dict[str, Any]:
    return dataclasses.asdict(report.session) | {
        "duration_ns": report.duration_ns,
        "ended": report.ended,
        "switches": report.switches,
        "holds": report.holds,
        "longest_hold_ns": report.longest_hold_ns,
        "unwatched_switches": report.unwatched_switches,
        "watched_share": report.watched_share,
    }


def _hotspot(spot: Hotspot) -> dict[str, Any]:
    return {
        "function": spot.function,
        "file": spot.file,
        "line": spot.line,
        "leaf": spot.leaf,
        "reason": spot.reason,
        "reasons": spot.reasons,
        "holds": spot.holds,
        "open": spot.open,
        "began_before": spot.began_before,
        "total_ns": spot.total_ns,
        "max_ns": spot.max_ns,
        "share": spot.share,
        "uncertainty_ns": spot.uncertainty_ns,
        "kinds": [{**_kind(kind), "total_ns": spent_ns} for kind, spent_ns in spot.kinds],
        "stack": _frames(spot.stack),
        "stack_status": spot.stack.status.value,
    }


def _frames(stack: Stack) -> list[dict[str, Any]]:
    return [
        {"function": frame.code.function, "file": frame.code.file, "line": frame.line}
        for frame in stack.frames
    ]


def _greenlet(row: GreenletRow) -> dict[str, Any]:
    fields = {
        field.name: getattr(row, field.name)
        for field in dataclasses.fields(row)
        if field.name != "kind"
    }
    return {**_kind(row.kind), **fields}


def _running(row: RunningRow) -> dict[str, Any]:
    return {
        **_kind(row.function),
        "kind": _kind(row.kind),
        "samples": row.samples,
        "running_ns": row.running_ns,
    }


def _kind(kind: Code | None) -> dict[str, Any]:
    return {
        "function": None if kind is None else kind.function,
        "file": None if kind is None else kind.file,
        "line": None if kind is None else kind.first_line,
    }


def _instants(rows: Sequence[Loss | Shed]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(row) for row in rows]
