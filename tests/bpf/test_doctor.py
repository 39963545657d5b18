"""doctor on this machine's real kernel: as root, as nobody, and with capabilities taken away."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from greenscope.bpf.headers import find_kernel_headers
from greenscope.checks import bindings
from greenscope.checks.result import Status
from tests.harness import run_target
from tests.harness.users import AS_NOBODY

pytestmark = pytest.mark.bpf

ROOT = Path(__file__).parents[2]
DOCTOR = "from greenscope.cli.doctor import doctor; doctor()"
VERSIONS = """
import sys, gevent, greenlet
print(sys.version.split()[0], greenlet.__version__, gevent.__version__)
"""


def run_doctor(*arguments: str, under: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
    """The exit code and {name of the check: it}; nothing may stand on stderr."""
    done = subprocess.run(
        [*under, sys.executable, "-c", DOCTOR, "--json", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.stderr == ""
    answer = json.loads(done.stdout)
    assert answer["exit_code"] == done.returncode
    return done.returncode, {check["name"]: check for check in answer["checks"]}


def failed(checks: dict[str, Any]) -> set[str]:
    return {name for name, check in checks.items() if check["status"] == "fail"}


def test_machine_that_can_trace_passes_every_check() -> None:
    code, checks = run_doctor()
    assert (code, failed(checks)) == (0, set())
    assert {"bpf program", "ring buffer", "cpu-clock", "uprobe", "bcc compile"} <= set(checks)


def test_gevent_target_is_described_and_passes(target_python: str) -> None:
    with run_target("well_behaved", target_python) as target:
        code, checks = run_doctor(str(target.pid))
    assert (code, failed(checks)) == (0, set())
    command = [target_python, "-c", VERSIONS]
    versions = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert f"CPython {versions[0]}," in checks["interpreter"]["found"]
    assert checks["greenlet"]["found"].startswith(f"{versions[1]}: ")
    assert checks["gevent"]["found"] == versions[2]
    assert checks["thread states"]["status"] == "ok"


def test_user_without_rights_gets_an_answer_and_the_exit_code_for_permission() -> None:
    code, checks = run_doctor(under=AS_NOBODY)
    assert code == 7
    assert {"capabilities", "bpf program", "cpu-clock"} <= failed(checks)
    assert "SYS_ADMIN" in checks["capabilities"]["advice"]


def test_root_without_sys_admin_is_told_of_the_uprobe_and_tracefs() -> None:
    code, checks = run_doctor(under=("setpriv", "--bounding-set=-sys_admin"))
    assert checks["bpf program"]["status"] == "ok"
    if Path("/sys/kernel/tracing/uprobe_events").exists():
        assert (code, checks["tracefs"]["status"]) == (0, "ok")
    else:
        assert code == 7
        assert "mount -t tracefs" in checks["tracefs"]["advice"]


def test_compiler_that_does_not_find_its_headers_is_a_failure_with_its_own_words(
    tmp_path: Path,
) -> None:
    headers = find_kernel_headers()
    broken = type(headers)(tmp_path, headers.version, (tmp_path,))
    check = bindings.compile_check(broken)
    assert (check.status, check.exit_code) == (Status.FAIL, 8)
    assert check.found
