"""Customers of the shop: each walks the same journey over and over, from another step.

Usage: load.py PORT MAX_SECONDS. Prints a line at the first answer. When stdin is closed, or
after MAX_SECONDS, prints how long the customers waited for each route.
"""

from __future__ import annotations

import http.client
import select
import statistics
import sys
import threading
import time
from collections import defaultdict

CUSTOMERS = 6
THINK_S = 0.1
FIRST_ANSWER_S = 10.0
JOURNEY = (
    *("/products", "/recommendations", "/products", "/products", "/checkout"),
    *("/products", "/products", "/reserve", "/products", "/recommendations"),
    *("/products", "/report", "/products", "/recommendations", "/checkout"),
    *("/products", "/products", "/recommendations", "/reserve", "/products"),
)


class Load:
    """Waiting times by route, in seconds, of all customers together."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.waited: defaultdict[str, list[float]] = defaultdict(list)
        self.failures = 0
        self.over = threading.Event()
        self.answered = threading.Event()

    def customer(self, first_step: int) -> None:
        step = first_step
        while not self.over.is_set():
            self.ask(JOURNEY[step % len(JOURNEY)])
            self.over.wait(THINK_S)
            step += 1

    def ask(self, path: str) -> None:
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            connection.getresponse().read()
        except OSError:
            self.failures += 1
            return
        finally:
            connection.close()
        self.waited[path].append(time.monotonic() - began)
        self.answered.set()

    def report(self) -> str:
        lines = ["  route              requests   median    worst"]
        for path, waits in sorted(self.waited.items()):
            median_ms, worst_ms = statistics.median(waits) * 1e3, max(waits) * 1e3
            lines.append(f"  {path:18} {len(waits):8} {median_ms:5.0f} ms {worst_ms:5.0f} ms")
        if self.failures:
            lines.append(f"  {self.failures} requests failed")
        return "\n".join(lines)


def main() -> None:
    port, max_seconds = sys.argv[1:]
    load = Load(int(port))
    steps = range(0, len(JOURNEY), max(1, len(JOURNEY) // CUSTOMERS))
    customers = [
        threading.Thread(target=load.customer, args=(step,), daemon=True)
        for step in list(steps)[:CUSTOMERS]
    ]
    for thread in customers:
        thread.start()
    if not load.answered.wait(FIRST_ANSWER_S):
        sys.exit("no answer from the shop")
    print("answered", flush=True)
    select.select([sys.stdin], [], [], float(max_seconds))
    load.over.set()
    for thread in customers:
        thread.join()
    print(load.report(), flush=True)


if __name__ == "__main__":
    main()
