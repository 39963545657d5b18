"""What the watch itself takes, and what the host takes from the machine meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from greenscope.budget.costs import Hits
from greenscope.model import AgentCost, StolenTime

_STAT = Path("/proc/stat")
_STEAL = 8  # proc_stat(5): "cpu" user nice system idle iowait irq softirq steal


def stolen_ns(stat: str) -> int:
    """Time that the host took since the boot, over all CPUs; `stat` is the text of /proc/stat."""
    fields = stat.split("\n", 1)[0].split()
    ticks = int(fields[_STEAL]) if len(fields) > _STEAL else 0
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def resident_bytes() -> int:
    """Memory that this process holds (proc_pid_statm(5))."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Accounts:
    """Gives what was spent since the time before; `bare_ns` is calibration.hit_cost_ns().

    `share` of one CPU's time is what the user allows, None for no limit.
    """

    def __init__(self, now_ns: int, bare_ns: float, share: float | None = None) -> None:
        self._bare_ns = bare_ns
        self._share = share or 0.0
        self._since_ns = now_ns
        self._cpu_ns = time.process_time_ns()
        self._hits = Hits()
        self._stolen_ns = stolen_ns(_STAT.read_text("ascii"))

    def records(self, now_ns: int, hits: Hits) -> Iterator[AgentCost | StolenTime]:
        """The stretch up to `now_ns`, given all hits until then."""
        cpu_ns, stolen = time.process_time_ns(), stolen_ns(_STAT.read_text("ascii"))
        bare_ns, before = self._bare_ns, self._hits
        yield AgentCost(
            from_ktime_ns=self._since_ns,
            to_ktime_ns=now_ns,
            hits=hits.total - before.total,
            cost_ns=round(hits.cost_ns(bare_ns) - before.cost_ns(bare_ns)),
            budget_ns=round(self._share * (now_ns - self._since_ns)),
            cpu_ns=cpu_ns - self._cpu_ns,
            rss_bytes=resident_bytes(),
        )
        yield StolenTime(
            self._since_ns, now_ns, max(0, stolen - self._stolen_ns), os.cpu_count() or 1
        )
        self._since_ns, self._cpu_ns, self._stolen_ns = now_ns, cpu_ns, stolen
        self._hits = hits
