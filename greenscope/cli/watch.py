"""Watching a target until somebody or something ends it, and the line that shows how far."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from types import FrameType

from greenscope.model import Record
from greenscope.ship.sink import Sink
from greenscope.tracer import Progress, Tracer

PROGRESS_INTERVAL_S = 0.25
_CLEAR_LINE = "\r\x1b[K"


class Stop:
    """Ctrl-C and SIGTERM as something to wait for: `fd` is readable once one came.

    `number` is the signal that came, None so far.
    """

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.number: int | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """The signal handler. A second signal gets the default again: it ends at once."""
        signal.signal(number, signal.SIG_DFL)
        self.number = number
        os.write(self._write_fd, b"x")

    def close(self) -> None:
        """Gives the pipe back."""
        os.close(self.fd)
        os.close(self._write_fd)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Takes SIGINT and SIGTERM over for the block."""
    stop = Stop()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stop.close()


class ProgressLine:
    """One line on stderr that is written over; nothing where stderr is no terminal."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled and sys.stderr.isatty()
        self._next_s = 0.0

    def show(self, progress: Progress) -> None:
        """Writes the line if the last one is old enough."""
        now_s = time.monotonic()
        if not self._enabled or now_s < self._next_s:
            return
        self._next_s = now_s + PROGRESS_INTERVAL_S
        seconds = progress.watched_ns / 1e9
        rate = progress.switches / seconds if seconds else 0.0
        sys.stderr.write(
            f"{_CLEAR_LINE}{seconds:7.1f} s  {progress.switches:,} switches ({rate:,.0f}/s)  "
            f"{progress.holds:,} blocking holds  {progress.lost:,} lost   Ctrl-C ends"
        )
        sys.stderr.flush()

    def clear(self) -> None:
        """Takes the line away."""
        if self._enabled:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()


def watch(
    tracer: Tracer,
    sinks: Sequence[Sink],
    stop: Stop,
    duration_ns: int | None,
    line: ProgressLine,
) -> str:
    """Drains the tracer into the sinks until the end; gives why it ended.

    That is "detached" (a signal), "duration", or "exited" (the target's end).
    """
    deadline = None if duration_ns is None else time.monotonic_ns() + duration_ns
    pid_fd = _pidfd(tracer.program.process.pid)
    poller = select.poll()
    for fd in (*tracer.fds, stop.fd, *([] if pid_fd is None else [pid_fd])):
        poller.register(fd, select.POLLIN)
    why = "exited" if pid_fd is None else ""
    while not why:
        left_ms = PROGRESS_INTERVAL_S * 1000
        if deadline is not None:
            left_ms = max(0.0, min(left_ms, (deadline - time.monotonic_ns()) / 1e6))
        ready = {fd for fd, _ in poller.poll(left_ms)}
        _write(sinks, tracer.poll())
        line.show(tracer.progress)
        if stop.fd in ready:
            why = "detached"
        elif pid_fd in ready:
            why = "exited"
        elif deadline is not None and time.monotonic_ns() >= deadline:
            why = "duration"
    line.clear()
    _write(sinks, tracer.finish(why))
    if pid_fd is not None:
        os.close(pid_fd)
    return why


def _write(sinks: Sequence[Sink], records: list[Record]) -> None:
    if records:
        for sink in sinks:
            sink.write(records)


def _pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None if it has."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None
