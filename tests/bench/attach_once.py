"""One attach as `greenscope attach` makes it, each step timed. Run as a program: PID START_NS.

START_NS is CLOCK_MONOTONIC when the program was started. Prints one line of JSON: ns that each
step took, in order, and `total`.
"""

from __future__ import annotations

import time

_imported_from_ns = time.monotonic_ns()

import json  # noqa: E402
import os  # noqa: E402
import select  # noqa: E402
import sys  # noqa: E402
from typing import Any  # noqa: E402

import greenscope.cli.attach  # noqa: E402, F401
from greenscope.bpf.loader import Kernel  # noqa: E402
from greenscope.model import Hold  # noqa: E402
from greenscope.offsets.btf import kernel_btf  # noqa: E402
from greenscope.offsets.program import inspect_program  # noqa: E402
from greenscope.tracer import Options, Tracer  # noqa: E402


class TimedKernel(Kernel):
    """Knows how long compiling took, and loading (verifying) wherever it happens."""

    compile_ns = 0
    load_ns = 0

    def _compile(self) -> Any:
        begin_ns = time.monotonic_ns()
        module = super()._compile()
        self.compile_ns = time.monotonic_ns() - begin_ns
        return module

    def _program(self, function: str, kind: int) -> int:
        begin_ns = time.monotonic_ns()
        fd = super()._program(function, kind)
        self.load_ns += time.monotonic_ns() - begin_ns
        return fd


def wait_for_hold(tracer: Tracer) -> None:
    """Returns when the first hold has a name."""
    poller = select.poll()
    for fd in tracer.fds:
        poller.register(fd, select.POLLIN)
    while not any(isinstance(record, Hold) for record in tracer.poll()):
        poller.poll(250)


def attach(pid: int, start_ns: int) -> dict[str, int]:
    """ns of each step; what is left of making the kernel side is `maps`."""
    steps = {"start Python": _imported_from_ns - start_ns}
    mark_ns = _imported_from_ns

    def end(step: str, without_ns: int = 0) -> None:
        nonlocal mark_ns
        now_ns = time.monotonic_ns()
        steps[step] = now_ns - mark_ns - without_ns
        mark_ns = now_ns

    end("import")
    program = inspect_program(pid)
    end("inspect the target")
    kernel_btf()
    end("read the kernel's BTF")
    kernel = TimedKernel()
    steps["compile"] = kernel.compile_ns
    loaded_ns = kernel.load_ns
    end("headers, maps, rings", kernel.compile_ns + loaded_ns)
    with Tracer(program, kernel, Options()) as tracer:
        end("attach", kernel.load_ns - loaded_ns)
        steps["load and verify"] = kernel.load_ns
        wait_for_hold(tracer)
        end("first hold")
        steps["total"] = time.monotonic_ns() - start_ns
        tracer.finish("measured")
    return steps


if __name__ == "__main__":
    print(json.dumps(attach(int(sys.argv[1]), int(sys.argv[2]))), flush=True)
    # Taking the compiled module apart is no part of an attach.
    os._exit(0)
