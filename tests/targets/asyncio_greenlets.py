"""Greenlets over asyncio, as SQLAlchemy runs its synchronous half: greenlet_spawn().

One greenlet awaits (which is a switch to the loop's greenlet) and sometimes computes, so that the
loop stands still; a callback of the loop does so, too.
"""

from __future__ import annotations

import asyncio
import os
from time import monotonic_ns

from greenlet import getcurrent
from sqlalchemy.util.concurrency import await_only, greenlet_spawn

from truth import Truth, option, scripted


def compute(truth: Truth, greenlet: str) -> None:
    total = 0
    with truth.act("cpu", greenlet):
        deadline_ns = monotonic_ns() + 40_000_000
        while monotonic_ns() < deadline_ns:  # GUILTY
            total += 1  # GUILTY


def query(truth: Truth, times: int) -> None:
    for _ in range(times):
        await_only(asyncio.sleep(0.03))
        compute(truth, "query")


def tick(truth: Truth) -> None:
    total = 0
    with truth.act("cpu", "hub"):
        deadline_ns = monotonic_ns() + 30_000_000
        while monotonic_ns() < deadline_ns:  # GUILTY
            total += 1  # GUILTY


async def serve(truth: Truth, times: int) -> None:
    working = asyncio.ensure_future(greenlet_spawn(query, truth, times))
    for _ in range(3):
        await asyncio.sleep(0.15)
        asyncio.get_running_loop().call_soon(tick, truth)
    await working


def main() -> None:
    getcurrent()  # SQLAlchemy imports greenlet only when it is first needed
    with scripted(os.read) as truth:
        asyncio.run(serve(truth, option("times", 10)))


if __name__ == "__main__":
    main()
