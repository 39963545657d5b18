"""Reports as text: for a terminal, a log, a pipe; readable without colour and 80 wide."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import PurePath
from typing import Final

from rich.console import Console
from rich.text import Text

from collector.reports.grid import Row, Tail, bar, code_tail, place_tail, print_grid, text_tail
from collector.reports.model import Cost, GreenletRow, Hotspot, Report, ThreadRow
from collector.reports.quantities import (
    count,
    duration,
    percent,
    printable,
    reason_in_words,
    round_duration,
)
from greenscope.model import Code, Loss, Session, Shed

MAX_ROWS: Final = 30
MAX_RUNNING: Final = 10
MAX_KINDS: Final = 10
MAX_FRAMES: Final = 20
STOLEN_TOLD: Final = 0.01  # part of the machine's CPU time
PARTS: Final = ("hotspots", "running", "greenlets", "threads")
_ENDED: Final = {
    "detached": "stopped by the user",
    "duration": "its time was over",
    "exited": "the process ended",
    "failed": "the watch failed",
}


def render(
    report: Report, console: Console, parts: Collection[str] = PARTS, verbose: bool = False
) -> None:
    """Prints a report: its head, the parts that are asked for, what was lost or shed, the cost.

    `verbose` adds to each hotspot the kinds of greenlets that it appears in, and its stack.
    """
    printers: dict[str, Callable[[Report, Console], None]] = {
        "hotspots": partial(_print_hotspots, verbose=verbose),
        "running": _print_running,
        "greenlets": _print_greenlets,
        "threads": _print_threads,
    }
    _print_head(report, console)
    for part in PARTS:
        if part in parts:
            printers[part](report, console)
    _print_missing(report, console)
    _print_costs(report, console)


def render_text(report: Report, width: int = 80) -> str:
    """The whole report as plain text of a given width."""
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    with console.capture() as capture:
        render(report, console)
    return capture.get()


def _print_hotspots(report: Report, console: Console, verbose: bool) -> None:
    # One sentence if no hold was long enough.
    console.print()
    threshold = round_duration(report.session.threshold_ns)
    if not report.has_hub:
        _say_no_hub(report, console)
        return
    if not report.hotspots:
        _say(
            console,
            f"No hold reached {threshold}: {_all_switches(report)}, "
            f"the longest hold was {duration(report.longest_hold_ns)}.",
        )
        return
    _title(console, "HOTSPOTS", f"code that held the hub for {threshold} or more")
    largest_ns = max(1, report.hotspots[0].total_ns)
    ascii_only = console.options.ascii_only
    rows = [
        Row(
            (
                percent(spot.share),
                bar(spot.total_ns / largest_ns, ascii_only),
                duration(spot.total_ns),
                duration(spot.max_ns),
                f"{spot.holds:,}",
            ),
            text_tail(spot.function, "bold"),
            (_below(spot), *(_more_below(spot) if verbose else ())),
        )
        for spot in report.hotspots[:MAX_ROWS]
    ]
    print_grid(console, ("share", "", "total", "longest", "holds", "function"), rows)
    _say_rest(console, len(report.hotspots), "hotspots")


def _say_no_hub(report: Report, console: Console) -> None:
    text = "No hub was seen in this process, so nothing can be called blocked."
    longest = max(report.greenlets, key=lambda row: row.longest_hold_ns, default=None)
    if longest is not None and longest.longest_hold_ns:
        name = "" if longest.kind is None else f", by {longest.kind.function}"
        text += f" The longest run without a switch: {duration(longest.longest_hold_ns)}{name}."
    children = report.hub_children
    if report.switches and not children:
        text += " If it has one of its own, name its function with --hub."
    _say(console, text)
    if children:
        named = ", ".join(f"{child.pid} ({child.command})" for child in children)
        runs, one = ("runs", "that one") if len(children) == 1 else ("run", "one of them")
        _say(console, f"{len(children)} of its children {runs} a hub: {named}; attach to {one}.")


def _below(spot: Hotspot) -> Tail:
    """What a hotspot's second line says: where, why, what is special, the innermost function."""
    special = ["at least"] if spot.began_before else []
    if spot.uncertainty_ns:
        special.append(f"give or take {duration(spot.uncertainty_ns)}")
    if spot.open:
        which = "" if spot.open == spot.holds else f"{spot.open:,} "
        special.append(f"{which}still going on")
    text = reason_in_words(spot.reason)
    if special:
        text += f" ({', '.join(special)})"
    if spot.leaf and spot.leaf_function != spot.function:
        place = PurePath(spot.leaf.removeprefix(f"{spot.leaf_function} ")).name
        text += f", in {spot.leaf_function} ({place})"
    return place_tail(spot.file, spot.line, text)


