"""More than 100,000 raw switches, throws and deaths, counted exactly; gevent is not imported.

No switch happens outside the script: the main greenlet waits for the harness in a plain
read, and nothing else exists. So the count of a tool that is attached at `ready` and reads
its counters at `done` (or at exit) must equal `switches`.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from typing import Any

import greenlet

from switch_tally import SwitchTally
from truth import option, scripted


class Rejected(Exception):
    """What the script throws into its greenlets."""


class Labelled(greenlet.greenlet):
    """A greenlet that knows its own name."""

    label = ""


def label_of(switched: Any) -> str:
    return str(getattr(switched, "label", "main"))


def labelled(label: str, run: Any) -> Labelled:
    made = Labelled(run)
    made.label = label
    return made


def echo() -> str:
    """Switch back to the parent for ever, also after something was thrown in."""
    parent = greenlet.getcurrent().parent
    assert parent is not None
    while True:
        with suppress(Rejected):
            parent.switch("echo")


def fail() -> None:
    raise Rejected("raised inside")


def relay(others: list[Labelled], times: int) -> None:
    """Switch to a sibling, which ends up in the parent; the parent switches back here."""
    for number in range(times):
        others[number % len(others)].switch()


def ping(workers: list[Labelled], switches: int) -> None:
    for number in range(switches // 2):
        workers[number % len(workers)].switch()


def throw_into(workers: list[Labelled], times: int) -> None:
    for number in range(times):
        workers[number % len(workers)].throw(Rejected("thrown"))


def deaths(times: int, did: Counter[str]) -> None:
    """Every way to end, each many times."""
    for _ in range(times):
        returns = labelled("returns", int)
        returns.switch()
        returns.switch()  # dead: its parent is the current greenlet, so nothing is switched
        fails = labelled("fails", fail)
        try:
            fails.switch()
        except Rejected:
            did["exceptions"] += 1
        never_ran = labelled("never_ran", echo)
        never_ran.throw()
        killed = labelled("killed", echo)
        killed.switch()
        killed.throw(greenlet.GreenletExit)
        dropped = labelled("dropped", echo)
        dropped.switch()
        del dropped  # greenlet throws GreenletExit into a suspended one that is freed
        greenlet.getcurrent().switch()
        did["deaths"] += 5


def script(switches: int, did: Counter[str]) -> None:
    workers = [labelled("worker-%d" % number, echo) for number in range(50)]
    for worker in workers:
        worker.switch()
    ping(workers, switches)
    throw_into(workers, 2000)
    deaths(500, did)
    relaying = labelled("relay", relay)
    relaying.switch(workers, 1000)
    while not relaying.dead:
        relaying.switch()
    did["relayed"] += 1000
    for worker in workers:
        worker.throw(greenlet.GreenletExit)
    did["thrown"] += 2000


def main() -> None:
    did: Counter[str] = Counter()
    tally = SwitchTally(label_of)
    with scripted(os.read) as truth:
        tally.start()
        script(option("switches", 100_000), did)
        tally.stop()
        tally.write(truth, dict(did))
    # At once: the interpreter's own end must not switch behind the count.
    os._exit(0)


if __name__ == "__main__":
    main()
