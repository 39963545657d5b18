"""How much each kind of hit costs, as multiples of a bare probe on this machine.

The multiples are what `python -m tests.bench` measures (docs/overhead.md) and change with our
programs only; what a bare hit costs is the machine's, calibrated at each start.
"""

from __future__ import annotations

from dataclasses import dataclass

# tests.bench.bench_switch_cost: attached without stacks; what a stack 20 deep adds to that.
SWITCH = 1.3
WALK = 0.8
# tests.bench.bench_call_cost: one of function__entry and function__return.
CALL = 1.3
# As a switch, but with less to do; a birth or an end of a greenlet, too.
POLL = 1.2
BIRTH = 1.2
# No trap: the program at sched_switch, both ways. What it walks counts as a walk.
LEAVE = 0.4


@dataclass(frozen=True, slots=True)
class Hits:
    """How often the probes were hit since the watch began."""

    switches: int = 0
    walks: int = 0
    polls: int = 0
    calls: int = 0
    births: int = 0
    leaves: int = 0

    @property
    def total(self) -> int:
        """Hits of probes; a walk is part of one."""
        return self.switches + self.polls + self.calls + self.births

    def cost_ns(self, bare_ns: float) -> float:
        """What they took of the target's time, `bare_ns` being a hit that does nothing."""
        weighted = (
            SWITCH * self.switches
            + WALK * self.walks
            + POLL * self.polls
            + CALL * self.calls
            + BIRTH * self.births
            + LEAVE * self.leaves
        )
        return bare_ns * weighted
