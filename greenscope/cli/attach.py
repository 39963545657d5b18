"""`greenscope attach PID`: watch a running process and print what held its hub."""

from __future__ import annotations

from typing import Any

import click

from greenscope.bpf.loader import Kernel
from greenscope.checks.privileges import require_privileges
from greenscope.cli.options import gather, watch_options
from greenscope.cli.outlets import Outlets, say
from greenscope.cli.watch import ProgressLine, stop_on_signals, watch
from greenscope.offsets.program import Program, inspect_program
from greenscope.target.process import resolve_pid
from greenscope.tracer import Tracer


@click.command(short_help="Watch a process, then report.")
@click.argument("pid", type=click.IntRange(min=1))
@watch_options
def attach(pid: int, **values: Any) -> None:
    """Watch process PID until Ctrl-C, its end or --duration; then report its hotspots.

    The process is not stopped, signalled or changed. Needs root.

    \b
      greenscope attach 4321                      until Ctrl-C
      greenscope attach 4321 -d 30s -t 50ms       half a minute, holds of 50 ms and more
      greenscope attach 4321 -d 1m -o day1.gscope and keep the records
    """
    options = gather(values)
    # Everything that can be wrong is found out before the slow part.
    require_privileges()
    program = inspect_program(resolve_pid(pid))
    with stop_on_signals() as stop:
        say(options, f"attaching to {describe(program)} ...")
        tracer = Tracer(program, Kernel(options.tracing.limits), options.tracing)
        with tracer:
            with Outlets(options, tracer.session) as outlets:
                say(options, "attached; Ctrl-C ends the watch")
                line = ProgressLine(enabled=not options.quiet)
                watch(tracer, outlets.sinks, stop, options.duration_ns, line)
            # Before detaching, for which the kernel takes a second.
            outlets.report()


def describe(program: Program) -> str:
    """A target in one line, for the user to see that it is the right one."""
    process, greenlet = program.process, program.greenlet
    gevent = "gevent" if program.has_gevent else "no gevent"
    return (
        f"{process.pid} ({process.comm}): CPython {program.python.full_version}, "
        f"greenlet {greenlet.version or '?'}, {gevent}"
    )
