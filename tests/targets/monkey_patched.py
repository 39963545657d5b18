"""The same guilty function with gevent's monkey patches made early, late or never.

`patch=before` patches before anything else, `patch=after` once the harness said go (so that
a tool is attached already), `patch=never` not at all. The truth is the same in all three.
"""

from __future__ import annotations

import importlib
from time import monotonic_ns
from time import sleep as real_sleep  # bound before any patch

import gevent
from gevent import monkey
from gevent.os import nb_read

from truth import Truth, option, scripted, sleep_reason

REPLACEMENTS = ("queue", "select", "selectors", "signal", "ssl", "subprocess", "threading")


def call_legacy_service(truth: Truth, seconds: float) -> None:
    with truth.act(sleep_reason(), "legacy"):
        real_sleep(seconds)  # GUILTY


def legacy(truth: Truth, times: int, seconds: float) -> None:
    for _ in range(times):
        call_legacy_service(truth, seconds)
        gevent.sleep(0.01)


def import_replacements() -> None:
    """Import before ready what patch_all() would import while it holds the hub."""
    for module in REPLACEMENTS:
        importlib.import_module("gevent." + module)


def patch_late(truth: Truth) -> None:
    """The figure says for how long patching held the hub."""
    begin_ns = monotonic_ns()
    monkey.patch_all()
    truth.figure("patching_ns", monotonic_ns() - begin_ns)


def main() -> None:
    patch = option("patch", "never")
    if patch == "before":
        monkey.patch_all()
    import_replacements()
    with scripted(nb_read) as truth:
        if patch == "after":
            patch_late(truth)
        seconds = option("ms", 40.0) / 1000
        gevent.spawn(legacy, truth, option("times", 8), seconds).get()


if __name__ == "__main__":
    main()
