"""Runs `greenscope attach` as a user does: a process of its own, ended by Ctrl-C."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.harness.runner import RunningTarget

ATTACH_TIMEOUT_S = 60.0
END_TIMEOUT_S = 60.0
COMMAND = (sys.executable, "-m", "greenscope")


class AgentError(Exception):
    """The agent did not do what it should; the message carries its output."""


@dataclass(slots=True)
class Agent:
    """A running `greenscope attach --json`."""

    process: subprocess.Popen[bytes]
    heard: bytearray = field(default_factory=bytearray)

    def wait_attached(self) -> None:
        """Until it says that its probes are in place."""
        self.wait_words(b"attached")

    def wait_words(self, words: bytes) -> None:
        """Until `words` came on its stderr."""
        assert self.process.stderr
        fd = self.process.stderr.fileno()
        deadline = time.monotonic() + ATTACH_TIMEOUT_S
        while words not in self.heard:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise AgentError(f"no {words!r} in time: {bytes(self.heard)!r}")
            data = os.read(fd, 4096)
            if not data:
                raise AgentError(f"the agent ended: {bytes(self.heard).decode()}")
            self.heard += data

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def report(self) -> dict[str, Any]:
        """Waits for its end and gives the JSON document."""
        out, err = self.process.communicate(timeout=END_TIMEOUT_S)
        if self.process.returncode != 0:
            raise AgentError(f"exit code {self.process.returncode}: {self.heard!r} {err!r}")
        document: dict[str, Any] = json.loads(out)
        return document


@contextmanager
def attached_agent(pid: int, *options: str) -> Iterator[Agent]:
    """Attaches to a process; the block runs with the probes in place."""
    command = [*COMMAND, "attach", str(pid), "--json", *options]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        agent = Agent(process)
        agent.wait_attached()
        yield agent
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()


def watch_script(target: RunningTarget, *options: str) -> dict[str, Any]:
    """The report of a target's whole script: attach, go, done, Ctrl-C."""
    with attached_agent(target.pid, *options) as agent:
        target.go()
        target.wait_done()
        agent.interrupt()
        return agent.report()


def run_cli(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Any other command of greenscope, to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=END_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
        check=False,
    )


def guilty(report: dict[str, Any]) -> list[dict[str, Any]]:
    """The hotspots without those that the machine made: others ran while a thread waited.

    A busy machine can preempt any greenlet for longer than the threshold. Such a hold is true,
    but it says nothing of the target.
    """
    return [spot for spot in report["hotspots"] if spot["reason"] != "preempted"]


def functions(spots: Sequence[dict[str, Any]]) -> set[str]:
    """Their functions."""
    return {spot["function"] for spot in spots}
