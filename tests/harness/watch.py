"""Watches a process from outside through /proc: its scheduler states and pending signals."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STOPPED_STATES = ("T", "t")
SAMPLE_PERIOD_S = 0.001


class StateWatch:
    """Counts of the states (R, S, D, T, t, Z ...) in which the process's threads were seen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.counts: Counter[str] = Counter()
        self.rounds = 0
        self._stop = threading.Event()
        self._looked = threading.Condition()
        self._thread = threading.Thread(target=self._watch, name=f"states of {pid}", daemon=True)

    @property
    def states(self) -> frozenset[str]:
        """Every state seen so far."""
        return frozenset(self.counts)

    @property
    def stopped(self) -> int:
        """How many times a thread was seen stopped or traced; a harmless tool leaves it at 0."""
        return sum(self.counts[state] for state in STOPPED_STATES)

    def start(self) -> None:
        """Begin to watch, in a thread of its own."""
        self._thread.start()

    def wait_rounds(self, rounds: int) -> None:
        """Return when all threads were looked at this many times."""
        with self._looked:
            self._looked.wait_for(lambda: self.rounds >= rounds)

    def stop(self) -> None:
        """End the watch; the counts stay."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.is_set():
            self.counts.update(thread_states(self.pid).values())
            with self._looked:
                self.rounds += 1
                self._looked.notify_all()
            time.sleep(SAMPLE_PERIOD_S)


def thread_states(pid: int) -> dict[int, str]:
    """The state letter of each thread; a thread that ends meanwhile is left out."""
    states = {}
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            text = stat.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        # The name in parentheses may itself hold parentheses: the state follows the last one.
        states[int(stat.parent.name)] = text.rpartition(")")[2].split()[0]
    return states


@contextmanager
def state_watch(pid: int) -> Iterator[StateWatch]:
    """Sample the states of all threads at about 1 kHz while the block runs."""
    watch = StateWatch(pid)
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()


def pending_signals(pid: int) -> frozenset[int]:
    """Signals that wait for the process or for one of its threads (SigPnd and ShdPnd)."""
    pending = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        for line in status.read_text().splitlines():
            if line.startswith(("SigPnd:", "ShdPnd:")):
                pending |= int(line.split()[1], 16)
    return frozenset(number + 1 for number in range(64) if pending >> number & 1)
