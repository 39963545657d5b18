"""`greenscope run -- COMMAND`: start a command and watch it from its first switch on."""

from __future__ import annotations

import os
import select
import signal
from typing import Any

import click

from greenscope.attachment import EarlyProbes
from greenscope.bpf.loader import Kernel, online_cpus
from greenscope.bpf.mmap_events import MappingEvents
from greenscope.checks.privileges import require_privileges
from greenscope.cli.attach import describe
from greenscope.cli.options import WatchOptions, gather, watch_options
from greenscope.cli.outlets import Outlets, say
from greenscope.cli.watch import ProgressLine, Stop, stop_on_signals, watch
from greenscope.errors import GreenletNotFound
from greenscope.offsets.program import inspect_program
from greenscope.target.greenlet import is_greenlet_path
from greenscope.target.guess import greenlet_candidates
from greenscope.target.launch import HeldCommand, hold
from greenscope.tracer import Tracer


@click.command(short_help="Start a command and watch it.")
@watch_options
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(command: tuple[str, ...], **values: Any) -> None:
    """Start COMMAND and watch the first process of it that imports greenlet.

    Ends with the command, whose exit code it returns; --duration ends the watch alone.
    SIGTERM is passed on to the command.

    \b
      greenscope run -- python app.py
      greenscope run -d 30s -- python -m shop
    """
    options = gather(values)
    require_privileges()
    # Forked before there are threads.
    child = hold(command)
    try:
        kernel = Kernel(options.tracing.limits)
    except BaseException:
        child.abandon()
        raise
    with stop_on_signals() as stop, kernel:
        _watch_child(child, kernel, options, stop)
        # After the watch a first Ctrl-C or SIGTERM is for the command.
        _pass_on(child, stop)
    raise SystemExit(child.wait())


def _watch_child(child: HeldCommand, kernel: Kernel, options: WatchOptions, stop: Stop) -> None:
    early = EarlyProbes(kernel, child.pid, greenlet_candidates(child.command, os.environ))
    with MappingEvents(child.pid, online_cpus()) as mappings:
        child.release()
        pid = _wait_for_greenlet(child, mappings, stop)
    if pid is None:
        return
    program = inspect_program(pid)
    tracer = Tracer(program, kernel, options.tracing, early)
    with tracer:
        with Outlets(options, tracer.session) as outlets:
            say(options, f"watching {describe(program)}")
            line = ProgressLine(enabled=not options.quiet)
            watch(tracer, outlets.sinks, stop, options.duration_ns, line)
        outlets.report()


def _wait_for_greenlet(child: HeldCommand, mappings: MappingEvents, stop: Stop) -> int | None:
    """The first process that maps greenlet; None when a signal came first.

    Raises:
        GreenletNotFound: the command ended without.
    """
    poller = select.poll()
    child_fd = os.pidfd_open(child.pid)
    for fd in (*mappings.fds, child_fd, stop.fd):
        poller.register(fd, select.POLLIN)
    try:
        while True:
            ready = {fd for fd, _ in poller.poll()}
            for event in mappings.read():
                if is_greenlet_path(event.path):
                    return event.pid
            if stop.fd in ready:
                return None
            if child_fd in ready:
                code = child.wait()
                raise GreenletNotFound(
                    f"the command ended with exit code {code} before it imported greenlet",
                    "Run it by itself to see what it says.",
                )
    finally:
        os.close(child_fd)


def _pass_on(child: HeldCommand, stop: Stop) -> None:
    """Passes SIGTERM on. Ctrl-C needs no help: the terminal sends it to the command as well."""
    if stop.number == signal.SIGTERM and not child.has_ended():
        os.kill(child.pid, signal.SIGTERM)
