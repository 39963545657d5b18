"""Runs the shop under load, attaches greenscope to it, prints what it finds, and cleans up.

Exits with greenscope's own exit code. Nothing that it starts outlives it.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# The load stops when it is told to; this only bounds it should that never happen.
LOAD_LEFT_OVER_S = 120
PATIENCE_S = 10.0


class DemoFailed(Exception):
    """One of the demo's own programs did not start."""


class Background:
    """A program of the demo in the background; it says one line when it is ready."""

    def __init__(self, stack: ExitStack, python: str, script: str, *args: str) -> None:
        self.script = script
        self.process = subprocess.Popen(
            [python, HERE / script, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C ends the watch, not what is watched.
            start_new_session=True,
        )
        stack.callback(end, self.process)

    def ready_line(self) -> str:
        """Wait for the line; a program that ends instead fails the demo."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            raise DemoFailed(f"{self.script} ended with {self.process.wait()}")
        return line

    def close_and_read(self) -> str:
        """Close its stdin and give all that it still says."""
        return self.process.communicate(timeout=PATIENCE_S)[0]


def end(process: subprocess.Popen[Any]) -> None:
    """Terminate it by its pid, and do not return before it has ended."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def default_shop_python() -> str:
    """An interpreter that has gevent: the targets' environment where `make` has built it."""
    environment = ROOT / ".venv-target" / "bin" / "python"
    return str(environment) if environment.exists() else sys.executable


def default_greenscope() -> str:
    beside = Path(sys.executable).with_name("greenscope")
    return str(beside) if beside.exists() else "greenscope"


def parsed_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--duration", type=float, default=10.0, help="seconds to watch (10)")
    parser.add_argument(
        "--greenscope",
        default=os.environ.get("GREENSCOPE") or default_greenscope(),
        help="the greenscope command (also by GREENSCOPE in the environment)",
    )
    parser.add_argument(
        "--python",
        default=os.environ.get("GREENSCOPE_TARGET_PYTHON") or default_shop_python(),
        help="the interpreter of the shop, which needs gevent",
    )
    parser.add_argument("attach_options", nargs="*", help="more options for attach, behind --")
    return parser.parse_args()


def attach(command: list[str]) -> int:
    """Run attach; on Ctrl-C have it end its watch, and wait for the report that it prints then.

    It has a session of its own, so that it gets one SIGINT however ours was sent.
    """
    process = subprocess.Popen(command, start_new_session=True)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        return process.wait(PATIENCE_S)
    finally:
        end(process)


def run_demo(stack: ExitStack, options: argparse.Namespace) -> int:
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="greenscope-demo-"))
    stock_file = Path(directory, "stock")
    stock_file.touch()
    backends = Background(stack, sys.executable, "backends.py", str(stock_file))
    shop = Background(stack, options.python, "shop.py", backends.ready_line(), str(stock_file))
    port = shop.ready_line()
    seconds = str(options.duration + LOAD_LEFT_OVER_S)
    load = Background(stack, sys.executable, "load.py", port, seconds)
    load.ready_line()
    command = [*shlex.split(options.greenscope), "attach", str(shop.process.pid)]
    command += ["--duration", f"{options.duration:g}", *options.attach_options]
    print(f"A gevent shop (pid {shop.process.pid}) serves customers on 127.0.0.1:{port}.")
    print("$", shlex.join(command), flush=True)
    code = attach(command)
    print("\nWhat the shop's customers saw meanwhile:")
    print(load.close_and_read(), end="", flush=True)
    return code


def exit_on_signal(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    signal.signal(signal.SIGTERM, exit_on_signal)
    options = parsed_arguments()
    try:
        with ExitStack() as stack:
            return run_demo(stack, options)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (DemoFailed, FileNotFoundError, subprocess.TimeoutExpired) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
