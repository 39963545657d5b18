"""One hold of more than 100 ms that is made of 200 small blocks of half a millisecond."""

from __future__ import annotations

import time

import gevent
from gevent.os import nb_read

from truth import Truth, option, scripted, sleep_reason


def poll_device(truth: Truth, blocks: int) -> None:
    with truth.act(sleep_reason(), "poller"):
        for _ in range(blocks):
            time.sleep(0.0005)  # GUILTY


def poller(truth: Truth, times: int, blocks: int) -> None:
    for _ in range(times):
        poll_device(truth, blocks)
        gevent.sleep(0.01)


def main() -> None:
    with scripted(nb_read) as truth:
        blocks = option("blocks", 200)
        gevent.spawn(poller, truth, option("times", 3), blocks).get()
        truth.figure("blocks_in_each_act", blocks)


if __name__ == "__main__":
    main()
