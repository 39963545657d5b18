import pytest

from greenscope.checks.privileges import (
    CAPABILITIES,
    Privileges,
    privilege_checks,
    read_privileges,
)
from greenscope.checks.result import Check, Status

ALL = frozenset(CAPABILITIES)


def check_of(name: str, own: Privileges) -> Check:
    return next(check for check in privilege_checks(own) if check.name == name)


def test_effective_capabilities_are_read_by_bit() -> None:
    bits = sum(1 << CAPABILITIES[name] for name in ("SYS_ADMIN", "BPF"))
    status = f"Name:\tx\nUid:\t5\t6\t7\t8\nCapEff:\t{bits:016x}\nSeccomp:\t2\n"
    assert read_privileges(status) == Privileges(6, frozenset({"SYS_ADMIN", "BPF"}), 2)


@pytest.mark.parametrize(
    ("capabilities", "status", "text"),
    [
        (ALL, Status.OK, "root: BPF, "),
        ({"SYS_ADMIN", "SYS_PTRACE", "DAC_OVERRIDE"}, Status.OK, "SYS_ADMIN"),
        ({"BPF", "PERFMON", "SYS_PTRACE", "DAC_OVERRIDE"}, Status.OK, "PERFMON"),
        ({"SYS_ADMIN", "SYS_PTRACE"}, Status.WARN, "missing: DAC_OVERRIDE"),
        ({"SYS_ADMIN", "DAC_OVERRIDE"}, Status.FAIL, "missing: SYS_PTRACE"),
        ({"BPF", "SYS_PTRACE", "PERFMON"}, Status.WARN, "missing: DAC_OVERRIDE"),
        ({"BPF", "SYS_PTRACE"}, Status.FAIL, "missing: SYS_ADMIN"),
        (set(), Status.FAIL, "none of those needed; missing: SYS_ADMIN, SYS_PTRACE"),
    ],
)
def test_either_way_of_capabilities_is_enough_and_what_is_missing_is_named(
    capabilities: set[str], status: Status, text: str
) -> None:
    check = check_of("capabilities", Privileges(0, frozenset(capabilities), 0))
    assert check.status is status
    assert text in check.found
    assert check.exit_code == (7 if status is Status.FAIL else 0)


@pytest.mark.parametrize(
    ("mode", "capabilities", "status"),
    [(0, set(), Status.OK), (2, {"SYS_ADMIN"}, Status.OK), (2, {"BPF"}, Status.WARN)],
)
def test_seccomp_filter_is_a_warning_only_without_sys_admin(
    mode: int, capabilities: set[str], status: Status
) -> None:
    check = check_of("seccomp", Privileges(0, frozenset(capabilities), mode))
    assert check.status is status


@pytest.mark.parametrize(
    ("path", "text", "name"),
    [
        ("/proc/sys/kernel/yama/ptrace_scope", "3", "yama"),
        ("/sys/kernel/security/lockdown", "none integrity [confidentiality]", "lockdown"),
    ],
)
def test_kernel_switch_that_forbids_all_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, path: str, text: str, name: str
) -> None:
    answers = {path: text}
    monkeypatch.setattr("greenscope.checks.privileges._read", answers.get)
    check = check_of(name, Privileges(0, ALL, 0))
    assert (check.status, check.exit_code) == (Status.FAIL, 7)


def test_kernel_switches_that_are_off_are_not_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greenscope.checks.privileges._read", lambda path: "1")
    names = [check.name for check in privilege_checks(Privileges(0, ALL, 0))]
    assert names == ["capabilities", "seccomp"]
