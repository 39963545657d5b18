"""Two greenlets that do nothing but switch to each other, both at the bottom of a deep stack.

Run as a program. For each line `SECONDS DEPTH` on stdin it makes a pair whose stacks have DEPTH
frames, lets it play for so long, and prints one line of JSON: `switches`, `wall_ns`, `cpu_ns`
(of this thread).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from time import monotonic_ns, thread_time_ns
from typing import Any

from greenlet import getcurrent, greenlet

BATCH = 1000  # switches there and back between two looks at the clock


def descend(frames: int, bottom: Callable[[], object]) -> object:
    """Calls `bottom`, whose frame is then the last of `frames`."""
    if frames <= 2:
        return bottom()
    return descend(frames - 1, bottom)


class Pair:
    """A greenlet that counts and one that answers."""

    def __init__(self, depth: int) -> None:
        self._main = getcurrent()
        self._seconds = 0.0
        self.ping: Any = greenlet(lambda: descend(depth - 1, self._serve))
        self.pong: Any = greenlet(lambda: descend(depth - 1, self._answer))

    def play(self, seconds: float) -> dict[str, int]:
        """What one window of this length gave."""
        self._seconds = seconds
        result: dict[str, int] = self.ping.switch()
        return result

    def _serve(self) -> None:
        pong = self.pong
        pong.switch()
        begin_ns, begin_cpu_ns = monotonic_ns(), thread_time_ns()
        end_ns, rounds = begin_ns + int(self._seconds * 1e9), 0
        while monotonic_ns() < end_ns:
            for _ in range(BATCH):
                pong.switch()
            rounds += 1
        result = {
            "switches": 2 * BATCH * rounds,
            "wall_ns": monotonic_ns() - begin_ns,
            "cpu_ns": thread_time_ns() - begin_cpu_ns,
        }
        self._main.switch(result)

    def _answer(self) -> None:
        ping = self.ping
        while True:
            ping.switch()


def main() -> None:
    """Serves windows until stdin ends."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        seconds, depth = line.split()
        print(json.dumps(Pair(int(depth)).play(float(seconds))), flush=True)


if __name__ == "__main__":
    main()
