"""What this process is allowed to do: capabilities, seccomp, and who else forbids."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from greenscope.checks.result import Check, Status, fail, ok, warn
from greenscope.errors import PermissionMissing

# include/uapi/linux/capability.h
CAPABILITIES = {
    "DAC_OVERRIDE": 1,
    "SYS_PTRACE": 19,
    "SYS_ADMIN": 21,
    "PERFMON": 38,
    "BPF": 39,
}
_SECCOMP_FILTER = 2  # field Seccomp of /proc/self/status
# Two ways that were seen to work: the first also under a container's default seccomp profile.
_BY_ADMIN = ("SYS_ADMIN", "SYS_PTRACE")
_BY_BPF = ("BPF", "PERFMON", "SYS_PTRACE")
_HOW = (
    "Run as root, or give SYS_ADMIN, SYS_PTRACE and DAC_OVERRIDE (podman, docker: --cap-add; "
    "Kubernetes: securityContext.capabilities.add)."
)


@dataclass(frozen=True, slots=True)
class Privileges:
    """Effective user, names of the effective capabilities of CAPABILITIES, seccomp mode."""

    uid: int
    capabilities: frozenset[str]
    seccomp: int


def read_privileges(status: str | None = None) -> Privileges:
    """Our own, from the text of /proc/self/status."""
    text = Path("/proc/self/status").read_text() if status is None else status
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    effective = int(fields.get("CapEff", "0"), 16)
    return Privileges(
        uid=int(fields["Uid"].split()[1]),
        capabilities=frozenset(name for name, bit in CAPABILITIES.items() if effective >> bit & 1),
        seccomp=int(fields.get("Seccomp", "0")),
    )


def privilege_checks(own: Privileges) -> list[Check]:
    """User and capabilities, seccomp, and the kernel's own switches against tracing."""
    return [_capabilities(own), _seccomp(own), *_yama(), *_lockdown()]


def require_privileges() -> None:
    """Ends what cannot work, before anything slow is begun.

    Raises:
        PermissionMissing: a capability is missing that every way of tracing needs.
    """
    check = _capabilities(read_privileges())
    if check.status is Status.FAIL:
        raise PermissionMissing(f"not enough rights to trace: {check.found}", check.advice)


def _capabilities(own: Privileges) -> Check:
    who = "root" if own.uid == 0 else f"uid {own.uid}"
    names = ", ".join(sorted(own.capabilities)) or "none of those needed"
    found = f"{who}: {names}"
    ways = [[name for name in way if name not in own.capabilities] for way in (_BY_ADMIN, _BY_BPF)]
    missing = min(ways, key=len)
    if missing:
        return fail("capabilities", f"{found}; missing: {', '.join(missing)}", _HOW,
                    PermissionMissing)  # fmt: skip
    if "DAC_OVERRIDE" not in own.capabilities:
        advice = "Targets of other users cannot be opened. Add DAC_OVERRIDE for them."
        return warn("capabilities", f"{found}; missing: DAC_OVERRIDE", advice)
    return ok("capabilities", found)


def _seccomp(own: Privileges) -> Check:
    if own.seccomp != _SECCOMP_FILTER:
        return ok("seccomp", "no filter")
    if "SYS_ADMIN" in own.capabilities:
        return ok("seccomp", "a filter; with SYS_ADMIN the usual profiles let bpf() through")
    return warn(
        "seccomp",
        "a filter, and SYS_ADMIN is not there",
        "The usual container profiles refuse bpf() then. Run with seccomp unconfined "
        "(--security-opt seccomp=unconfined; Kubernetes: seccompProfile type Unconfined) or "
        "add SYS_ADMIN.",
    )


def _yama() -> list[Check]:
    scope = _read("/proc/sys/kernel/yama/ptrace_scope")
    if scope != "3":
        return []
    # Documentation/admin-guide/LSM/Yama.rst: 3 refuses everybody, and stays until a reboot.
    return [
        fail(
            "yama",
            "kernel.yama.ptrace_scope is 3: nobody may read another process",
            "Set it to 2 or lower in /etc/sysctl.d and reboot; it cannot be lowered before.",
            PermissionMissing,
        )
    ]


def _lockdown() -> list[Check]:
    mode = _read("/sys/kernel/security/lockdown") or ""
    if "[confidentiality]" not in mode:
        return []
    return [
        fail(
            "lockdown",
            "the kernel is locked down (confidentiality): BPF may not read memory",
            "Boot with lockdown=integrity or without.",
            PermissionMissing,
        )
    ]


def may_write(path: str) -> bool:
    """Whether a file can be opened for writing; nothing is written."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
