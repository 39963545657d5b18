import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from greenscope.errors import TargetNotFound
from greenscope.target import process
from greenscope.target.process import (
    ThreadSyscall,
    child_pids,
    inspect_process,
    is_same_process,
    read_stat,
    resolve_pid,
    thread_ids,
    thread_name,
    thread_ns_ids,
    thread_syscall,
)

NR_READ = 0  # arch/x86/entry/syscalls/syscall_64.tbl


@pytest.fixture
def reader() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is surely inside read(0): it has answered and waits for the next line."""
    with subprocess.Popen(
        ["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as child:
        assert child.stdin
        assert child.stdout
        child.stdin.write(b"ready\n")
        assert child.stdout.readline() == b"ready\n"
        yield child
        child.kill()


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(process, "PROC", str(tmp_path))
    return tmp_path


def write_stat(proc: Path, pid: int, comm: str, state: str = "S", flags: int = 0) -> None:
    fields = [state, "1", "2", "3", "4", "5", str(flags), *["0"] * 12, "777", "0"]
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "stat").write_text(f"{pid} ({comm}) {' '.join(fields)}\n")


def test_own_process_is_described_as_python_sees_it() -> None:
    info = inspect_process(os.getpid())
    assert (info.pid, info.ppid, info.uid) == (os.getpid(), os.getppid(), os.geteuid())
    assert info.own_pid == os.getpid()
    assert info.executable == os.path.realpath("/proc/self/exe")
    assert info.mount_namespace.inode == os.stat("/proc/self/ns/mnt").st_ino
    assert info.pid_namespace.inode == os.stat("/proc/self/ns/pid").st_ino
    assert not info.executable_deleted
    assert not info.is_kernel_thread


def test_missing_process_is_not_found_and_the_hint_says_how_to_look_it_up() -> None:
    with pytest.raises(TargetNotFound, match="no process 4999999") as caught:
        inspect_process(4999999)
    assert "pgrep" in caught.value.hint


def test_zombie_is_not_found_and_the_hint_names_its_parent() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    try:
        with pytest.raises(TargetNotFound, match="zombie") as caught:
            inspect_process(pid)
        assert str(os.getpid()) in caught.value.hint
    finally:
        os.waitpid(pid, 0)


def test_kernel_thread_is_not_found_as_such(proc: Path) -> None:
    write_stat(proc, 2, "kthreadd", flags=0x00208040)
    with pytest.raises(TargetNotFound, match="kernel thread"):
        inspect_process(2)


def test_name_with_parentheses_and_spaces_does_not_shift_the_fields(proc: Path) -> None:
    write_stat(proc, 7, "a) S (b c", state="R")
    stat = read_stat(7)
    assert stat is not None
    assert (stat.comm, stat.state, stat.start_ticks) == ("a) S (b c", "R", 777)


def test_deleted_executable_is_marked_and_its_path_is_clean(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(Path("/bin/cat").read_bytes())
    program.chmod(0o755)
    with subprocess.Popen([program], stdin=subprocess.PIPE) as child:
        program.unlink()
        info = inspect_process(child.pid)
        child.kill()
    assert (info.executable, info.executable_deleted) == (str(program), True)


def test_identity_does_not_survive_another_start_time() -> None:
    info = inspect_process(os.getpid())
    assert is_same_process(info.pid, info.start_ticks)
    assert not is_same_process(info.pid, info.start_ticks + 1)


def test_waiting_thread_names_its_system_call(reader: subprocess.Popen[bytes]) -> None:
    os.kill(reader.pid, signal.SIGCONT)
    call = thread_syscall(reader.pid, reader.pid)
    while call == ThreadSyscall(None, running=True):
        call = thread_syscall(reader.pid, reader.pid)
    assert call == ThreadSyscall(NR_READ, running=False)


def test_syscall_of_a_thread_that_is_gone_is_none() -> None:
    assert thread_syscall(4999999, 4999999) is None


def test_threads_have_ids_and_names(reader: subprocess.Popen[bytes]) -> None:
    assert thread_ids(reader.pid) == (reader.pid,)
    assert thread_name(reader.pid, reader.pid) == "cat"
    assert thread_ns_ids(reader.pid, reader.pid)[0] == reader.pid


def test_children_of_a_wrapper_are_found(reader: subprocess.Popen[bytes]) -> None:
    assert reader.pid in child_pids(os.getpid())


def test_pid_of_our_own_namespace_stands_for_itself() -> None:
    assert resolve_pid(os.getpid()) == os.getpid()


def add_container_process(proc: Path, pid: int, inner: int) -> None:
    write_stat(proc, pid, "python")
    task = proc / str(pid) / "task" / str(pid)
    task.mkdir(parents=True)
    (task / "status").write_text(f"NSpid:\t{pid}\t{inner}\n")


def test_pid_inside_a_container_leads_to_the_host_pid(proc: Path) -> None:
    add_container_process(proc, 500, 7)
    add_container_process(proc, 501, 8)
    assert resolve_pid(8) == 501


def test_pid_that_two_containers_use_is_refused_with_both_host_pids(proc: Path) -> None:
    add_container_process(proc, 500, 7)
    add_container_process(proc, 501, 7)
    with pytest.raises(TargetNotFound, match="several") as caught:
        resolve_pid(7)
    assert "500, 501" in caught.value.hint
