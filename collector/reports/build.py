"""Summing records up into a Report, whatever they come from: memory, a file, a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from collector.reports.blame import Blame, Charge, Detail, charges_of
from collector.reports.model import Cost, GreenletRow, Hotspot, Report, RunningRow, ThreadRow
from greenscope.model import (
    AgentCost,
    Code,
    GreenletTotals,
    Hold,
    HubProcess,
    Loss,
    Reason,
    Record,
    RunningTotals,
    Session,
    SessionEnd,
    Shed,
    Stack,
    StolenTime,
    ThreadTotals,
)
from greenscope.records.instants import latest_ktime_ns

_T = TypeVar("_T")


def build_report(session: Session, records: Iterable[Record]) -> Report:
    """The report of a session from its records, in the order in which they were made.

    Memory: as ReportBuilder's.
    """
    builder = ReportBuilder(session)
    for record in records:
        builder.take(record)
    return builder.report()


@dataclass(slots=True)
class _Spot:
    """A hotspot in the making."""

    holds: int = 0
    open: int = 0
    began_before: int = 0
    total_ns: int = 0
    max_ns: int = 0
    uncertainty_ns: int = 0
    reasons: dict[Reason, int] = field(default_factory=dict)
    details: dict[Detail, int] = field(default_factory=dict)
    kinds: dict[Code | None, int] = field(default_factory=dict)

    def add(self, hold: Hold, charge: Charge) -> None:
        """One hold in which it appears."""
        self.holds += 1
        self.open += hold.is_open
        self.began_before += hold.began_before
        self.total_ns += charge.total_ns
        self.max_ns = max(self.max_ns, charge.total_ns)
        self.uncertainty_ns += min(hold.uncertainty_ns, charge.total_ns)
        self.kinds[hold.kind] = self.kinds.get(hold.kind, 0) + charge.total_ns
        for reason, spent_ns in charge.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + spent_ns
        for detail, spent_ns in charge.details.items():
            self.details[detail] = self.details.get(detail, 0) + spent_ns


class ReportBuilder:
    """Sums up one session's records as they come, in the order in which they were made.

    Memory: one entry per hotspot, greenlet kind, thread and distinct stack, not per record.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._latest_ns = session.start_ktime_ns
        self._end: SessionEnd | None = None
        self._holds = 0
        self._longest_hold_ns = 0
        self._spots: dict[Blame, _Spot] = {}
        self._greenlets: dict[tuple[Code | None, bool], GreenletRow] = {}
        # Alive is no increment: the last figure of each thread counts.
        self._alive: dict[tuple[Code | None, bool], dict[int, int]] = {}
        self._threads: dict[int, ThreadRow] = {}
        self._running: dict[tuple[Code | None, Code | None], RunningRow] = {}
        self._lost: dict[str, Loss] = {}
        self._shed: dict[tuple[str, str], Shed] = {}
        self._cost: Cost | None = None
        self._stolen_ns = self._cpus_ns = 0
        self._hub_children: list[HubProcess] = []

    def take(self, record: Record) -> None:
        """One record."""
        self._latest_ns = max(self._latest_ns, latest_ktime_ns(record))
        match record:
            case Hold():
                self._hold(record)
            case GreenletTotals():
                self._greenlet_totals(record)
            case ThreadTotals():
                self._thread_totals(record)
            case RunningTotals():
                self._running_totals(record)
            case SessionEnd():
                self._end = record
            case _:
                self._take_of_watch(record)

    def _take_of_watch(self, record: Record) -> None:
        """One that tells of the watch itself, not of the target."""
        match record:
            case Loss():
                self._loss(record)
            case Shed():
                self._shedding(record)
            case AgentCost():
                self._agent_cost(record)
            case StolenTime():
                self._stolen_ns += record.stolen_ns
                self._cpus_ns += record.cpus * (record.to_ktime_ns - record.from_ktime_ns)
            case HubProcess():
                self._hub_children.append(record)

    def _hold(self, hold: Hold) -> None:
        self._holds += 1
        self._longest_hold_ns = max(self._longest_hold_ns, hold.duration_ns)
        for blame, charge in charges_of(hold, self._session.threshold_ns).items():
            self._spots.setdefault(blame, _Spot()).add(hold, charge)

    def _greenlet_totals(self, totals: GreenletTotals) -> None:
        key = totals.kind, totals.is_hub
        row = self._greenlets.get(key) or GreenletRow(*key, 0, 0, 0, 0, 0, 0, 0)
        alive = self._alive.setdefault(key, {})
        alive[totals.tid] = totals.alive
        self._greenlets[key] = replace(
            row,
            seen=row.seen + totals.seen,
            ended=row.ended + totals.ended,
            alive=sum(alive.values()),
            switches=row.switches + totals.switches,
            running_ns=row.running_ns + totals.running_ns,
            waiting_ns=row.waiting_ns + totals.waiting_ns,
            longest_hold_ns=max(row.longest_hold_ns, totals.longest_hold_ns),
        )

    def _thread_totals(self, totals: ThreadTotals) -> None:
        row = self._threads.get(totals.tid)
        if row is None:
            row = ThreadRow(totals.tid, totals.name, False, 0, 0, 0, 0, 0, 0)
        self._threads[totals.tid] = replace(
            row,
            name=totals.name,
            has_hub=row.has_hub or totals.has_hub,
            switches=row.switches + totals.switches,
            holds=row.holds + totals.holds,
            holding_ns=row.holding_ns + totals.holding_ns,
            hub_ns=row.hub_ns + totals.hub_ns,
            idle_ns=row.idle_ns + totals.idle_ns,
            longest_hold_ns=max(row.longest_hold_ns, totals.longest_hold_ns),
            unwatched_ns=row.unwatched_ns + totals.unwatched_ns,
            unwatched_switches=row.unwatched_switches + totals.unwatched_switches,
        )

    def _running_totals(self, totals: RunningTotals) -> None:
        key = totals.function, totals.kind
        row = self._running.get(key) or RunningRow(*key, 0, 0)
        self._running[key] = replace(
            row,
            samples=row.samples + totals.samples,
            running_ns=row.running_ns + totals.running_ns,
        )

    def _agent_cost(self, cost: AgentCost) -> None:
        before = self._cost or Cost()
        self._cost = Cost(
            agent_cpu_ns=before.agent_cpu_ns + cost.cpu_ns,
            agent_rss_bytes=max(before.agent_rss_bytes, cost.rss_bytes),
            hits=before.hits + cost.hits,
            target_ns=before.target_ns + cost.cost_ns,
            budget_ns=before.budget_ns + cost.budget_ns,
        )

    def _loss(self, loss: Loss) -> None:
        before = self._lost.get(loss.what, Loss(loss.what, 0, loss.from_ktime_ns, 0))
        self._lost[loss.what] = Loss(
            loss.what,
            before.count + loss.count,
            min(before.from_ktime_ns, loss.from_ktime_ns),
            max(before.to_ktime_ns, loss.to_ktime_ns),
        )

    def _shedding(self, shed: Shed) -> None:
        before = self._shed.get((shed.what, shed.why), shed)
        self._shed[shed.what, shed.why] = replace(
            shed,
            from_ktime_ns=min(before.from_ktime_ns, shed.from_ktime_ns),
            to_ktime_ns=max(before.to_ktime_ns, shed.to_ktime_ns),
        )

    def report(self) -> Report:
        """The sums so far."""
        duration_ns = self._duration_ns()
        spots = [_hotspot(blame, spot, duration_ns) for blame, spot in self._spots.items()]
        watched_share = self._watched_share()
        unwatched = sum(row.unwatched_switches for row in self._threads.values())
        return Report(
            session=self._session,
            duration_ns=duration_ns,
            ended=self._end.why if self._end else None,
            switches=unwatched + sum(row.switches for row in self._threads.values()),
            holds=self._holds,
            longest_hold_ns=self._longest_of_hubs_ns(),
            hotspots=tuple(sorted(spots, key=_hotspot_order)),
            greenlets=tuple(
                replace(row, estimated_running_ns=round(row.running_ns / watched_share))
                for row in sorted(self._greenlets.values(), key=_greenlet_order)
            ),
            threads=tuple(sorted(self._threads.values(), key=lambda row: (-row.switches, row.tid))),
            lost=tuple(sorted(self._lost.values(), key=lambda loss: loss.what)),
            shed=tuple(sorted(self._shed.values(), key=lambda shed: (shed.what, shed.why))),
            cost=self._cost,
            stolen_share=self._stolen_ns / self._cpus_ns if self._cpus_ns else 0.0,
            hub_children=tuple(self._hub_children),
            unwatched_switches=unwatched,
            watched_share=watched_share,
            running=tuple(sorted(self._running.values(), key=_running_order)),
        )

    def _watched_share(self) -> float:
        threads = self._threads.values()
        seen_ns = sum(row.holding_ns + row.hub_ns for row in threads if row.has_hub)
        unseen_ns = sum(row.unwatched_ns for row in threads if row.has_hub)
        return seen_ns / (seen_ns + unseen_ns) if seen_ns and unseen_ns else 1.0

    def _longest_of_hubs_ns(self) -> int:
        # Where no hub is, a hold blocks nobody: a worker thread's greenlet never leaves.
        known = (row.longest_hold_ns for row in self._threads.values() if row.has_hub)
        return max(self._longest_hold_ns, *known, 0)

    def _duration_ns(self) -> int:
        start_ns = self._session.start_ktime_ns
        if self._end is not None:
            return max(0, self._end.end_ktime_ns - start_ns)
        # Without an end: as far as anything is known. A thread's four times are all its time.
        known = (
            row.holding_ns + row.hub_ns + row.idle_ns + row.unwatched_ns
            for row in self._threads.values()
        )
        return max(self._latest_ns - start_ns, *known, 0)


