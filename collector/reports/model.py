"""What a report says, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from greenscope.model import Code, HubProcess, Loss, Reason, Session, Shed, Stack


@dataclass(frozen=True, slots=True)
class Hotspot:
    """Parts of blocking holds, grouped by the code to blame and the reason.

    `line` and `leaf` ("function file:line" of the innermost frame, "" without frames) are
    those with the most time, `stack` is the stack with the most. `reasons` tells the time by
    what was seen, before small parts were added to larger ones; it sums up to `total_ns`.
    `holds` counts the holds that it appears in, `open` those that had not ended when the watch
    did, `began_before` those that had begun before it. `max_ns` is the most time in one hold.
    `share` is `total_ns` divided by the time watched. `kinds` are the greenlets in whose holds
    it appears, by the function that they were started with, and the time in each, most first;
    None: not known. `uncertainty_ns` is by how much `total_ns` may be wrong, either way, as holds
    began or ended while the switch probe was off.
    """

    function: str
    file: str
    line: int
    leaf: str
    leaf_function: str
    reason: Reason
    reasons: dict[Reason, int]
    holds: int
    open: int
    began_before: int
    total_ns: int
    max_ns: int
    share: float
    stack: Stack
    kinds: tuple[tuple[Code | None, int], ...] = ()
    uncertainty_ns: int = 0


@dataclass(frozen=True, slots=True)
class GreenletRow:
    """Greenlets of one kind, over all threads; `kind` None: no frame of them was ever seen.

    Counts and times are of the part of the time that was watched (Report.watched_share);
    `estimated_running_ns` is the running time of the whole watch by it, the same where all was
    watched.
    """

    kind: Code | None
    is_hub: bool
    seen: int
    ended: int
    alive: int
    switches: int
    running_ns: int
    waiting_ns: int
    longest_hold_ns: int
    estimated_running_ns: int = 0


@dataclass(frozen=True, slots=True)
class RunningRow:
    """CPU time of one function in greenlets of one kind, by the sampler's ticks: an estimate.

    `function` is the innermost frame of the application (Stack.blamed_frame()); None: not known.
    """

    function: Code | None
    kind: Code | None
    samples: int
    running_ns: int


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """One OS thread; `holds` are its blocking ones.

    `unwatched_ns` of its time the switch probe was off to keep to the budget: what ran then is
    not known. `unwatched_switches` is the estimate of its switches meanwhile.
    """

    tid: int
    name: str
    has_hub: bool
    switches: int
    holds: int
    holding_ns: int
    hub_ns: int
    idle_ns: int
    longest_hold_ns: int
    unwatched_ns: int = 0
    unwatched_switches: int = 0


@dataclass(frozen=True, slots=True)
class Cost:
    """What the watch took: the agent's own CPU time and most memory, and from the target.

    `target_ns` is an estimate: the `hits` of probes, times what each kind costs on that machine.
    `budget_ns` is what was allowed, 0 for no limit.
    """

    agent_cpu_ns: int = 0
    agent_rss_bytes: int = 0
    hits: int = 0
    target_ns: int = 0
    budget_ns: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that is printed about one session.

    `duration_ns` is the time watched. `switches` are all: those seen one by one, and the estimate
    of `unwatched_switches`. `watched_share` is the part of the running time (not idle) in which
    they were seen. `ended` is why it ended, None when no end was recorded
    (the watch goes on, was killed, or its records are cut). `holds` counts blocking holds.
    `cost` is None where it was not recorded. `stolen_share` is the part of all CPUs' time that
    the host took from the machine. `hub_children` run a hub where the process itself had none.
    Hotspots come by total time, longest first; greenlets by running time; threads by switches;
    what ran by its CPU time.
    """

    session: Session
    duration_ns: int
    ended: str | None
    switches: int
    holds: int
    longest_hold_ns: int
    hotspots: tuple[Hotspot, ...]
    greenlets: tuple[GreenletRow, ...]
    threads: tuple[ThreadRow, ...]
    lost: tuple[Loss, ...]
    shed: tuple[Shed, ...]
    cost: Cost | None = None
    stolen_share: float = 0.0
    hub_children: tuple[HubProcess, ...] = ()
    unwatched_switches: int = 0
    watched_share: float = 1.0
    running: tuple[RunningRow, ...] = ()

    @property
    def has_hub(self) -> bool:
        """Whether a hub was seen on any thread; without one nothing can be called blocked."""
        return bool(self.hotspots) or any(row.has_hub for row in self.threads)
