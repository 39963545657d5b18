"""A process without a hub has no hold, whatever it imports and waits for."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.harness.agent import attached_agent, functions, guilty, run_cli

pytestmark = pytest.mark.bpf

# As gunicorn's, uWSGI's and celery's: imports gevent, forks, waits in a C call.
PREFORK_MASTER = """
import os, gevent
children = []
for _ in range(2):
    pid = os.fork()
    if not pid:
        gevent.sleep(600)
        os._exit(0)
    children.append(pid)
print(*children, flush=True)
for pid in children:
    os.waitpid(pid, 0)
"""
MULTIPROCESSING_PARENT = """
import multiprocessing, gevent
def work(ready):
    gevent.sleep(0)
    ready.set()
    gevent.sleep(600)
ready = multiprocessing.Event()
child = multiprocessing.Process(target=work, args=(ready,))
child.start()
ready.wait()
print(child.pid, flush=True)
child.join()
"""
# What `python -m gevent.monkey app` does before app uses its hub.
PATCHED_BEFORE_ITS_HUB = """
import ctypes
from gevent import monkey
monkey.patch_all()
print(flush=True)
ctypes.CDLL(None).sleep(600)
"""
STUCK_WITH_A_HUB = """
import gevent, time
gevent.sleep(0)
def stuck():
    time.sleep(600)
print(flush=True)
stuck()
"""


@contextlib.contextmanager
def started(python: str, program: str) -> Iterator[tuple[int, list[int]]]:
    """A program and the children that it names, once it has said so; ended with them."""
    process = subprocess.Popen([python, "-c", program], stdout=subprocess.PIPE, text=True)
    children: list[int] = []
    try:
        assert process.stdout is not None
        children = [int(pid) for pid in process.stdout.readline().split()]
        yield process.pid, children
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.communicate()


@pytest.mark.parametrize("program", [PREFORK_MASTER, MULTIPROCESSING_PARENT])
def test_a_parent_is_not_blocked_and_its_children_are_named(
    target_python: str, program: str
) -> None:
    with started(target_python, program) as (pid, children):
        with attached_agent(pid, "-d", "1s") as agent:
            report = agent.report()
        doctor = run_cli("doctor", str(pid))
    assert guilty(report) == []
    assert not report["has_hub"]
    assert {child["pid"] for child in report["hub_children"]} == set(children)
    assert doctor.returncode == 0
    assert all(str(child) in doctor.stdout for child in children)


def test_a_program_that_waits_before_it_has_a_hub_is_not_blocked(target_python: str) -> None:
    with (
        started(target_python, PATCHED_BEFORE_ITS_HUB) as (pid, _),
        attached_agent(pid, "-d", "1s") as agent,
    ):
        report = agent.report()
    assert guilty(report) == []
    assert not report["has_hub"]


def test_a_thread_stuck_in_its_first_call_with_a_hub_is_found(target_python: str) -> None:
    with (
        started(target_python, STUCK_WITH_A_HUB) as (pid, _),
        attached_agent(pid, "-d", "1s") as agent,
    ):
        report = agent.report()
    assert report["has_hub"]
    assert functions(guilty(report)) == {"stuck"}


def test_what_the_watch_takes_is_told(target_python: str) -> None:
    with (
        started(target_python, STUCK_WITH_A_HUB) as (pid, _),
        attached_agent(pid, "-d", "1s") as agent,
    ):
        cost = agent.report()["cost"]
    assert 0 < cost["agent_cpu_ns"] < 1_000_000_000
    assert cost["agent_rss_bytes"] > 10_000_000
