"""gevent's native thread pool sleeps and computes while the hub is idle: no hub is held.

The pool's threads switch greenlets too, but run no hub. `gil=1` adds pure Python work, for
which the threads and the hub compete.
"""

from __future__ import annotations

import time
import zlib

import gevent
from gevent.os import nb_read

from calibration import sized_for
from hold_clock import HoldClock
from truth import Truth, option, scripted, sleep_reason


def sleep_in_pool(truth: Truth, seconds: float) -> None:
    with truth.act(sleep_reason(), "pool", holds_hub=False):
        time.sleep(seconds)  # GUILTY


def compress_in_pool(truth: Truth, data: bytes) -> None:
    with truth.act("cpu", "pool", holds_hub=False):
        zlib.compress(data, 9)  # GUILTY


def compute_in_pool(truth: Truth, seconds: float) -> None:
    total = 0
    with truth.act("cpu", "pool", holds_hub=False):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:  # GUILTY
            total += 1  # GUILTY


def main() -> None:
    seconds = option("ms", 60.0) / 1000
    block = bytes(range(256))
    data = sized_for(int(seconds * 1e9), block.__mul__, lambda made: zlib.compress(made, 9))
    pool = gevent.get_hub().threadpool
    with scripted(nb_read) as truth:
        clock = HoldClock()
        clock.start()
        for _ in range(option("times", 5)):
            sleeping = pool.spawn(sleep_in_pool, truth, seconds)
            pool.apply(compress_in_pool, (truth, data))
            sleeping.get()
            if option("gil", 0):
                pool.apply(compute_in_pool, (truth, seconds))
        clock.stop()
        clock.write(truth)


if __name__ == "__main__":
    main()
