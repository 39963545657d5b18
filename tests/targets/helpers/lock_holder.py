"""Takes the flock of a file at each line on stdin, says so, and gives it back after MS.

Usage: lock_holder.py FILE MS
"""

from __future__ import annotations

import fcntl
import sys
import time


def main() -> None:
    path, hold_ms = sys.argv[1:]
    with open(path, "w") as locked:
        for _ in sys.stdin:
            fcntl.flock(locked, fcntl.LOCK_EX)
            print("held", flush=True)
            time.sleep(float(hold_ms) / 1000)
            fcntl.flock(locked, fcntl.LOCK_UN)


if __name__ == "__main__":
    main()
