"""More than 100,000 switches of gevent greenlets, with kills and timeouts, counted exactly.

No switch happens outside the script: between ready and go, and between done and quit, the
main greenlet sits in a plain read, so that no hub runs; the process leaves by os._exit.
So the count of a tool that is attached at `ready` and reads its counters at `done` (or at
exit) must equal `switches`.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from typing import Any

import gevent
import greenlet
from gevent.event import AsyncResult, Event
from gevent.queue import Queue

from switch_tally import SwitchTally
from truth import option, scripted


class Rejected(Exception):
    """What the script's greenlets raise and are killed with."""


class Labelled(gevent.Greenlet):  # type: ignore[type-arg]  # not generic at run time
    """A gevent greenlet that knows its own name."""

    def __init__(self, label: str, run: Any, *args: Any) -> None:
        gevent.Greenlet.__init__(self, run, *args)
        self.label = label


def label_of(switched: Any) -> str:
    if switched is gevent.get_hub():
        return "hub"
    return str(getattr(switched, "label", "main"))


def started(label: str, run: Any, *args: Any) -> Labelled:
    made = Labelled(label, run, *args)
    made.start()
    return made


def yielder(times: int) -> None:
    for _ in range(times):
        gevent.sleep(0)


def sender(queue: Queue[int], times: int) -> None:
    for number in range(times):
        queue.put(number)
    queue.put(-1)


def receiver(queue: Queue[int]) -> int:
    received = 0
    while queue.get() >= 0:
        received += 1
    return received


def stubborn(finished: Event) -> None:
    """Outlives every kill but the last."""
    while not finished.is_set():
        with suppress(Rejected):
            finished.wait()


def impatient(times: int) -> None:
    never = Event()
    for _ in range(times):
        with suppress(gevent.Timeout), gevent.Timeout(0.0005):
            never.wait()


def fail() -> None:
    raise Rejected("raised inside")


def ask(answer: AsyncResult[int]) -> None:
    answer.get()


def busy_traffic(switches: int) -> list[Labelled]:
    """Greenlets that together make about this many switches, two for each yield."""
    each = switches // 100
    queue: Queue[int] = Queue(1)
    made = [started("yielder-%d" % number, yielder, each) for number in range(50)]
    made.append(started("sender", sender, queue, 2000))
    made.append(started("receiver", receiver, queue))
    made.append(started("impatient", impatient, 50))
    return made


def kill_each_way(times: int, did: Counter[str]) -> None:
    finished = Event()
    hardy = started("stubborn", stubborn, finished)
    gevent.sleep(0)
    for _ in range(times):
        hardy.kill(Rejected("not yet"), block=False)
        gevent.sleep(0)
        started("never_ran", yielder, 1).kill()
        asleep = started("asleep", gevent.sleep, 60)
        gevent.sleep(0)
        asleep.kill()
        failing = started("failing", fail)
        failing.join()
        answer: AsyncResult[int] = AsyncResult()
        asking = started("asking", ask, answer)
        answer.set(1)
        asking.get()
        did["killed"] += 3
        did["failed"] += 1
    finished.set()
    hardy.join()


def main() -> None:
    did: Counter[str] = Counter()
    tally = SwitchTally(label_of)
    # The hub prints what escapes from a greenlet; here that is meant to happen.
    gevent.get_hub().NOT_ERROR += (Rejected,)
    with scripted(os.read) as truth:
        tally.start()
        traffic = busy_traffic(option("switches", 100_000))
        kill_each_way(300, did)
        gevent.joinall(traffic)
        tally.stop()
        tally.write(truth, dict(did))
    os._exit(0)


if __name__ == "__main__":
    assert greenlet.getcurrent().parent is None
    main()