def _more_below(spot: Hotspot) -> Iterator[Tail]:
    """By whom: the kinds of greenlets, and the stack with the most time, innermost first."""
    for kind, spent_ns in spot.kinds[:MAX_KINDS]:
        place = ("", 0) if kind is None else (kind.file, kind.first_line)
        name = "(kind not known)" if kind is None else kind.function
        yield code_tail(f"  {duration(spent_ns)} in {name}", *place)
    for frame in spot.stack.frames[:MAX_FRAMES]:
        yield code_tail(f"    {frame.code.function}", frame.code.file, frame.line)


def _print_running(report: Report, console: Console) -> None:
    if not report.running:
        return
    console.print()
    hz = report.session.sample_hz
    _title(console, "RUNNING", f"CPU time by the application's function, sampled at {hz} Hz")
    functions: dict[Code | None, int] = {}
    for row in report.running:
        functions[row.function] = functions.get(row.function, 0) + row.running_ns
    rows = [
        Row(
            (percent(spent_ns / max(1, report.duration_ns)), f"~{duration(spent_ns)}"),
            text_tail("(no Python frame)")
            if function is None
            else code_tail(function.function, function.file, function.first_line),
        )
        for function, spent_ns in sorted(functions.items(), key=lambda it: (-it[1], repr(it[0])))
    ]
    print_grid(console, ("of a CPU", "time", "function"), rows[:MAX_RUNNING])
    _say_rest(console, len(rows), "functions", MAX_RUNNING)


def _print_greenlets(report: Report, console: Console) -> None:
    console.print()
    if not report.greenlets:
        _say(console, "No greenlet was seen.")
        return
    title = "by the function that they were started with"
    estimates: tuple[str, ...] = ()
    if report.watched_share < 1.0:
        title = f"by start function; seen in {percent(report.watched_share)} of the running time"
        estimates = ("in all",)
    _title(console, "GREENLETS", title)
    rows = [
        Row(
            (
                f"{row.seen:,}",
                f"{row.ended:,}",
                f"{row.switches:,}",
                duration(row.running_ns),
                *(f"~{duration(row.estimated_running_ns)}" for _ in estimates),
                duration(row.waiting_ns),
                duration(row.longest_hold_ns),
            ),
            _kind_tail(row),
        )
        for row in report.greenlets[:MAX_ROWS]
    ]
    headers = ("seen", "ended", "switches", "running", *estimates, "waiting", "longest", "kind")
    print_grid(console, headers, rows)
    _say_rest(console, len(report.greenlets), "kinds")


def _kind_tail(row: GreenletRow) -> Tail:
    if row.kind is None:
        unknown = "(not known)" if row.switches else "(not seen running)"
        return text_tail("hub" if row.is_hub else unknown)
    function = f"{row.kind.function} (hub)" if row.is_hub else row.kind.function
    return code_tail(function, row.kind.file, row.kind.first_line)


def _print_head(report: Report, console: Console) -> None:
    session = report.session
    title = Text(printable(session_title(session)), style="bold")
    versions = f", CPython {session.python_version}, greenlet {session.greenlet_version or '?'}"
    console.print(title.append(printable(versions), style="not bold"), highlight=False)
    ended = "no end recorded" if report.ended is None else _ENDED.get(report.ended, report.ended)
    _say(
        console,
        f"{duration(report.duration_ns)} watched ({ended}), "
        f"{_all_switches(report)}, {count(report.holds, 'blocking hold')}",
    )


