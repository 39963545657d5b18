"""Probes that are put in place and taken away again while the watch goes on.

What that costs was measured (docs/decisions/0005): to open one takes the kernel some 10 ms, in
which the target runs on; closing it takes the breakpoint out in less than a millisecond, and
then waits a tenth of a second until no CPU can be inside of the program any more.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

OpenProbe = Callable[[], int]
"""Puts a probe in place and gives its file descriptor; closing that removes the probe."""

_AT_ONCE = 8


class BurstProbes:
    """A set of probes that are all in place, or none. It begins with them in place."""

    def __init__(self) -> None:
        self._openers: list[OpenProbe] = []
        self._fds: list[int] = []
        self._is_on = True
        self._lock = threading.Lock()
        self._workers = ThreadPoolExecutor(_AT_ONCE, "probes")
        self._closing: list[Future[None]] = []

    def add(self, open_probe: OpenProbe) -> None:
        """One more; raises what `open_probe` does."""
        with self._lock:
            if self._is_on:
                self._fds.append(open_probe())
            self._openers.append(open_probe)

    def turn_on(self) -> None:
        """Returns when all are in place; raises what opening one does, and then none is."""
        with self._lock:
            if self._is_on:
                return
            opening = [self._workers.submit(opener) for opener in self._openers]
            failures = [future.exception() for future in opening]
            self._fds = [
                future.result()
                for future, failure in zip(opening, failures, strict=True)
                if failure is None
            ]
            self._is_on = True
        failure = next(filter(None, failures), None)
        if failure is not None:
            self.turn_off()
            raise failure

    def turn_off(self) -> None:
        """The target is free of them at once; the kernel's own waiting goes on behind."""
        with self._lock:
            self._closing = [future for future in self._closing if not future.done()]
            self._closing += [self._workers.submit(os.close, fd) for fd in self._fds]
            self._fds, self._is_on = [], False

    def close(self) -> None:
        """Removes them for good, and waits for the kernel."""
        self.turn_off()
        self._workers.shutdown()
