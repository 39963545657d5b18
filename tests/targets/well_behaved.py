"""Two hundred greenlets that never hold the hub for long: no hotspot may appear.

The target times every hold by greenlet.settrace and every oversleep of a ticker itself, so
that a test can tell a noisy machine from a false report.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

import gevent
import greenlet
from gevent.event import Event
from gevent.os import nb_read
from gevent.queue import Queue

from truth import Truth, option, scripted

TICK_NS = 5_000_000


class HoldClock:
    """The longest and the sum of holds on this thread, the hub's time left out."""

    def __init__(self) -> None:
        self.hub = gevent.get_hub()
        self.since_ns = monotonic_ns()
        self.longest_ns = self.total_ns = self.switches = 0

    def __call__(self, event: str, args: Any) -> None:
        origin, target = args
        now_ns = monotonic_ns()
        if origin is not target:
            self.switches += 1
        if origin is not self.hub:
            self.total_ns += now_ns - self.since_ns
            self.longest_ns = max(self.longest_ns, now_ns - self.since_ns)
        self.since_ns = now_ns

    def write(self, truth: Truth) -> None:
        truth.figure("longest_hold_ns", self.longest_ns)
        truth.figure("total_hold_ns", self.total_ns)
        truth.figure("traced_switches", self.switches)


def short_work() -> int:
    return sum(number * number for number in range(500))


def producer(queue: Queue[int], stop: Event) -> None:
    while not stop.is_set():
        queue.put(short_work())
        gevent.sleep(0.05)


def consumer(queue: Queue[int]) -> None:
    while True:
        queue.get()
        short_work()


def waiter(stop: Event) -> None:
    while not stop.wait(0.05):
        short_work()


def ticker(stop: Event, largest_lag_ns: list[int]) -> None:
    while not stop.is_set():
        due_ns = monotonic_ns() + TICK_NS
        gevent.sleep(TICK_NS / 1e9)
        largest_lag_ns[0] = max(largest_lag_ns[0], monotonic_ns() - due_ns)


def main() -> None:
    with scripted(nb_read) as truth:
        stop, largest_lag_ns = Event(), [0]
        queue: Queue[int] = Queue()
        greenlets: list[Any] = [gevent.spawn(producer, queue, stop) for _ in range(60)]
        greenlets += [gevent.spawn(waiter, stop) for _ in range(79)]
        greenlets.append(gevent.spawn(ticker, stop, largest_lag_ns))
        consumers = [gevent.spawn(consumer, queue) for _ in range(60)]
        clock = HoldClock()
        greenlet.settrace(clock)
        gevent.sleep(option("seconds", 2.0))
        greenlet.settrace(None)
        stop.set()
        gevent.joinall(greenlets)
        gevent.killall(consumers)
        clock.write(truth)
        truth.figure("largest_lag_ns", largest_lag_ns[0])
        truth.figure("greenlets", len(greenlets) + len(consumers))


if __name__ == "__main__":
    main()
