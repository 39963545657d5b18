"""What greenscope knows about a process, as plain immutable data without I/O.

The agent makes these values, `greenscope.records` writes and reads them, and
`collector.reports` sums them. Times are nanoseconds. `ktime_ns` is the kernel's monotonic
clock (`bpf_ktime_get_ns`, Python's `time.monotonic_ns`); a session carries one pair of
(ktime, unix) instants, from which wall-clock times follow.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

Reason = str
"""What the thread did: cpu, gc, preempted, fault, or syscall:NAME (one of REASONS or that)."""

REASON_CPU: Reason = "cpu"
REASON_GC: Reason = "gc"
REASON_PREEMPTED: Reason = "preempted"
REASON_FAULT: Reason = "fault"
REASON_UNKNOWN: Reason = "unknown"
SYSCALL_PREFIX = "syscall:"


class StackStatus(enum.Enum):
    """Whether frames are missing from a stack, and why."""

    COMPLETE = "complete"
    TRUNCATED = "truncated"  # deeper than the walk's limit; the outermost frames are missing
    UNREADABLE = "partial(unreadable memory)"  # a frame's page could not be read
    UNRESOLVED = "partial(code gone)"  # walked, but a code object could not be named any more
    NO_FRAMES = "partial(no Python frame)"  # the thread ran no Python code
    LOST = "partial(lost)"  # the walk itself was lost with a full ring


class CodeOrigin(enum.Enum):
    """Where a code object comes from; the innermost APPLICATION frame gets the blame."""

    APPLICATION = "application"
    LIBRARY = "library"  # site-packages, dist-packages
    STDLIB = "stdlib"  # the interpreter's own library, frozen modules


@dataclass(frozen=True, slots=True)
class Code:
    """One Python code object: `function` is co_qualname where the interpreter has it."""

    function: str
    file: str
    first_line: int
    origin: CodeOrigin


@dataclass(frozen=True, slots=True)
class Frame:
    """A code object and the line it is at; `line` is 0 where it is not known."""

    code: Code
    line: int


_SWITCHING_PACKAGES = ("/gevent/", "/greenlet/")


@dataclass(frozen=True, slots=True)
class Stack:
    """Frames of one greenlet, innermost first; status says if any are missing."""

    frames: tuple[Frame, ...]
    status: StackStatus = StackStatus.COMPLETE

    def blamed_frame(self) -> Frame | None:
        """The innermost frame of the application; without one, of a library; else the innermost.

        gevent and greenlet switch and poll on behalf of others: what they do is not theirs.
        """
        for frame in self.frames:
            if frame.code.origin is CodeOrigin.APPLICATION:
                return frame
        for frame in self.frames:
            file = frame.code.file
            switches = any(package in file for package in _SWITCHING_PACKAGES)
            if frame.code.origin is CodeOrigin.LIBRARY and not switches:
                return frame
        return self.frames[0] if self.frames else None


@dataclass(frozen=True, slots=True)
class HoldPiece:
    """The part of a hold that was spent at one stack for one reason.

    `duration_ns` of all pieces of a hold add up to the hold's duration. `count` is the number
    of samples (cpu, gc) or of blocks (syscall) behind it.
    """

    stack: Stack
    reason: Reason
    duration_ns: int
    count: int


@dataclass(frozen=True, slots=True)
class Hold:
    """A blocking hold: a greenlet (or a hub callback) kept its thread for `duration_ns`.

    `tid` is the OS thread id in the target's own PID namespace. `greenlet_id` is unique within
    the session (addresses are not). `on_cpu_ns` is what the thread ran of it. `is_open`: it had
    not ended when the watch did. `began_before`: it was running when the watch began, so the
    duration is what was seen of it. `kind` is the greenlet's (GreenletTotals.kind), None where
    it is not known. `uncertainty_ns`: by how much the duration may be wrong, either way, because
    the switch probe was off when the hold began or ended; 0 where it is exact.
    """

    tid: int
    greenlet_id: int
    start_ktime_ns: int
    duration_ns: int
    on_cpu_ns: int
    is_hub: bool
    is_open: bool
    began_before: bool
    pieces: tuple[HoldPiece, ...]
    kind: Code | None = None
    uncertainty_ns: int = 0


@dataclass(frozen=True, slots=True)
class GreenletTotals:
    """Sums over the greenlets of one kind on one thread, since the record before.

    `kind` is the code of the function that the greenlet was started with (for gevent: the
    `_run` that was spawned), None where it could not be read. Counts and times are increments
    and add up over a session; `longest_hold_ns` is a maximum. `alive` alone is not an
    increment: the number alive when the record was made. Nothing of it is known from the
    stretches in which the switch probe was off (ThreadTotals.unwatched_ns).
    """

    tid: int
    kind: Code | None
    is_hub: bool
    seen: int
    ended: int
    alive: int
    switches: int
    running_ns: int
    waiting_ns: int
    longest_hold_ns: int


@dataclass(frozen=True, slots=True)
class ThreadTotals:
    """Sums over one OS thread, since the record before (`longest_hold_ns` is a maximum).

    `has_hub`: a hub was seen on it; without one its holds block nobody and are not reported.
    `holding_ns`: greenlets (not the hub) were switched in. `hub_ns`: the hub ran callbacks.
    `idle_ns`: the hub was polling. `unwatched_ns`: the switch probe was off to keep to the
    budget, and what ran is not known. The four add up to the time watched. `switches` were
    counted one by one; `unwatched_switches` is the estimate for the time in `unwatched_ns`.
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
class RunningTotals:
    """What the greenlets of one kind ran, by the sampler, since the record before.

    `function` is the innermost frame of the application, else of a library, else the innermost
    (None: no Python frame). `running_ns` is an estimate: the samples times their period.
    """

    tid: int
    kind: Code | None
    function: Code | None
    samples: int
    running_ns: int


