"""Greenlets that hand over as fast as it goes and note the longest time between two hand-overs.

Run as a program. It begins at a line on stdin; at the next one it ends and prints a line of JSON:
`switches`, `longest_gap_ns`.
"""

from __future__ import annotations

import json
import select
import sys
from time import monotonic_ns

import gevent

GREENLETS = 10
LOOK_EVERY = 1000  # turns between two looks at stdin


class Crowd:
    """What has happened since the begin."""

    def __init__(self) -> None:
        self.turns = 0
        self.longest_gap_ns = 0
        self.last_ns = monotonic_ns()
        self.ends = False

    def hand_over(self) -> None:
        """One of the greenlets."""
        while not self.ends:
            gevent.sleep(0)
            now_ns = monotonic_ns()
            self.longest_gap_ns = max(self.longest_gap_ns, now_ns - self.last_ns)
            self.turns += 1
            if self.turns % LOOK_EVERY == 0:
                self.ends = bool(select.select([sys.stdin], [], [], 0)[0])
                now_ns = monotonic_ns()
            self.last_ns = now_ns


def main() -> None:
    """Serves commands until stdin ends."""
    print(json.dumps({"ready": True}), flush=True)
    for _ in iter(sys.stdin.readline, ""):
        crowd = Crowd()
        gevent.joinall([gevent.spawn(crowd.hand_over) for _ in range(GREENLETS)])
        sys.stdin.readline()
        answer = {"switches": 2 * crowd.turns, "longest_gap_ns": crowd.longest_gap_ns}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
