"""Callbacks that compute for 50 ms are run by the hub: half by run_callback, half by a timer."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

import gevent
from gevent.event import Event
from gevent.os import nb_read

from truth import Truth, option, scripted


def refresh_cache(truth: Truth, duration_ns: int, finished: Event) -> None:
    total = 0
    with truth.act("cpu", "hub", is_hub=True):
        deadline_ns = monotonic_ns() + duration_ns
        while monotonic_ns() < deadline_ns:  # GUILTY
            total += 1  # GUILTY
    finished.set()


def schedule(loop: Any, use_timer: bool, *args: Any) -> Any:
    if not use_timer:
        return loop.run_callback(refresh_cache, *args)
    timer = loop.timer(0.001)
    timer.start(refresh_cache, *args)
    return timer


def main() -> None:
    loop = gevent.get_hub().loop
    with scripted(nb_read) as truth:
        duration_ns = int(option("ms", 50.0) * 1e6)
        for number in range(option("times", 8)):
            finished = Event()
            watcher = schedule(loop, number % 2 == 1, truth, duration_ns, finished)
            finished.wait()
            watcher.close()
            gevent.sleep(0.01)


if __name__ == "__main__":
    main()
