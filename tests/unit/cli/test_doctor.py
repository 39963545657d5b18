import json

import pytest
from click.testing import CliRunner

from greenscope.checks.result import Check, fail, ok, warn
from greenscope.cli import doctor as module
from greenscope.cli.doctor import doctor
from greenscope.errors import BpfUnavailable, TargetNotFound

MACHINE = [ok("kernel", "Linux 6.1"), warn("tracefs", "not mounted", "Mount it.")]
BROKEN = [fail("bcc", "not found", "Install it.", BpfUnavailable)]


def run(monkeypatch: pytest.MonkeyPatch, machine: list[Check], *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(module, "machine_checks", lambda: list(machine))
    monkeypatch.setattr(
        module, "target_checks", lambda pid: [fail("process", f"no {pid}", "", TargetNotFound)]
    )
    result = CliRunner().invoke(doctor, arguments)
    return result.exit_code, result.output


def test_warnings_alone_leave_the_exit_code_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = run(monkeypatch, MACHINE)
    assert code == 0
    assert "-> Mount it." in output
    assert "can work here (2 checks, 1 warnings)" in output


def test_failure_gives_its_exit_code_and_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = run(monkeypatch, MACHINE + BROKEN)
    assert code == 8
    assert "-> Install it." in output


def test_process_is_checked_only_when_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, MACHINE, "77")[0] == 3


def test_json_is_one_document_with_all_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = run(monkeypatch, BROKEN, "--json")
    assert code == 8
    assert json.loads(output) == {
        "exit_code": 8,
        "checks": [
            {"name": "bcc", "status": "fail", "found": "not found", "advice": "Install it."}
        ],
    }
