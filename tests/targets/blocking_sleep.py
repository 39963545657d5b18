"""One greenlet calls the real time.sleep, three calls deep, while five others tick."""

from __future__ import annotations

import time

import gevent
from gevent.os import nb_read

from truth import Truth, option, scripted, sleep_reason


def wait_for_stock(truth: Truth, seconds: float) -> None:
    with truth.act(sleep_reason(), "sleeper"):
        time.sleep(seconds)  # GUILTY


def prepare_order(truth: Truth, seconds: float) -> None:
    wait_for_stock(truth, seconds)


def sleeper(truth: Truth, times: int, seconds: float) -> None:
    for _ in range(times):
        prepare_order(truth, seconds)
        gevent.sleep(0.01)


def ticker(ticks: list[int]) -> None:
    while True:
        gevent.sleep(0.005)
        ticks[0] += 1


def main() -> None:
    with scripted(nb_read) as truth:
        ticks = [0]
        tickers = [gevent.spawn(ticker, ticks) for _ in range(5)]
        seconds = option("ms", 40.0) / 1000
        gevent.spawn(sleeper, truth, option("times", 12), seconds).get()
        gevent.killall(tickers)
        truth.figure("ticks", ticks[0])


if __name__ == "__main__":
    main()
