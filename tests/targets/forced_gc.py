"""A greenlet collects garbage by force over a heap so large that it takes more than 20 ms."""

from __future__ import annotations

import gc
import sysconfig
from time import monotonic_ns
from typing import Any, Dict, List

import gevent
from gevent.os import nb_read

from calibration import sized_for
from truth import Truth, option, scripted


class GcClock:
    """Begin and end of each collection, as gc.callbacks tells them."""

    def __init__(self) -> None:
        self.pauses: List[List[int]] = []

    def __call__(self, phase: str, info: Dict[str, Any]) -> None:
        if phase == "start":
            self.pauses.append([monotonic_ns()])
        else:
            self.pauses[-1].append(monotonic_ns())


def gc_reason() -> str:
    """`gc` can be told from `cpu` where the interpreter was built with probes."""
    return "gc" if sysconfig.get_config_var("WITH_DTRACE") else "cpu"


def cycles(count: int) -> List[List[Any]]:
    """Live objects that a collection has to visit, each a cycle of its own."""
    made: List[List[Any]] = []
    for _ in range(count):
        made.append([])
        made[-1].append(made[-1])
    return made


def drop_caches(truth: Truth) -> None:
    with truth.act(gc_reason(), "janitor"):
        gc.collect()  # GUILTY


def janitor(truth: Truth, times: int) -> None:
    for _ in range(times):
        drop_caches(truth)
        gevent.sleep(0.01)


def main() -> None:
    gc.disable()
    heap = sized_for(int(option("ms", 50.0) * 1e6), cycles, lambda made: gc.collect())
    with scripted(nb_read) as truth:
        clock = GcClock()
        gc.callbacks.append(clock)
        gevent.spawn(janitor, truth, option("times", 6)).get()
        gc.callbacks.remove(clock)
        truth.figure("gc_pauses", clock.pauses)
        truth.figure("heap_objects", len(heap))


if __name__ == "__main__":
    main()
