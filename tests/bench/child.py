"""A program that is measured: it answers each line on stdin with a line of JSON on stdout."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from greenscope.tracer import Tracer
from tests.harness import default_python

HERE = Path(__file__).resolve().parent
POLL_MS = 250
TIMEOUT_S = 120.0

Answer = dict[str, Any]


class ChildError(Exception):
    """The program ended or did not answer in time; the message holds what it said last."""


class Child:
    """One run of tests/bench/NAME.py on a CPU of its own; ended with the block."""

    def __init__(self, name: str) -> None:
        self._stack = ExitStack()
        self._process = subprocess.Popen(
            [default_python(), str(HERE / f"{name}.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,
        )
        self._stack.callback(self._end)
        self._pending = b""
        self.pid = self._process.pid
        os.sched_setaffinity(self.pid, {target_cpu()})

    def ask(self, command: str, tracer: Tracer | None = None) -> Answer:
        """Sends a command and gives its answer; `tracer` is drained meanwhile."""
        self.begin(command)
        return self.answer(tracer)

    def begin(self, command: str) -> None:
        """Sends a command; `answer()` is for later."""
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), command.encode() + b"\n")

    def has_answer(self) -> bool:
        """Whether `answer()` would not wait."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def answer(self, tracer: Tracer | None = None) -> Answer:
        """The next line, waited for as `greenscope attach` waits: by poll(), draining rings."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        for ring in tracer.fds if tracer else ():
            poller.register(ring, select.POLLIN)
        deadline = time.monotonic() + TIMEOUT_S
        while b"\n" not in self._pending:
            ready = dict(poller.poll(POLL_MS))
            if tracer:
                tracer.poll()
            if fd in ready:
                data = os.read(fd, 65536)
                if not data:
                    raise ChildError(f"it ended with {self._process.wait()}")
                self._pending += data
            if time.monotonic() > deadline:
                raise ChildError("no answer in time")
        line, _, self._pending = self._pending.partition(b"\n")
        answer: Answer = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        try:
            self.answer()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


def target_cpu() -> int:
    """The CPU of what is measured: the last one that we may use."""
    return max(os.sched_getaffinity(0) | _agent_cpus)


def leave_target_cpu() -> None:
    """Keeps this process (the agent) off the CPU of what is measured, where there are two."""
    _agent_cpus.update(os.sched_getaffinity(0))
    others = _agent_cpus - {max(_agent_cpus)}
    if others:
        os.sched_setaffinity(0, others)


_agent_cpus: set[int] = set()
