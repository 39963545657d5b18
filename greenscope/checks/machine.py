"""Checks of the machine: kernel, rights, tools, and whether the kernel does what we ask."""

from __future__ import annotations

import errno
import os
import platform
import re
from collections.abc import Callable

from greenscope.bpf import links
from greenscope.bpf.headers import KernelHeaders, find_kernel_headers
from greenscope.checks import attempts
from greenscope.checks.bindings import bcc_check, compile_check
from greenscope.checks.privileges import may_write, privilege_checks, read_privileges
from greenscope.checks.result import Check, Status, fail, fail_with, ok, warn
from greenscope.errors import BpfUnavailable, GreenscopeError, PermissionMissing
from greenscope.offsets.btf import kernel_btf

# bpf_task_pt_regs came with 5.15; the ring buffer with 5.8.
OLDEST_KERNEL = (5, 15)
MACHINE = "x86_64"
_TRACEFS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
_REFUSED = (errno.EPERM, errno.EACCES)


def machine_checks() -> list[Check]:
    """All checks of this machine, from cause to consequence."""
    headers = _find_headers()
    bcc = bcc_check()
    checks = [_kernel(), *privilege_checks(read_privileges()), _btf(), _headers(headers), bcc]
    if isinstance(headers, KernelHeaders) and bcc.status is Status.OK:
        checks.append(compile_check(headers))
    if platform.machine() == MACHINE:
        uprobe = _attempt("uprobe", "opened for one process", attempts.open_uprobe)
        checks += [
            _attempt("bpf program", "a small one loads", attempts.load_program),
            _attempt("ring buffer", "created", attempts.create_ring_buffer),
            _attempt("cpu-clock", "opened on the first CPU", attempts.open_cpu_clock),
            *_uprobe_or_tracefs(uprobe),
        ]
    return checks


def _kernel() -> Check:
    release, machine = platform.release(), platform.machine()
    found = f"Linux {release} {machine}"
    if machine != MACHINE:
        return fail("kernel", found, "greenscope works on x86-64 only.", BpfUnavailable)
    match = re.match(r"(\d+)\.(\d+)", release)
    if match and (int(match[1]), int(match[2])) < OLDEST_KERNEL:
        oldest = ".".join(map(str, OLDEST_KERNEL))
        return fail("kernel", found, f"Use a kernel of version {oldest} or later.", BpfUnavailable)
    if not links.is_reliable(release):
        advice = (
            "Before Linux 6.10 a program that switches all the time stands still for some 10 ms "
            "when probes are taken away (docs/decisions/0005)."
        )
        return warn("kernel", found, advice)
    return ok("kernel", found)


def _btf() -> Check:
    try:
        offset = kernel_btf().member_offset("task_struct", "thread.fsbase")
    except GreenscopeError as error:
        return fail_with("btf", error)
    if offset is None:
        return fail("btf", "task_struct.thread.fsbase is not in it", "Use a distribution's kernel "
                    "for x86-64.", BpfUnavailable)  # fmt: skip
    return ok("btf", "/sys/kernel/btf/vmlinux, task_struct is described")


def _find_headers() -> KernelHeaders | GreenscopeError:
    try:
        return find_kernel_headers()
    except GreenscopeError as error:
        return error


def _headers(headers: KernelHeaders | GreenscopeError) -> Check:
    if isinstance(headers, GreenscopeError):
        return fail_with("kernel headers", headers)
    places = " + ".join(str(path) for path in headers.source)
    return ok("kernel headers", f"{headers.version}: {places}")


def _attempt(name: str, worked: str, attempt: Callable[[], int | None]) -> Check:
    number = attempt()
    if number is None:
        return warn(name, "could not be tried here", "")
    if number == 0:
        return ok(name, worked)
    found = f"refused: {errno.errorcode.get(number, number)} ({os.strerror(number)})"
    if number in _REFUSED:
        advice = (
            "See capabilities and seccomp above: either a capability is missing or a seccomp "
            "filter refuses the call."
        )
        return fail(name, found, advice, PermissionMissing)
    return fail(name, found, "This kernel was built without it, or a limit is reached.",
                BpfUnavailable)  # fmt: skip


def _uprobe_or_tracefs(uprobe: Check) -> list[Check]:
    """A uprobe can be opened as an event or, where that is refused, written to tracefs."""
    writable = next((d for d in _TRACEFS if may_write(f"{d}/uprobe_events")), None)
    mounted = next((d for d in _TRACEFS if os.path.exists(f"{d}/uprobe_events")), None)
    if uprobe.status is Status.OK:
        where = f"mounted at {mounted}" if mounted else "not mounted"
        return [uprobe, ok("tracefs", f"{where} (not needed)")]
    if writable:
        advice = "Uprobes are set through tracefs instead."
        return [warn("uprobe", uprobe.found, advice), ok("tracefs", f"writable at {writable}")]
    if uprobe.status is Status.WARN:
        return [uprobe, warn("tracefs", "not writable", "")]
    found = f"mounted read-only at {mounted}" if mounted else "not mounted"
    advice = (
        "Add SYS_ADMIN (then it is not needed), or mount it read-write: "
        "mount -t tracefs tracefs /sys/kernel/tracing."
    )
    return [uprobe, fail("tracefs", found, advice, PermissionMissing)]