@dataclass(frozen=True, slots=True)
class FunctionTotals:
    """Calls of one function in one greenlet, since the record before (calls mode).

    `kind` is the greenlet's (GreenletTotals.kind). `greenlet_id` is 0 where the sums are over
    all greenlets of the kind, which they are once a session has seen too many to tell each.
    `calls` counts the times that a frame of the function was entered: a generator's frame is
    entered at each resumption, and not when the generator is made. `recursive_calls` of them
    came while another frame of the function was on the greenlet's stack.

    Own time is spent in the function's own frame, total time also in what it called; of a
    recursive function the outermost frame alone counts for the total. Running time passed while
    the greenlet was switched in, wall time includes its waits.
    """

    tid: int
    kind: Code | None
    greenlet_id: int
    function: Code
    calls: int
    recursive_calls: int
    own_running_ns: int
    own_wall_ns: int
    total_running_ns: int
    total_wall_ns: int


@dataclass(frozen=True, slots=True)
class CallTotals:
    """Calls of one function by another in one greenlet, since the record before (calls mode).

    `caller` is None for the outermost frame of a greenlet. The rest as in FunctionTotals; of
    calls that nest, the outermost alone counts for the total times.
    """

    tid: int
    kind: Code | None
    greenlet_id: int
    caller: Code | None
    callee: Code
    calls: int
    total_running_ns: int
    total_wall_ns: int


@dataclass(frozen=True, slots=True)
class GcSpan:
    """One run of the cyclic garbage collector inside a greenlet (calls mode).

    `generation` as the interpreter numbers them, `collected` the objects that it found
    unreachable, -1 where the end was not seen.
    """

    tid: int
    kind: Code | None
    greenlet_id: int
    start_ktime_ns: int
    duration_ns: int
    generation: int
    collected: int


@dataclass(frozen=True, slots=True)
class ImportSpan:
    """One search-and-load of a module inside a greenlet (calls mode), nested ones included."""

    tid: int
    kind: Code | None
    greenlet_id: int
    start_ktime_ns: int
    duration_ns: int
    module: str
    found: bool


@dataclass(frozen=True, slots=True)
class AgentCost:
    """What a stretch of the watch cost: the target by estimate, and the agent itself.

    `hits` of the probes, and `cost_ns` of the target's time that they took: hits times their
    calibrated cost. `budget_ns` is what the user allowed for the same stretch, 0 for no limit.
    `cpu_ns` is the agent's own CPU time, `rss_bytes` the memory that it holds at the end.
    """

    from_ktime_ns: int
    to_ktime_ns: int
    hits: int
    cost_ns: int
    budget_ns: int
    cpu_ns: int = 0
    rss_bytes: int = 0


@dataclass(frozen=True, slots=True)
class StolenTime:
    """CPU time that the host took from this machine, over all of its CPUs (/proc/stat)."""

    from_ktime_ns: int
    to_ktime_ns: int
    stolen_ns: int
    cpus: int


@dataclass(frozen=True, slots=True)
class HubProcess:
    """A child of the target that runs a hub, told where the target itself has none."""

    pid: int
    command: str


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that was seen and could not be kept: how many, and between which instants.

    `what` is events, stacks, greenlets, threads (the kernel side's), or batches.
    """

    what: str
    count: int
    from_ktime_ns: int
    to_ktime_ns: int


@dataclass(frozen=True, slots=True)
class Shed:
    """Something that was left off on purpose, and why (budget, kernel feature missing)."""

    what: str
    why: str
    from_ktime_ns: int
    to_ktime_ns: int


@dataclass(frozen=True, slots=True)
class Session:
    """One attach to one process. `session_id` is 32 hex digits, random.

    `pid` is the pid that the user gave; `process_start_ticks` (field 22 of /proc/PID/stat)
    tells two processes with one pid apart. Command-line arguments and environment are never
    part of it.
    """

    session_id: str
    service: str
    host: str
    pid: int
    process_start_ticks: int
    executable: str
    python_version: str
    greenlet_version: str
    threshold_ns: int
    sample_hz: int
    start_ktime_ns: int
    start_unix_ns: int
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """How a session ended: `why` is one of detached, duration, exited, failed."""

    end_ktime_ns: int
    why: str


Record = (
    Hold
    | GreenletTotals
    | ThreadTotals
    | RunningTotals
    | AgentCost
    | StolenTime
    | HubProcess
    | Loss
    | Shed
    | SessionEnd
)
"""What follows a Session, in the order in which it became known."""