def _all_switches(report: Report) -> str:
    about = "about " if report.unwatched_switches else ""
    return about + count(report.switches, "switch", "switches")


def session_title(session: Session) -> str:
    """A session in a few words."""
    return f"{session.service} (pid {session.pid} on {session.host})"


def _print_threads(report: Report, console: Console) -> None:
    if not report.threads:
        return
    console.print()
    _title(console, "THREADS", "")
    unseen = ("unseen",) if any(row.unwatched_ns for row in report.threads) else ()
    rows = [
        Row(
            (
                str(row.tid),
                f"{'~' if row.unwatched_switches else ''}{row.switches + row.unwatched_switches:,}",
                f"{row.holds:,}",
                duration(row.holding_ns),
                duration(row.hub_ns),
                duration(row.idle_ns),
                *(duration(row.unwatched_ns) for _ in unseen),
                duration(row.longest_hold_ns),
            ),
            text_tail(_thread_name(row)),
        )
        for row in report.threads[:MAX_ROWS]
    ]
    times = ("holding", "in hub", "idle", *unseen, "longest")
    print_grid(console, ("tid", "switches", "holds", *times, "name"), rows)
    _say_rest(console, len(report.threads), "threads")


def _thread_name(row: ThreadRow) -> str:
    notes = ", ".join(["ended"] * (not row.name) + ["no hub"] * (not row.has_hub))
    return f"{row.name} ({notes})".strip() if notes else row.name


def _print_missing(report: Report, console: Console) -> None:
    console.print()
    start_ns = report.session.start_ktime_ns
    if report.lost:
        for loss in report.lost:
            _say(console, f"lost: {loss.count:,} {loss.what} {_between(loss, start_ns)}", "yellow")
    else:
        _say(console, "nothing lost")
    for shed in report.shed:
        _say(console, f"left off: {shed.what}, {shed.why} {_between(shed, start_ns)}", "yellow")
    if not report.shed:
        _say(console, "nothing left off")
    if report.watched_share < 1.0:
        _say(
            console,
            f"single switches were seen in {percent(report.watched_share)} of the running time, "
            "to keep to the budget; holds are found all the time (docs/reports.md)",
            "yellow",
        )


def _print_costs(report: Report, console: Console) -> None:
    if report.stolen_share > STOLEN_TOLD:
        _say(
            console,
            f"the host took {percent(report.stolen_share)} of this machine's CPU time, "
            "which looks like computing",
            "yellow",
        )
    if report.cost is not None:
        _print_cost(report.cost, report.duration_ns, console)


def _print_cost(cost: Cost, duration_ns: int, console: Console) -> None:
    agent = percent(cost.agent_cpu_ns / duration_ns if duration_ns else 0.0)
    target = percent(cost.target_ns / duration_ns if duration_ns else 0.0)
    allowed = percent(cost.budget_ns / duration_ns if duration_ns else 0.0)
    budget = f" of the {allowed} allowed" if cost.budget_ns else ""
    _say(
        console,
        f"cost: the probes about {target} of a CPU in the target{budget}, greenscope itself "
        f"{agent} of a CPU and {cost.agent_rss_bytes / 1e6:.0f} MB",
        "dim",
    )


def _between(row: Loss | Shed, start_ns: int) -> str:
    first_ns, last_ns = (max(0, t - start_ns) for t in (row.from_ktime_ns, row.to_ktime_ns))
    if first_ns == last_ns:
        return f"(at {duration(first_ns)})"
    return f"(from {duration(first_ns)} to {duration(last_ns)})"


def _title(console: Console, title: str, explanation: str) -> None:
    text = Text(title, style="bold")
    text.append(f"  {explanation}" if explanation else "", style="not bold dim")
    console.print(text, highlight=False)


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(printable(text), style=style), highlight=False)


def _say_rest(console: Console, total: int, what: str, shown: int = MAX_ROWS) -> None:
    if total > shown:
        _say(console, f"and {total - shown:,} more {what} (all are in --json)", "dim")
