"""What a watch does to its target while it lasts, and what it leaves: nothing."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bpf.kernel_objects import (
    GONE_TIMEOUT_S,
    bpf_objects,
    footprint,
    is_in_kernel,
    perf_events,
    wait_until,
)
from tests.bpf.tracing import watching
from tests.harness import RunningTarget, pending_signals, run_target, state_watch
from tests.harness.agent import COMMAND, attached_agent

pytestmark = pytest.mark.bpf


def check_alive(target: RunningTarget) -> None:
    """It does its script, and ends by itself without having seen a signal."""
    target.go()
    target.wait_done()
    assert target.quit().returncode == 0


def test_probes_are_in_the_target_while_it_is_watched(target_python: str) -> None:
    with run_target("short_greenlets", target_python) as target:
        place = footprint(target.pid)
        assert place.is_untouched()
        with watching(target):
            assert place.has_breakpoint()
            # python:gc__start and python:gc__done, each with a listener.
            assert place.semaphore_counts() == [1, 1]


def test_nothing_is_left_when_the_tracer_exits(target_python: str) -> None:
    with run_target("short_greenlets", target_python) as target:
        place = footprint(target.pid)
        before, events_before = bpf_objects("self"), perf_events("self")
        with watching(target):
            ours = bpf_objects("self") - before
            assert {kind for kind, _ in ours} >= {"prog_id", "map_id"}
            assert perf_events("self") > events_before
        assert place.is_untouched()
        assert bpf_objects("self") <= before
        assert perf_events("self") == events_before
        assert wait_until(lambda: not any(map(is_in_kernel, ours)))
        check_alive(target)


def test_nothing_is_left_when_the_agent_is_killed(target_python: str) -> None:
    """Case D3: not even a semaphore, of which bcc's own attaching leaves one."""
    with run_target("short_greenlets", target_python) as target:
        place = footprint(target.pid)
        with attached_agent(target.pid) as agent:
            ours = bpf_objects(agent.process.pid)
            assert place.has_breakpoint()
            assert place.semaphore_counts() == [1, 1]
            agent.process.kill()
            agent.process.wait()
        assert ours
        assert wait_until(place.is_untouched)
        assert wait_until(lambda: not any(map(is_in_kernel, ours)))
        check_alive(target)


def test_target_is_never_stopped(target_python: str) -> None:
    """Case A8, at about 1 kHz from before the attach until behind the detach."""
    with (
        run_target("switch_script_gevent", target_python, args=("switches=20000",)) as target,
        state_watch(target.pid) as states,
    ):
        states.wait_rounds(10)
        with watching(target) as watch:
            watch.run_script(target)
            watch.finish()
        states.wait_rounds(states.rounds + 10)
    assert states.stopped == 0
    assert states.rounds > 100


def test_no_signal_reaches_the_target(target_python: str) -> None:
    """Case B4."""
    with run_target("well_behaved", target_python) as target:
        with watching(target) as watch:
            assert pending_signals(target.pid) == frozenset()
            watch.run_script(target)
            watch.finish()
        assert pending_signals(target.pid) == frozenset()
        report = target.quit()
    assert (report.returncode, report.signals) == (0, ())


def test_nothing_is_left_when_the_agent_is_killed_while_programs_are_built() -> None:
    """The process that builds them ends by itself."""
    with run_target("short_greenlets") as target:
        place = footprint(target.pid)
        agent = subprocess.Popen(
            [*COMMAND, "attach", str(target.pid)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children")
            assert wait_until(lambda: bool(children.read_text()))
            (builder,) = map(int, children.read_text().split())
            with open_pidfd(builder) as ended:
                agent.kill()
                agent.wait()
                assert select.select([ended], [], [], GONE_TIMEOUT_S)[0]
        finally:
            agent.kill()
            agent.communicate()
        assert place.is_untouched()
        check_alive(target)


@contextmanager
def open_pidfd(pid: int) -> Iterator[int]:
    fd = os.pidfd_open(pid)
    try:
        yield fd
    finally:
        os.close(fd)
