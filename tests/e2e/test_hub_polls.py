"""The sleep of a hub's own loop is never a hold, whenever greenscope attaches.

The moment of an attach decides what is known of the hub when its first poll is seen, so this
attaches often: more than 60 times to a program that computes and to one that idles.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.harness import RunningTarget, run_target
from tests.harness.agent import attached_agent, functions, guilty, run_cli

pytestmark = pytest.mark.bpf

ROUNDS = 8  # for each loop, with the machine idle and busy
LOOPS = (
    {"GEVENT_LOOP": "libev-cext", "GEVENT_BACKEND": "epoll"},
    {"GEVENT_LOOP": "libev-cext", "GEVENT_BACKEND": "poll"},
    {"GEVENT_LOOP": "libev-cext", "GEVENT_BACKEND": "select"},
    {"GEVENT_LOOP": "libuv"},
)
BURN = "while True: pass"


@contextmanager
def busy_cores(busy: bool) -> Iterator[None]:
    """Two other programs that compute all the time, if wanted."""
    burners = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(2 if busy else 0)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def of_the_loop(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Hotspots that blame gevent's own code."""
    return [spot for spot in guilty(report) if "/gevent/" in spot["file"]]


def watch_both(*targets: RunningTarget) -> list[dict[str, Any]]:
    """Half a second of each, at the same time."""
    with ExitStack() as stack:
        agents = [stack.enter_context(attached_agent(t.pid, "-d", "500ms")) for t in targets]
        return [agent.report() for agent in agents]


@pytest.mark.parametrize("busy", [False, True], ids=["idle machine", "busy machine"])
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: "-".join(loop.values()))
def test_no_poll_of_a_loop_is_a_hold(loop: dict[str, str], busy: bool) -> None:
    computing = ("ms=30", "pause_ms=20", "times=1000000")
    with (
        busy_cores(busy),
        run_target("cpu_loop", env=loop, args=computing) as computes,
        run_target("idle_server", env=loop) as idles,
    ):
        computes.go()
        for _ in range(ROUNDS):
            computed, idled = watch_both(computes, idles)
            assert of_the_loop(computed) == []
            assert "count_primes" in functions(guilty(computed))
            assert guilty(idled) == []
            (hub,) = (thread for thread in idled["threads"] if thread["has_hub"])
            assert hub["idle_ns"] > 0.9 * idled["session"]["duration_ns"]


HUBS_MADE_LATER = """
import threading, time
import gevent
def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
def turns():
    for _ in range(12):
        compute(0.03)
        gevent.sleep(0.02)
def thread():
    gevent.spawn(turns).join()
for _ in range(3):
    gevent.spawn(turns).join()
    one = threading.Thread(target=thread)  # by itself: who waits for the GIL is really held
    one.start()
    one.join()
"""


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: "-".join(loop.values()))
def test_hubs_that_are_made_during_the_watch(loop: dict[str, str], target_python: str) -> None:
    """With `run` not even gevent is there when the watch begins; then threads come and go."""
    command = (target_python, "-c", HUBS_MADE_LATER)
    found = run_cli("run", "--json", "-q", "--", *command, env=loop)
    assert found.returncode == 0, found.stderr
    report = json.loads(found.stdout)
    assert of_the_loop(report) == []
    assert "compute" in functions(guilty(report))
    hubs = [thread for thread in report["threads"] if thread["has_hub"]]
    assert len(hubs) == 4
    for hub in hubs:
        # 12 x 20 ms, and three times as much on the main thread.
        assert hub["idle_ns"] > 180_000_000