def _hotspot(blame: Blame, spot: _Spot, duration_ns: int) -> Hotspot:
    lines: dict[int, int] = {}
    stacks: dict[Stack, int] = {}
    leaves: dict[tuple[str, str], int] = {}
    for detail, spent_ns in spot.details.items():
        lines[detail.line] = lines.get(detail.line, 0) + spent_ns
        stacks[detail.stack] = stacks.get(detail.stack, 0) + spent_ns
        leaf = _leaf(detail.stack)
        leaves[leaf] = leaves.get(leaf, 0) + spent_ns
    leaf_function, leaf_text = _most(leaves)
    return Hotspot(
        function=blame.function,
        file=blame.file,
        line=blame.line or _most(lines),
        leaf=leaf_text,
        leaf_function=leaf_function,
        reason=blame.reason,
        reasons=dict(sorted(spot.reasons.items(), key=lambda item: (-item[1], item[0]))),
        holds=spot.holds,
        open=spot.open,
        began_before=spot.began_before,
        total_ns=spot.total_ns,
        max_ns=spot.max_ns,
        share=spot.total_ns / duration_ns if duration_ns else 0.0,
        stack=_most(stacks),
        uncertainty_ns=spot.uncertainty_ns,
        kinds=tuple(sorted(spot.kinds.items(), key=lambda item: (-item[1], repr(item[0])))),
    )


def _leaf(stack: Stack) -> tuple[str, str]:
    if not stack.frames:
        return "", ""
    frame = stack.frames[0]
    return frame.code.function, f"{frame.code.function} {frame.code.file}:{frame.line}"


def _most(sums: Mapping[_T, int]) -> _T:
    """The key with the most; among equals the same one whatever their order was."""
    most = max(sums.values())
    return min((key for key, value in sums.items() if value == most), key=repr)


def _hotspot_order(spot: Hotspot) -> tuple[int, str, str, str, int]:
    return -spot.total_ns, spot.function, spot.file, spot.reason, spot.line


def _greenlet_order(row: GreenletRow) -> tuple[int, str, str, int, bool]:
    kind = row.kind
    names = ("", "", 0) if kind is None else (kind.function, kind.file, kind.first_line)
    return -row.running_ns, *names, row.is_hub


def _running_order(row: RunningRow) -> tuple[int, str, str]:
    return -row.running_ns, repr(row.function), repr(row.kind)
