import os
import subprocess
from collections.abc import Iterator

import pytest

from greenscope.checks import target
from greenscope.checks.result import Check, Status
from greenscope.checks.target import target_checks
from greenscope.target.maps import MappedFile, Mapping
from greenscope.target.python import MappedPython


@pytest.fixture
def cat() -> Iterator[subprocess.Popen[bytes]]:
    """A process of no Python, surely beyond its exec: it has answered."""
    with subprocess.Popen(
        ["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as child:
        assert child.stdin
        assert child.stdout
        child.stdin.write(b"ready\n")
        assert child.stdout.readline() == b"ready\n"
        yield child
        child.kill()


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_missing_process_ends_the_checks_with_its_exit_code() -> None:
    (check,) = target_checks(4999999)
    assert (check.name, check.status, check.exit_code) == ("process", Status.FAIL, 3)


def test_process_without_python_says_so(cat: subprocess.Popen[bytes]) -> None:
    last = target_checks(cat.pid)[-1]
    assert (last.name, last.status, last.exit_code) == ("interpreter", Status.FAIL, 4)
    assert "pgrep" in last.advice


def test_wrapper_of_python_children_suggests_them(
    cat: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "child_pids", lambda pid: (os.getpid(), cat.pid))
    assert f"give one of them: {os.getpid()}." in target_checks(cat.pid)[-1].advice


def test_stopped_process_is_a_warning(
    cat: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = target.inspect_process(cat.pid)
    values = {name: getattr(process, name) for name in process.__slots__} | {"state": "T"}
    monkeypatch.setattr(target, "inspect_process", lambda pid: type(process)(**values))
    check = by_name(target_checks(cat.pid))["process"]
    assert check.status is Status.WARN
    assert "kill -CONT" in check.advice


def own_checks(monkeypatch: pytest.MonkeyPatch, *files: str, version: int = 11) -> dict[str, Check]:
    """The checks of this very process, as if it ran CPython 3.`version` and mapped `files`."""
    mapping = Mapping(0x1000, 0x2000, "r-xp", 0, 0, 1, "/x")
    mapped = tuple(MappedFile(os.getpid(), path, 0, 1, False, (mapping,)) for path in files)
    python = MappedPython(
        mapped[0] if mapped else MappedFile(1, "/usr/bin/python3", 0, 1, False, ()),
        *(0, (3, version), f"3.{version}.0", False, "", ()),
    )
    monkeypatch.setattr(target, "mapped_files", lambda pid, mappings: mapped)
    monkeypatch.setattr(target, "find_python", lambda files: python)
    return by_name(target_checks(os.getpid()))


def test_interpreter_without_a_row_of_offsets_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = own_checks(monkeypatch, version=99)["interpreter"]
    assert (check.status, check.exit_code) == (Status.FAIL, 5)
    assert "unsupported CPython 3.99" in check.advice


def test_interpreter_without_gc_probes_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    check = own_checks(monkeypatch)["usdt probes"]
    assert check.status is Status.WARN
    assert "built without dtrace" in check.found


def test_program_that_has_not_loaded_greenlet_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = own_checks(monkeypatch)
    assert (checks["greenlet"].status, checks["greenlet"].exit_code) == (Status.FAIL, 6)
    assert checks["gevent"].status is Status.WARN


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/lib/x86_64-linux-gnu/libc.so.6", "glibc"),
        ("/lib/libc-2.31.so", "glibc"),
        ("/lib/ld-musl-x86_64.so.1", "musl"),
    ],
)
def test_c_library_is_named(monkeypatch: pytest.MonkeyPatch, file: str, name: str) -> None:
    assert own_checks(monkeypatch, file)["C library"].found == name
