"""The kernel side in forms that a bench needs: attached often, or with one probe apart."""

from __future__ import annotations

from contextlib import ExitStack

from greenscope.bpf.bursts import BurstProbes
from greenscope.bpf.loader import Kernel

SWITCH_FUNCTION = "gs_on_switch"


class ReusableKernel(Kernel):
    """Compiled once, attached and detached many times.

    `close()` takes every probe away and keeps programs, maps and rings; they end with the
    process. `forget()` makes it as good as new for the next attach.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kept = self._stack
        self._stack = ExitStack()

    def close(self) -> None:
        """Takes every probe away."""
        super().close()
        for probes in (self.bursts, self.births):
            probes.close()
        self.bursts, self.births = BurstProbes(), BurstProbes()

    def forget(self) -> None:
        """Empties the maps and rings."""
        self.watches.clear()
        for table in (self._slots, self.threads, self.greenlets, self._sent_stacks):
            table.clear()
        for ring in (self.stacks, self.events):
            for _ in ring.records():
                pass


class LateSwitchKernel(Kernel):
    """An attach leaves out the probe at the switch, which the bench puts there and takes away.

    The other probes stay: none of them runs at a switch.
    """

    def attach_in_bursts(self, function: str, path: str, offset: int, pid: int) -> None:
        """As ever, but for the switch."""
        if function != SWITCH_FUNCTION:
            super().attach_in_bursts(function, path, offset, pid)

    @property
    def switch_program(self) -> int:
        """File descriptor of our program for the switch; it stays the kernel's."""
        return self._built.programs[SWITCH_FUNCTION]
