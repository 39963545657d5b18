"""The target's side of the protocol: fifos to the harness, and the truth of what was done.

A target runs as `python NAME.py CONTROL_DIR [option=value ...]`. CONTROL_DIR holds two fifos
made by the harness: `events` (one JSON object a line, to the harness) and `commands` (one
word a line, from it). The order is: ready, go, the script, truth.jsonl written, done, quit,
bye, exit 0. Times are `time.monotonic_ns()`, the clock of the kernel's `bpf_ktime_get_ns`.

This module imports no gevent, so that a target may do without, or import it late.
"""

from __future__ import annotations

import ctypes
import dis
import json
import os
import signal
import sys
import traceback
from contextlib import contextmanager
from threading import get_native_id  # the real one: bound before any monkey.patch_all()
from time import monotonic_ns, thread_time_ns
from types import CodeType, FrameType, TracebackType
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Type, TypeVar

MARK = "# GUILTY"
PR_SET_PDEATHSIG = 1  # linux/prctl.h
Read = Callable[[int, int], bytes]
Value = TypeVar("Value", int, float, str)
Location = Tuple[str, str, int]

_marks: Dict[str, List[int]] = {}
_marks_of_code: Dict[CodeType, List[int]] = {}


def option(name: str, default: Value) -> Value:
    """The value of `name=value` on the command line, of the type of the default."""
    for argument in sys.argv[2:]:
        key, _, value = argument.partition("=")
        if key == name:
            return type(default)(value)
    return default


def function_name(code: CodeType) -> str:
    """co_qualname where the interpreter has it (3.11), else co_name."""
    return str(getattr(code, "co_qualname", code.co_name))


def _marked_lines_of_file(file: str) -> List[int]:
    if file not in _marks:
        with open(file, encoding="utf-8") as source:
            _marks[file] = [number for number, text in enumerate(source, 1) if MARK in text]
    return _marks[file]


def guilty_lines(code: CodeType) -> List[int]:
    """Lines of this function that carry the mark; a function without any is a mistake here."""
    if code not in _marks_of_code:
        last = max(line for _, line in dis.findlinestarts(code) if line)
        marked = _marked_lines_of_file(code.co_filename)
        _marks_of_code[code] = [n for n in marked if code.co_firstlineno <= n <= last]
        if not _marks_of_code[code]:
            raise AssertionError("no %s line in %s" % (MARK, function_name(code)))
    return _marks_of_code[code]


