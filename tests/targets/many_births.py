"""Greenlets that end at once, spawned as fast as it goes; the figure `spawned` counts them."""

from __future__ import annotations

from time import monotonic_ns

import gevent
from gevent.os import nb_read

from truth import option, scripted

AT_ONCE = 100


def nothing() -> None:
    pass


def hand_over() -> None:
    gevent.sleep(0)


def main() -> None:
    with scripted(nb_read) as truth:
        spawned = 0
        until_ns = monotonic_ns() + int(option("seconds", 5.0) * 1e9)
        while monotonic_ns() < until_ns:
            gevent.joinall([gevent.spawn(one) for one in (nothing, hand_over) * (AT_ONCE // 2)])
            spawned += AT_ONCE
        truth.figure("spawned", spawned)


if __name__ == "__main__":
    main()
