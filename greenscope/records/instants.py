"""Which instants records know of."""

from __future__ import annotations

from greenscope.model import AgentCost, Hold, Loss, Record, SessionEnd, Shed, StolenTime


def latest_ktime_ns(record: Record) -> int:
    """The latest instant that a record knows of; 0 if it knows none."""
    match record:
        case Hold():
            return record.start_ktime_ns + record.duration_ns
        case Loss() | Shed() | AgentCost() | StolenTime():
            return record.to_ktime_ns
        case SessionEnd():
            return record.end_ktime_ns
        case _:
            return 0