def python_stack(frame: Optional[FrameType]) -> List[Location]:
    """(function, file, line) of the frame and its callers, innermost first."""
    stack = []
    while frame is not None:
        code = frame.f_code
        stack.append((function_name(code), code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return stack


class Act:
    """Times what its `with` block does; the function that has the block is to blame.

    The block holds nothing but the guilty call, so that begin and end are right around it.
    """

    def __init__(self, truth: Truth, fields: Dict[str, Any], announced: bool) -> None:
        self._truth = truth
        self._fields = fields
        self._announced = announced

    def __enter__(self) -> None:
        frame = sys._getframe(1)
        marked = guilty_lines(frame.f_code)
        stack = python_stack(frame)
        function, file, _ = stack[0]
        stack[0] = (function, file, marked[0])
        self._fields.update(function=function, file=file, line=marked[0], lines=marked, stack=stack)
        if self._announced:
            self._truth.control.tell("holding", **self._fields)
        self._cpu_begin_ns = thread_time_ns()
        self._fields["begin_ns"] = monotonic_ns()

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._fields["end_ns"] = monotonic_ns()
        self._fields["cpu_ns"] = thread_time_ns() - self._cpu_begin_ns
        self._truth.lines.append(self._fields)


class Truth:
    """What the target did, kept in memory until the script has ended."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.lines: List[Dict[str, Any]] = []

    def act(
        self,
        reason: str,
        greenlet: str = "",
        is_hub: bool = False,
        holds_hub: bool = True,
        announced: bool = False,
    ) -> Act:
        """A guilty act of the calling function, to be used as `with truth.act(...):`.

        `greenlet` is the target's own label for the greenlet. `holds_hub` is False where
        the act runs on a thread without a hub. An announced act sends the event `holding`
        right before it begins, with all that is known of it by then.
        """
        fields = {
            "kind": "act",
            "reason": reason,
            "greenlet": greenlet,
            "tid": get_native_id(),
            "is_hub": is_hub,
            "holds_hub": holds_hub,
        }
        return Act(self, fields, announced)

    def figure(self, name: str, value: Any) -> None:
        """A number (or a JSON value) that the target knows of itself."""
        self.lines.append({"kind": "figure", "name": name, "value": value})

    def stack(self, greenlet: str, frames: traceback.StackSummary) -> None:
        """What `traceback.extract_stack()` gave in that greenlet; stored innermost first."""
        rows = [(f.name, f.filename, f.lineno) for f in reversed(frames)]
        self.lines.append({"kind": "stack", "greenlet": greenlet, "frames": rows})

    def write(self, path: str) -> None:
        """Write truth.jsonl whole: it appears complete or not at all."""
        with open(path + ".new", "w", encoding="utf-8") as out:
            for line in self.lines:
                out.write(json.dumps(line) + "\n")
        os.rename(path + ".new", path)


def die_with_harness() -> None:
    """Have the kernel kill this process when the thread that started it ends.

    The harness ends its targets itself; this is for a harness that was killed while the
    target cannot see the end of its fifo, because it is blocked.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Control:
    """The two fifos. `read` is `gevent.os.nb_read` where a hub must keep polling meanwhile,
    and plain `os.read` where no hub may run."""

    def __init__(self, read: Read) -> None:
        die_with_harness()
        self.directory = sys.argv[1]
        self._read = read
        self._pending = b""
        self._events_fd = os.open(os.path.join(self.directory, "events"), os.O_WRONLY)
        commands = os.path.join(self.directory, "commands")
        self.commands_fd = os.open(commands, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(self.commands_fd, read is os.read)

    def tell(self, event: str, **fields: Any) -> None:
        """One event to the harness. Shorter than PIPE_BUF, so it never blocks half-way."""
        line = json.dumps(dict(fields, event=event, at_ns=monotonic_ns())) + "\n"
        os.write(self._events_fd, line.encode())

    def wait(self, word: str) -> None:
        """Return when the harness has sent this word; end when the harness is gone."""
        while b"\n" not in self._pending:
            data = self._read(self.commands_fd, 4096)
            if not data:
                sys.exit("the harness is gone")
            self._pending += data
        got, _, self._pending = self._pending.partition(b"\n")
        if got.decode() != word:
            sys.exit("expected the command %r, got %r" % (word, got))


def unavailable(why: str) -> None:
    """Tell the harness that this machine cannot run the target, and exit."""
    Control(os.read).tell("unavailable", why=why)
    sys.exit(0)


def record_signals() -> List[int]:
    """Install a handler for every signal that may be caught; the list grows as they come.

    Faults (SIGSEGV and such) keep their default: they end the target, which its exit code
    shows. SIGCHLD is left alone because helpers of the target end.
    """
    left = {"SIGKILL", "SIGSTOP", "SIGCHLD", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGPIPE"}
    excluded = {int(getattr(signal, name)) for name in left}
    received: List[int] = []
    for number in sorted(signal.valid_signals()):
        if int(number) not in excluded:
            signal.signal(number, lambda got, frame: received.append(int(got)))
    return received


@contextmanager
def scripted(read: Read, **ready_fields: Any) -> Iterator[Truth]:
    """Ready and go before the block, truth and done behind it, then wait for quit."""
    control = Control(read)
    truth = Truth(control)
    signals = record_signals()
    _marked_lines_of_file(sys.argv[0])
    control.tell("ready", pid=os.getpid(), tid=get_native_id(), **ready_fields)
    control.wait("go")
    yield truth
    truth.write(os.path.join(control.directory, "truth.jsonl"))
    control.tell("done")
    control.wait("quit")
    control.tell("bye", signals=signals)


def glibc_version() -> Tuple[int, ...]:
    """(2, 36) for example; empty where the C library is another."""
    try:
        name = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except ValueError:
        name = ""
    return tuple(int(part) for part in name.rpartition(" ")[2].split(".") if part.isdigit())


def sleep_reason() -> str:
    """The system call in which a real time.sleep blocks on this interpreter.

    CPython 3.11 went from select to clock_nanosleep (bpo-21302). glibc 2.34 turned select
    into pselect6.
    """
    # Not written as a constant comparison: mypy would call the rest unreachable.
    if tuple(sys.version_info) >= (3, 11):
        return "syscall:clock_nanosleep"
    return "syscall:pselect6" if glibc_version() >= (2, 34) else "syscall:select"
