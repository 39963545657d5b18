import errno
import sys
from pathlib import Path

import pytest

from greenscope.checks import attempts, machine
from greenscope.checks.bindings import bcc_check
from greenscope.checks.result import Check, Status, exit_code_of, fail, ok, warn
from greenscope.errors import BpfUnavailable, PermissionMissing


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine on which every attempt works and tracefs is not mounted."""
    for name in ("load_program", "create_ring_buffer", "open_uprobe", "open_cpu_clock"):
        monkeypatch.setattr(attempts, name, lambda: 0)
    monkeypatch.setattr(machine, "_TRACEFS", (str(tmp_path),))
    monkeypatch.setattr(machine, "compile_check", lambda headers: ok("bcc compile", ""))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("platform.release", lambda: "6.1.0")
    return monkeypatch


def status_of(name: str) -> tuple[Status, int, str]:
    check = next(check for check in machine.machine_checks() if check.name == name)
    return check.status, check.exit_code, check.advice


def test_first_failure_gives_the_exit_code() -> None:
    rows: list[Check] = [
        ok("a", ""),
        warn("b", "", ""),
        fail("c", "", "", PermissionMissing),
        fail("d", "", "", BpfUnavailable),
    ]
    assert exit_code_of(rows) == 7
    assert exit_code_of(rows[:2]) == 0


@pytest.mark.parametrize("refusal", [errno.EPERM, errno.EACCES])
def test_refused_load_is_a_matter_of_permission(answers: pytest.MonkeyPatch, refusal: int) -> None:
    answers.setattr(attempts, "load_program", lambda: refusal)
    status, code, advice = status_of("bpf program")
    assert (status, code) == (Status.FAIL, 7)
    assert "seccomp" in advice


def test_kernel_without_ring_buffer_is_not_a_matter_of_permission(
    answers: pytest.MonkeyPatch,
) -> None:
    answers.setattr(attempts, "create_ring_buffer", lambda: errno.EINVAL)
    assert status_of("ring buffer")[:2] == (Status.FAIL, 8)


def test_tracefs_is_not_needed_where_a_uprobe_can_be_opened(answers: pytest.MonkeyPatch) -> None:
    assert status_of("tracefs")[0] is Status.OK


def test_refused_uprobe_without_tracefs_fails_and_says_how_to_mount_it(
    answers: pytest.MonkeyPatch,
) -> None:
    answers.setattr(attempts, "open_uprobe", lambda: errno.EACCES)
    status, code, advice = status_of("tracefs")
    assert (status, code) == (Status.FAIL, 7)
    assert "mount -t tracefs" in advice


def test_refused_uprobe_is_only_a_warning_where_tracefs_can_be_written(
    answers: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "uprobe_events").touch()
    answers.setattr(attempts, "open_uprobe", lambda: errno.EACCES)
    assert status_of("uprobe")[0] is Status.WARN
    assert status_of("tracefs")[0] is Status.OK


@pytest.mark.parametrize(
    ("release", "hardware", "status"),
    [
        ("6.12.9", "x86_64", Status.OK),
        ("6.10.0", "x86_64", Status.OK),
        ("6.1.0-57-amd64", "x86_64", Status.WARN),
        ("5.15.0", "x86_64", Status.WARN),
        ("5.9.1", "x86_64", Status.FAIL),
        ("6.1.0", "aarch64", Status.FAIL),
    ],
)
def test_kernel_must_be_new_enough_and_x86_64(
    answers: pytest.MonkeyPatch, release: str, hardware: str, status: Status
) -> None:
    answers.setattr("platform.release", lambda: release)
    answers.setattr("platform.machine", lambda: hardware)
    assert status_of("kernel")[0] is status


def test_missing_headers_fail_with_the_package_to_install(answers: pytest.MonkeyPatch) -> None:
    answers.setenv("BCC_KERNEL_SOURCE", "/nonexistent")
    status, code, advice = status_of("kernel headers")
    assert (status, code) == (Status.FAIL, 8)
    assert "linux-headers-amd64" in advice


def use_bcc_at(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [str(path)])
    monkeypatch.delitem(sys.modules, "bcc", raising=False)


def test_missing_bcc_names_the_debian_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_bcc_at(tmp_path, monkeypatch)
    check = bcc_check()
    assert (check.status, check.exit_code) == (Status.FAIL, 8)
    assert "apt-get install python3-bpfcc" in check.advice


def test_unrelated_bcc_from_pypi_is_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bcc").mkdir()
    (tmp_path / "bcc" / "__init__.py").write_text("raise SystemExit('must not be imported')")
    use_bcc_at(tmp_path, monkeypatch)
    check = bcc_check()
    assert (check.status, check.exit_code) == (Status.FAIL, 8)
    assert "another project" in check.found
    assert "pip uninstall bcc" in check.advice
