"""Two hundred greenlets that never hold the hub for long: no hotspot may appear.

The target times every hold by greenlet.settrace and every oversleep of a ticker itself, so
that a test can tell a noisy machine from a false report.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

import gevent
from gevent.event import Event
from gevent.os import nb_read
from gevent.queue import Queue

from hold_clock import HoldClock
from truth import option, scripted

TICK_NS = 5_000_000


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
        clock.start()
        gevent.sleep(option("seconds", 2.0))
        clock.stop()
        stop.set()
        gevent.joinall(greenlets)
        gevent.killall(consumers)
        clock.write(truth)
        truth.figure("largest_lag_ns", largest_lag_ns[0])
        truth.figure("greenlets", len(greenlets) + len(consumers))


if __name__ == "__main__":
    main()
