"""One attach as `greenscope attach` makes it, each step timed. Run as a program: PID START_NS.

START_NS is CLOCK_MONOTONIC when the program was started. Prints one line of JSON: ns that each
step took, in order, and `total`.
"""

from __future__ import annotations

import time

_imported_from_ns = time.monotonic_ns()

import json  # noqa: E402
import select  # noqa: E402
import sys  # noqa: E402

import greenscope.cli.attach  # noqa: E402, F401
from greenscope.bpf.loader import Kernel  # noqa: E402
from greenscope.model import Hold  # noqa: E402
from greenscope.offsets.program import inspect_program  # noqa: E402
from greenscope.tracer import Options, Tracer  # noqa: E402


def wait_for_hold(tracer: Tracer) -> None:
    """Returns when the first hold has a name."""
    poller = select.poll()
    for fd in tracer.fds:
        poller.register(fd, select.POLLIN)
    while not any(isinstance(record, Hold) for record in tracer.poll()):
        poller.poll(250)


def attach(pid: int, start_ns: int) -> dict[str, int]:
    """ns of each step."""
    steps = {"start Python": _imported_from_ns - start_ns}
    mark_ns = _imported_from_ns

    def end(step: str) -> None:
        nonlocal mark_ns
        now_ns = time.monotonic_ns()
        steps[step] = now_ns - mark_ns
        mark_ns = now_ns

    end("import")
    program = inspect_program(pid)
    end("inspect the target")
    kernel = Kernel()
    end("build the kernel side")
    with Tracer(program, kernel, Options()) as tracer:
        end("attach")
        wait_for_hold(tracer)
        end("first hold")
        steps["total"] = time.monotonic_ns() - start_ns
        tracer.finish("measured")
    return steps


if __name__ == "__main__":
    print(json.dumps(attach(int(sys.argv[1]), int(sys.argv[2]))), flush=True)
