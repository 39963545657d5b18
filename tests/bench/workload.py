"""A gevent program that is always busy: twenty greenlets compute and hand over by sleep(0).

Run as a program; a line of JSON answers each line on stdin:

    calibrate RATE      finds the work per hand-over that gives RATE switches a second
    window SECONDS      works for so long: `units`, `switches`, and what a unit took in the
                        median slice: `cpu_ns`, `wall_ns`; in all: `mean_cpu_ns`, `mean_wall_ns`
    profiler NAME on    NAME is monitor, yappi or cprofile; `off` ends it

A unit is the work between two hand-overs. Each makes two switches: to the hub and to the next
greenlet. Stacks are DEPTH frames deep where they are left. A slice is long enough for
everything that a tool does again and again, and short enough that most are not disturbed by
other programs of the machine.
"""

from __future__ import annotations

import cProfile
import importlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from statistics import median
from time import monotonic_ns, process_time_ns
from typing import Any

import gevent

GREENLETS = 20
DEPTH = 20
SLICE_NS = 20_000_000
QUERY = "user=4711&basket=17,23,42&country=NL&currency=EUR&total=119.90"


def parse(query: str) -> dict[str, str]:
    """Work of the kind that web programs do: calls, a generator, strings, a dict."""
    return dict(pairs(query))


def pairs(query: str) -> Iterator[tuple[str, str]]:
    """Name and value of each part."""
    for part in query.split("&"):
        name, _, value = part.partition("=")
        yield name, value


def basket_size(fields: dict[str, str]) -> int:
    """Number of things bought."""
    return len(fields["basket"].split(","))


def compute(pieces: int) -> int:
    """The work of one unit; a piece takes some microseconds."""
    total = 0
    for _ in range(pieces):
        total += basket_size(parse(QUERY))
    return total


def descend(frames: int, bottom: Callable[[], object]) -> object:
    """Calls `bottom`, whose frame is then the last of `frames`."""
    if frames <= 2:
        return bottom()
    return descend(frames - 1, bottom)


class Workload:
    """The greenlets and what they have done."""

    def __init__(self) -> None:
        self.pieces = 1  # of work in a unit; 0 in a window as fast as it goes
        self._end_ns = 0
        self._units = 0
        self._cut_units = 0
        self._cut_ns = 0
        self._cut_cpu_ns = 0
        self._slices: list[tuple[float, float]] = []

    def calibrate(self, switches_per_second: float) -> dict[str, float]:
        """Chooses `pieces`; two points give what hand-over and piece cost."""
        wanted_ns = 2e9 / switches_per_second
        few, many = 4, 40
        for _ in range(3):
            few_ns, many_ns = self._unit_ns(few), self._unit_ns(many)
            piece_ns = (many_ns - few_ns) / (many - few)
            self.pieces = max(0, round((wanted_ns - few_ns) / piece_ns + few))
            few, many = max(1, self.pieces // 2), self.pieces * 2
        return {"pieces": self.pieces}

    def window(self, seconds: float) -> dict[str, float]:
        """Work for so long."""
        self._units = self._cut_units = 0
        self._slices = []
        self._cut_ns, self._cut_cpu_ns = begin_ns, begin_cpu_ns = monotonic_ns(), process_time_ns()
        self._end_ns = self._cut_ns + int(seconds * 1e9)
        gevent.joinall([gevent.spawn(self._worker) for _ in range(GREENLETS)])
        wall_ns, cpu_ns = zip(*self._slices, strict=True)
        return {
            "units": self._units,
            "switches": 2 * self._units,
            "wall_ns": median(wall_ns),
            "cpu_ns": median(cpu_ns),
            "mean_wall_ns": (monotonic_ns() - begin_ns) / self._units,
            "mean_cpu_ns": (process_time_ns() - begin_cpu_ns) / self._units,
        }

    def _unit_ns(self, pieces: int) -> float:
        self.pieces = pieces
        return self.window(0.3)["cpu_ns"]

    def _cut(self, now_ns: int) -> None:
        """Ends a slice."""
        units, cpu_ns = self._units - self._cut_units, process_time_ns()
        self._slices.append(((now_ns - self._cut_ns) / units, (cpu_ns - self._cut_cpu_ns) / units))
        self._cut_units, self._cut_ns, self._cut_cpu_ns = self._units, now_ns, cpu_ns

    def _worker(self) -> None:
        # Above it on the stack is only gevent.sleep(), when it hands over.
        descend(DEPTH - 2, self._serve)

    def _serve(self) -> None:
        while (now_ns := monotonic_ns()) < self._end_ns:
            if now_ns - self._cut_ns >= SLICE_NS and self._units > self._cut_units:
                self._cut(now_ns)
            compute(self.pieces)
            self._units += 1
            gevent.sleep(0)


class Monitor:
    """gevent's own: a native thread and a trace function at every switch."""

    def start(self) -> None:
        warnings.simplefilter("ignore")  # that it cannot watch memory without psutil
        gevent.config.monitor_thread = True
        gevent.get_hub().start_periodic_monitoring_thread()

    def stop(self) -> None:
        hub = gevent.get_hub()
        hub.periodic_monitoring_thread.kill()
        hub.periodic_monitoring_thread = None


class Yappi:
    """Wall clock, a context for each greenlet, as its documentation has it for gevent."""

    def __init__(self) -> None:
        self._yappi: Any = importlib.import_module("yappi")

    def start(self) -> None:
        self._yappi.set_context_backend("greenlet")
        self._yappi.set_clock_type("wall")
        self._yappi.start(profile_threads=False)

    def stop(self) -> None:
        self._yappi.stop()
        self._yappi.clear_stats()


class CProfile:
    """The standard library's; it knows no greenlets, so its figures are wrong, its cost is not."""

    def start(self) -> None:
        self._profile = cProfile.Profile()
        self._profile.enable()

    def stop(self) -> None:
        self._profile.disable()


PROFILERS = {"monitor": Monitor, "yappi": Yappi, "cprofile": CProfile}


def main() -> None:
    """Serves commands until stdin ends."""
    workload, profilers = Workload(), dict[str, Any]()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        answer: dict[str, Any] = {}
        match line.split():
            case ["calibrate", rate]:
                answer = workload.calibrate(float(rate))
            case ["window", seconds]:
                answer = workload.window(float(seconds))
            case ["profiler", name, "on"]:
                try:
                    profilers[name] = PROFILERS[name]()
                    profilers[name].start()
                except ImportError as error:
                    answer = {"unavailable": str(error)}
            case ["profiler", name, "off"]:
                profilers.pop(name).stop()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
