"""Checks of one process: can it be looked into, and is it a gevent program that we know."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from greenscope.checks.result import Check, exit_code_of, fail, fail_with, ok, warn
from greenscope.errors import (
    GreenscopeError,
    NotPython,
    PermissionMissing,
    UnsupportedInterpreter,
)
from greenscope.offsets.program import Program, inspect_program
from greenscope.offsets.rows import ROWS
from greenscope.offsets.table import offsets_for
from greenscope.rebuild.hubs import has_hub, hub_children
from greenscope.target.greenlet import find_greenlet
from greenscope.target.maps import MappedFile, mapped_files, read_maps
from greenscope.target.memory import LiveMemory
from greenscope.target.process import (
    ProcessInfo,
    child_pids,
    inspect_process,
    own_pid_namespace,
    resolve_pid,
    root_prefix,
    thread_ids,
    thread_ns_ids,
)
from greenscope.target.python import MappedPython, find_python, package_version

_GC_PROBES = ("gc__start", "gc__done")


def target_checks(pid: int) -> list[Check]:
    """All checks of one process, from cause to consequence; stops where nothing can follow."""
    try:
        process = inspect_process(resolve_pid(pid))
        with LiveMemory(process.pid):
            files = mapped_files(process.pid, read_maps(process.pid))
    except GreenscopeError as error:
        return [fail_with("process", error)]
    checks = [_process(process), _namespaces(process)]
    root = Path(f"/proc/{process.pid}/root/.")
    if not os.access(root, os.X_OK):
        return [*checks, fail("file system", f"{root} is closed to us",
                              "Add the capability SYS_PTRACE.", PermissionMissing)]  # fmt: skip
    python = find_python(files)
    if python is None:
        return [*checks, _no_python(process)]
    checks += [
        _interpreter(python),
        _usdt(python),
        _greenlet(files),
        _gevent(files),
        _c_library(files),
    ]
    if exit_code_of(checks) == 0:
        checks += _program_checks(process.pid)
    return checks


def _process(process: ProcessInfo) -> Check:
    found = f"{process.pid} {process.comm}, state {process.state}, uid {process.uid}"
    if process.state in "Tt":
        advice = "It is stopped and shows nothing until it goes on: kill -CONT, or the debugger."
        return warn("process", found, advice)
    return ok("process", found)


def _namespaces(process: ProcessInfo) -> Check:
    here = os.stat("/proc/self/ns/mnt").st_ino
    parts = [
        "our mount namespace"
        if process.mount_namespace.inode == here
        else f"its own mount namespace {process.mount_namespace.inode}",
        "our PID namespace"
        if process.pid_namespace == own_pid_namespace()
        else f"its own PID namespace {process.pid_namespace.inode}, where it is {process.own_pid}",
    ]
    if prefix := root_prefix(process.pid):
        parts.append(f"its root is our {prefix}")
    return ok("namespaces", "; ".join(parts))


def _no_python(process: ProcessInfo) -> Check:
    children = [child for child in child_pids(process.pid) if _runs_python(child)]
    advice = "Give the pid of a Python process; `pgrep -af python` lists them."
    if children:
        advice = f"It has Python children; give one of them: {', '.join(map(str, children))}."
    found = f"no CPython in {process.executable} and its libraries"
    return fail("interpreter", found, advice, NotPython)


def _runs_python(pid: int) -> bool:
    try:
        return find_python(mapped_files(pid, read_maps(pid))) is not None
    except GreenscopeError:
        return False


def _interpreter(python: MappedPython) -> Check:
    build = "shared library" if python.is_shared else "in the program itself"
    found = f"CPython {python.full_version}, {build}: {python.file.path}"
    try:
        offsets_for(python.version, ROWS)
    except GreenscopeError as error:
        return fail("interpreter", found, f"{error.message}. {error.hint}", type(error))
    return ok("interpreter", found)


def _usdt(python: MappedPython) -> Check:
    names = sorted({probe.name for probe in python.usdt_probes})
    found = ", ".join(names) or "none (built without dtrace)"
    if not all(name in names for name in _GC_PROBES):
        advice = "Holds by garbage collection show as cpu; all else works without."
        return warn("usdt probes", found, advice)
    return ok("usdt probes", found)


def _greenlet(files: Sequence[MappedFile]) -> Check:
    try:
        extension = find_greenlet(files)
    except GreenscopeError as error:
        return fail_with("greenlet", error)
    found = f"{extension.version or 'unknown version'}: {extension.file.path}"
    places = extension.places
    ended = places.freed if places.finished is None else places.finished
    needed = {"created": places.created, "ended": ended}
    missing = [name for name, place in needed.items() if place is None]
    if missing:
        advice = "Greenlets that reuse an address of an ended one are taken for that one."
        return warn("greenlet", f"{found}, without symbols for: {', '.join(missing)}", advice)
    return ok("greenlet", f"{found}, with all symbols that are probed")


def _gevent(files: Sequence[MappedFile]) -> Check:
    file = next((f for f in files if Path(f.path).parent.name == "gevent"), None)
    if file is None:
        advice = "Without a gevent hub no hold blocks anybody, and none is reported."
        return warn("gevent", "no compiled part of it is loaded", advice)
    return ok("gevent", package_version(file, "gevent") or "unknown version")


def _program_checks(pid: int) -> list[Check]:
    try:
        program = inspect_program(pid)
    except GreenscopeError as error:
        return [fail_with("thread states", error)]
    checks = [_thread_states(program)]
    if exit_code_of(checks) == 0:
        checks.append(_hub(program))
    return checks


def _thread_states(program: Program) -> Check:
    """Reads the target's own list of threads: the offsets are right where it makes sense."""
    pid = program.process.pid
    try:
        with LiveMemory(pid) as memory:
            found = program.thread_states(memory).keys()
    except GreenscopeError as error:
        return fail_with("thread states", error)
    alive = {thread_ns_ids(pid, tid)[-1] for tid in thread_ids(pid)}
    if not found & alive:
        advice = "The interpreter is not built as its version says; it cannot be watched."
        return fail("thread states", "none could be read", advice, UnsupportedInterpreter)
    return ok("thread states", f"{len(found & alive)} of {len(alive)} threads run Python")


def _hub(program: Program) -> Check:
    """Whether there is anything to be blocked: the master of a prefork server has no hub."""
    try:
        found = has_hub(program)
    except GreenscopeError as error:
        return fail_with("hub", error)
    if found:
        return ok("hub", "there is one")
    children = ", ".join(
        f"{child.pid} ({child.command})" for child in hub_children(program.process.pid)
    )
    if children:
        return warn("hub", "none so far", f"These children run one; attach to them: {children}.")
    return warn("hub", "none so far", "Until a thread has one, no hold is reported.")


def _c_library(files: Sequence[MappedFile]) -> Check:
    names = {file.name for file in files}
    if any(name.startswith("ld-musl") for name in names):
        return ok("C library", "musl")
    if any(name.startswith(("libc.so", "libc-2")) for name in names):
        return ok("C library", "glibc")
    return ok("C library", "none mapped (static)")
