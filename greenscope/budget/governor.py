"""Keeps the probes within the budget: a thread of its own, because a burst is milliseconds.

The agent's main thread may be busy for longer than that with what a burst brought.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from greenscope.budget.allowance import Allowance
from greenscope.budget.costs import Hits
from greenscope.errors import GreenscopeError, TargetNotFound
from greenscope.model import AgentCost, Shed

# How late a burst is ended at most, and begun.
_ARMED_TICK_S = 0.004
_IDLE_TICK_S = 0.05
REPORT_INTERVAL_NS = 1_000_000_000
SHED_CALLS = "calls"
_WHY = "budget"


class DearProbes(Protocol):
    """Probes that can be put in place and taken away while the watch goes on.

    The governor calls these from its own thread, never two at once.
    """

    def arm(self) -> None:
        """Puts them in place; TargetNotFound when the target is gone."""

    def disarm(self) -> None:
        """Takes them away."""

    def hits(self) -> Hits:
        """Hits since the watch began, of these and of the probes that are always there."""


class Governor:
    """Arms and disarms `probes` so that all hits together cost no more than a share.

    `share` is of the target's time, None for no limit. `calibrate` gives what a bare hit costs
    in nanoseconds. `take()` gives the records since the call before. After `stop()` the probes
    are disarmed.
    """

    def __init__(
        self, probes: DearProbes, calibrate: Callable[[], float], share: float | None
    ) -> None:
        self._probes = probes
        self._calibrate = calibrate
        self._share = share
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._records: list[AgentCost | Shed] = []
        self._failure: GreenscopeError | None = None
        self._hits = self._reported = Hits()
        self._off_since_ns: int | None = None
        self._since_ns = 0
        self._bare_ns = 0.0
        self._thread = threading.Thread(target=self._run, name="governor", daemon=True)

    def start(self) -> None:
        """Begins; the first burst comes when its price is saved up."""
        self._since_ns = self._off_since_ns = time.monotonic_ns()
        self._thread.start()

    def stop(self) -> None:
        """Ends: the probes are disarmed, and what is left to tell can be taken."""
        self._stopping.set()
        self._thread.join()

    def take(self) -> list[AgentCost | Shed]:
        """Costs, and the stretches without call probes, since the call before.

        Raises:
            GreenscopeError: the probes could not be put in place.
        """
        with self._lock:
            records, self._records = self._records, []
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return records

    def _run(self) -> None:
        try:
            self._bare_ns = self._calibrate()
            self._keep()
        except TargetNotFound:
            pass  # its end is told by its own descriptor
        except GreenscopeError as error:
            with self._lock:
                self._failure = error
        finally:
            self._finish()

    def _keep(self) -> None:
        allowance = Allowance(1.0 if self._share is None else self._share, time.monotonic_ns())
        armed = False
        while not self._stopping.wait(_ARMED_TICK_S if armed else _IDLE_TICK_S):
            now_ns = time.monotonic_ns()
            allowance.pass_time(now_ns, self._count())
            wanted = True if self._share is None else allowance.decide()
            if wanted != armed:
                self._set(wanted)
                armed = wanted
            if now_ns - self._since_ns >= REPORT_INTERVAL_NS:
                self._report(now_ns)

    def _count(self) -> float:
        """Cost of the hits since the call before."""
        before, self._hits = self._hits, self._probes.hits()
        return self._hits.cost_ns(self._bare_ns) - before.cost_ns(self._bare_ns)

    def _set(self, armed: bool) -> None:
        if armed:
            self._probes.arm()
            self._tell_off(time.monotonic_ns())
        else:
            off_since_ns = time.monotonic_ns()
            self._probes.disarm()
            self._off_since_ns = off_since_ns

    def _tell_off(self, now_ns: int) -> None:
        if self._off_since_ns is not None:
            with self._lock:
                self._records.append(Shed(SHED_CALLS, _WHY, self._off_since_ns, now_ns))
            self._off_since_ns = None

    def _report(self, now_ns: int) -> None:
        hits, bare_ns = self._hits, self._bare_ns
        cost_ns = hits.cost_ns(bare_ns) - self._reported.cost_ns(bare_ns)
        share = 1.0 if self._share is None else self._share
        record = AgentCost(
            from_ktime_ns=self._since_ns,
            to_ktime_ns=now_ns,
            hits=hits.total - self._reported.total,
            cost_ns=round(cost_ns),
            budget_ns=round(share * (now_ns - self._since_ns)),
        )
        with self._lock:
            self._records.append(record)
        self._since_ns, self._reported = now_ns, hits

    def _finish(self) -> None:
        self._count()
        self._probes.disarm()
        now_ns = time.monotonic_ns()
        self._tell_off(now_ns)
        self._report(now_ns)
