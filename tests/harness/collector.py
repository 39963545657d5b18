"""A real `greenscope-collector serve` for tests, and one that is killed at a chosen moment."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from greenscope.records.address import Address, parse_address

TIMEOUT_S = 60.0
_LISTENING = re.compile(r"listening on (unix:\S+) and (tcp://\S+),")


class Collector:
    """A running collector. `log` is what it said so far, one line after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log: list[str] = []
        self._ended = False
        self._changed = threading.Condition()
        threading.Thread(target=self._read, args=[process.stderr], daemon=True).start()
        match = _LISTENING.search(self.wait_for_log("listening on "))
        assert match
        self.unix: Address = parse_address(match[1])
        self.tcp: Address = parse_address(match[2])

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    self.log.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for_log(self, text: str) -> str:
        """The first line that contains the text; waits for it."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._find(text), TIMEOUT_S)
            line = self._find(text)
        assert line, f"{text!r} is not in the log: {self.log}"
        return line

    def _find(self, text: str) -> str:
        return next((line for line in self.log if text in line), "")

    def end(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal and gives the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """The exit code of a collector that ends."""
        return self.process.wait(TIMEOUT_S)


@contextlib.contextmanager
def running_collector(data: Path, *options: str, prelude: str = "") -> Iterator[Collector]:
    """Serves `data` on a free port and a short unix path; `prelude` is run in it before.

    It is killed at the end if it has not ended by then.
    """
    with tempfile.TemporaryDirectory() as directory:
        arguments = [
            "greenscope-collector", "serve", "--data", str(data), "--listen", "127.0.0.1:0",
            "--unix", f"{directory}/c.sock", *options,
        ]  # fmt: skip
        program = f"import sys; sys.argv = {arguments!r}\n{prelude}\n"
        program += "from collector.cli import main\nmain()\n"
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            yield Collector(process)
        finally:
            process.kill()
            process.wait()


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`greenscope-collector` with the arguments, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "collector.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=TIMEOUT_S,
        check=False,
    )
