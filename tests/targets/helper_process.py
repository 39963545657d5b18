"""A second process that a target needs (a lock's holder, a server, a client)."""

from __future__ import annotations

import os
import sys

# Bound before any monkey.patch_all(): a helper is started without gevent's child watchers.
from subprocess import PIPE, Popen

from truth import Read, die_with_harness

HELPERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "helpers")


class Helper:
    """Runs helpers/NAME.py and speaks to it in lines; it ends when its stdin is closed.

    `read` is as in `truth.Control`: with `gevent.os.nb_read` the hub polls while the target
    waits for a line.
    """

    def __init__(self, read: Read, name: str, *args: str) -> None:
        die_with_harness()
        script = os.path.join(HELPERS, name + ".py")
        self._process = Popen([sys.executable, script, *args], stdin=PIPE, stdout=PIPE, bufsize=0)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin_fd = self._process.stdin.fileno()
        self._stdout_fd = self._process.stdout.fileno()
        self._read = read
        self._pending = b""
        os.set_blocking(self._stdout_fd, read is os.read)

    def say(self, line: str) -> None:
        os.write(self._stdin_fd, line.encode() + b"\n")

    def hear(self) -> str:
        """The next line that the helper writes."""
        while b"\n" not in self._pending:
            data = self._read(self._stdout_fd, 65536)
            if not data:
                sys.exit("a helper ended too early")
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode()
