"""Keeps the probes within the budget: a thread of its own, because a burst is milliseconds.

The agent's main thread may be busy for longer than that with what a burst brought.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from greenscope.budget.allowance import BURST_NS, Allowance
from greenscope.budget.costs import Hits
from greenscope.errors import GreenscopeError, TargetNotFound

# How late a burst is ended at most, and begun. While much is left, there is no haste: what the
# probes take cannot be more than all of the time.
_SHORTEST_TICK_S = 0.004
_LONGEST_TICK_S = 0.05
_BIRTHS_WINDOW_NS = 500_000_000
_BIRTHS_PART = 0.5
# The kernel leaves a breakpoint in place for a grace period of RCU longer (docs/decisions/0005).
_TAKING_OUT_NS = 10_000_000


class DearProbes(Protocol):
    """Probes that can be put in place and taken away while the watch goes on.

    The governor calls these from its own thread, never two at once. They are in place when it
    begins.
    """

    def turn_on(self) -> None:
        """Puts them in place; TargetNotFound when the target is gone."""

    def turn_off(self) -> None:
        """Takes them away."""

    def include_births(self) -> None:
        """Those at births and ends of greenlets shall be turned, too, from now on."""

    def hits(self) -> Hits:
        """Hits since the watch began, of these and of the probes that are always there."""


class Governor:
    """Turns `probes` on and off so that all hits together cost no more than a share.

    `share` is of one CPU's time, `bare_ns` what a bare hit costs. From start() to stop() it
    alone turns them; they stay as they are at the stop.
    """

    def __init__(self, probes: DearProbes, bare_ns: float, share: float) -> None:
        self._probes = probes
        self._bare_ns = bare_ns
        self._share = share
        self._stopping = False
        self._is_stuck = False
        self._wakeup = threading.Event()
        self._failure: GreenscopeError | None = None
        self._thread = threading.Thread(target=self._run, name="governor", daemon=True)

    def start(self) -> None:
        """Begins; a first burst is given in advance."""
        self._thread.start()

    def stop(self) -> None:
        """Ends, if it ever began."""
        self._stopping = True
        self._wakeup.set()
        if self._thread.ident is not None:
            self._thread.join()

    def see_stuck(self) -> None:
        """A hold goes on while the probes are off: they are wanted for its end.

        It has no hits meanwhile, so waiting for that costs nothing.
        """
        self._is_stuck = True
        self._wakeup.set()

    def check(self) -> None:
        """Raises GreenscopeError: the probes could not be put in place again."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._keep()
        except TargetNotFound:
            pass  # its end is told by its own descriptor
        except GreenscopeError as error:
            self._failure = error

    def _keep(self) -> None:
        hits = self._probes.hits()
        spent_ns = hits.cost_ns(self._bare_ns)
        allowance = Allowance(self._share, time.monotonic_ns(), True, float(BURST_NS))
        births = _Births(self._share, self._bare_ns, allowance.last_ns, hits)
        is_on = True
        while True:
            self._wakeup.wait(_tick_s(allowance) if is_on else _LONGEST_TICK_S)
            self._wakeup.clear()
            if self._stopping:
                return
            hits = self._probes.hits()
            before_ns, spent_ns = spent_ns, hits.cost_ns(self._bare_ns)
            since_ns, now_ns = allowance.last_ns, time.monotonic_ns()
            allowance.pass_time(now_ns, spent_ns - before_ns)
            if births.are_too_dear(now_ns, hits):
                self._probes.include_births()
            if is_on and spent_ns > before_ns:
                self._is_stuck = False
            # Others' holds may end and end again: what that costs in all is limited, too.
            waits = self._is_stuck and allowance.balance_ns > -BURST_NS
            wanted = allowance.decide() or waits
            if wanted and not is_on:
                self._probes.turn_on()
            elif is_on and not wanted:
                self._probes.turn_off()
                rate = min(1.0, (spent_ns - before_ns) / max(1, now_ns - since_ns))
                allowance.balance_ns -= rate * _TAKING_OUT_NS
            is_on = wanted


class _Births:
    """Whether births and ends of greenlets alone take too much of the budget."""

    def __init__(self, share: float, bare_ns: float, now_ns: int, hits: Hits) -> None:
        self._share = share
        self._bare_ns = bare_ns
        self._since_ns = now_ns
        self._births = hits.births
        self._told = False

    def are_too_dear(self, now_ns: int, hits: Hits) -> bool:
        """True once, when they took more than their part of it for a while."""
        if self._told or now_ns - self._since_ns < _BIRTHS_WINDOW_NS:
            return False
        cost_ns = Hits(births=hits.births - self._births).cost_ns(self._bare_ns)
        self._told = cost_ns > _BIRTHS_PART * self._share * (now_ns - self._since_ns)
        self._since_ns, self._births = now_ns, hits.births
        return self._told


def _tick_s(allowance: Allowance) -> float:
    left_s = allowance.balance_ns / 1e9
    return min(max(left_s, _SHORTEST_TICK_S), _LONGEST_TICK_S)
