"""1001 short greenlets are spawned one after the other; addresses are reused at once."""

from __future__ import annotations

from collections import Counter

import gevent
import greenlet
from gevent.os import nb_read

from truth import option, scripted


def short_job(addresses: Counter[int]) -> None:
    addresses[id(greenlet.getcurrent())] += 1


def napping_job(addresses: Counter[int]) -> None:
    addresses[id(greenlet.getcurrent())] += 1
    gevent.sleep(0)


def main() -> None:
    addresses: Counter[int] = Counter()
    with scripted(nb_read) as truth:
        times = option("times", 1001)
        for number in range(times):
            job = napping_job if number % 10 == 0 else short_job
            gevent.spawn(job, addresses).join()
        naps = len(range(0, times, 10))
        truth.figure("greenlets", times)
        truth.figure("greenlets_of", {"short_job": times - naps, "napping_job": naps})
        # Each is switched to once, and once more after its nap.
        truth.figure("arrivals_of", {"short_job": times - naps, "napping_job": 2 * naps})
        truth.figure("addresses", len(addresses))


if __name__ == "__main__":
    main()
