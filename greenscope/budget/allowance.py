"""When may the dear probes be armed? The rule alone: no clock, no kernel.

The target's time comes in at a steady rate, and the share of it that the user allows flows into
an account, out of which every hit is paid. What is always on (the switch) is paid first; call
probes are armed while there is something left, and taken away once it is spent. So a program
that makes few calls is watched all the time, and one that makes millions in short bursts, each
as long as its price was saved up for.
"""

from __future__ import annotations

from dataclasses import dataclass

# A burst shorter than this shows little more than the calls that were running anyway. Before
# it begins its price has to be there, taken at the dearest possible: a thread that does nothing
# but hit probes.
BURST_NS = 20_000_000
# What is saved in quiet times may not be spent at once: the slow-down has to stay small in any
# stretch of some seconds, not only over the whole watch.
LONGEST_SAVING_NS = 5_000_000_000


@dataclass(slots=True)
class Allowance:
    """The account: `share` of the target's time, 0.02 for 2 %, from the instant `last_ns` on.

    `balance_ns` may be negative: a burst can cost more than was saved, which the next ones
    wait for.
    """

    share: float
    last_ns: int
    is_armed: bool = False
    balance_ns: float = 0.0

    def pass_time(self, now_ns: int, cost_ns: float) -> None:
        """Pays what the probes cost between the call before and `now_ns`."""
        income_ns = self.share * (now_ns - self.last_ns)
        ceiling_ns = max(BURST_NS, self.share * LONGEST_SAVING_NS)
        self.balance_ns = min(self.balance_ns + income_ns - cost_ns, ceiling_ns)
        self.last_ns = now_ns

    def decide(self) -> bool:
        """Whether the dear probes are to be armed from now on."""
        if self.is_armed:
            self.is_armed = self.balance_ns >= 0
        else:
            self.is_armed = self.balance_ns >= BURST_NS
        return self.is_armed
