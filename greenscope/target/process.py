"""What /proc says about a process: identity, state, names, namespaces, threads.

A pid here is what the mounted /proc calls it, which is what `ps` shows to the same user. The
kernel's own programs may know the process by another number (PID namespaces); `ns_pids` and
`resolve_pid` translate as far as /proc tells.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from greenscope.errors import PermissionMissing, TargetNotFound

PROC = "/proc"
_DELETED = " (deleted)"
# include/linux/sched.h PF_KTHREAD: set in field 9 of /proc/PID/stat for kernel threads.
_PF_KTHREAD = 0x00200000
# include/linux/proc_ns.h PROC_PID_INIT_INO: the inode of the first PID namespace.
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC
_ROOT_HINT = (
    "Run greenscope as root, or with the capabilities SYS_PTRACE and DAC_OVERRIDE "
    "(`greenscope doctor` lists all that it needs)."
)


@dataclass(frozen=True, slots=True)
class Namespace:
    """A kernel namespace as `bpf_get_ns_current_pid_tgid` wants it: device and inode."""

    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A process at one instant. `pid` and `start_ticks` together are its identity.

    `start_ticks` is field 22 of /proc/PID/stat (clock ticks since boot). `state` is its one
    letter (R, S, D, T, t, Z, X, I). `executable` is the path inside the target's own mount
    namespace, without the mark of a deleted file (`executable_deleted`). `ns_pids` are its
    pids from the namespace of our /proc to its own. `uid` is the effective one.
    """

    pid: int
    start_ticks: int
    state: str
    ppid: int
    uid: int
    comm: str
    executable: str
    executable_deleted: bool
    ns_pids: tuple[int, ...]
    mount_namespace: Namespace
    pid_namespace: Namespace
    is_kernel_thread: bool

    @property
    def own_pid(self) -> int:
        """The pid that the target itself sees (`os.getpid()` there)."""
        return self.ns_pids[-1]


@dataclass(frozen=True, slots=True)
class ThreadSyscall:
    """What a thread does in the kernel: `number` of the system call that it waits in.

    None where it is in none: `running` is True when it ran at that moment, False when it
    waits for something else (a page fault).
    """

    number: int | None
    running: bool


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The part of /proc/PID/stat that every user may read."""

    comm: str
    state: str
    ppid: int
    flags: int
    start_ticks: int


def read_stat(pid: int) -> ProcessStat | None:
    """Fields 2, 3, 4, 9 and 22 of /proc/PID/stat, or None when there is no such process."""
    text = _read(f"{PROC}/{pid}/stat")
    # The name may hold spaces and parentheses; the last ")" ends it.
    end = text.rfind(")") if text else -1
    if text is None or end < 0:
        return None
    fields = text[end + 2 :].split()
    return ProcessStat(
        comm=text[text.index("(") + 1 : end],
        state=fields[0],
        ppid=int(fields[1]),
        flags=int(fields[6]),
        start_ticks=int(fields[19]),
    )


def inspect_process(pid: int) -> ProcessInfo:
    """Everything that /proc says about a living user process.

    Raises:
        TargetNotFound: no such process, a zombie or a kernel thread.
        PermissionMissing: it is there but we may not look into it.
    """
    stat = read_stat(pid)
    if stat is None:
        raise _not_found(pid)
    if stat.flags & _PF_KTHREAD:
        raise TargetNotFound(
            f"{pid} ({stat.comm}) is a kernel thread",
            "Give the pid of a Python process; `pgrep -af python` lists them.",
        )
    if stat.state in "ZX":
        raise TargetNotFound(
            f"{pid} ({stat.comm}) has ended and is a zombie",
            f"It waits for its parent {stat.ppid} to collect it. Give a running process.",
        )
    status = _status_fields(pid)
    try:
        target = os.readlink(f"{PROC}/{pid}/exe")
        mount_namespace = _namespace(pid, "mnt")
        pid_namespace = _namespace(pid, "pid")
    except PermissionError as error:
        raise PermissionMissing(
            f"no permission to look into process {pid} ({stat.comm}): {error.strerror}",
            _ROOT_HINT,
        ) from error
    except OSError as error:
        raise _not_found(pid) from error
    return ProcessInfo(
        pid=pid,
        start_ticks=stat.start_ticks,
        state=stat.state,
        ppid=stat.ppid,
        uid=int(status.get("Uid", "0 0").split()[1]),
        comm=stat.comm,
        executable=target.removesuffix(_DELETED).removeprefix(root_prefix(pid)),
        executable_deleted=target.endswith(_DELETED),
        ns_pids=_numbers(status.get("NSpid", "")) or (pid,),
        mount_namespace=mount_namespace,
        pid_namespace=pid_namespace,
        is_kernel_thread=False,
    )


def is_same_process(pid: int, start_ticks: int) -> bool:
    """Whether the process with this identity still lives (a zombie does not)."""
    stat = read_stat(pid)
    return stat is not None and stat.start_ticks == start_ticks and stat.state not in "ZX"


def resolve_pid(pid: int) -> int:
    """The pid in our /proc of the process that the user means by `pid`.

    A pid of our own namespace wins; else the one process that is called so in its own
    namespace (a container's pid given on the host).

    Raises:
        TargetNotFound: nothing, or more than one process, has that number.
    """
    if read_stat(pid) is not None:
        return pid
    found = [p for p in process_ids() if pid in thread_ns_ids(p, p)[1:]]
    if len(found) == 1:
        return found[0]
    if found:
        raise TargetNotFound(
            f"several processes are called {pid} in their own PID namespaces",
            f"Give one of these instead: {', '.join(map(str, found))}.",
        )
    raise _not_found(pid)


def process_ids() -> tuple[int, ...]:
    """All pids in /proc, ascending."""
    return tuple(sorted(int(name) for name in os.listdir(PROC) if name.isdigit()))


def child_pids(pid: int) -> tuple[int, ...]:
    """The living children of a process, to suggest when `pid` is a wrapper; ascending."""
    stats = ((child, read_stat(child)) for child in process_ids())
    return tuple(child for child, stat in stats if stat and stat.ppid == pid)


def thread_ids(pid: int) -> tuple[int, ...]:
    """The OS threads of a process in our namespace, ascending; empty when it is gone."""
    try:
        return tuple(sorted(int(name) for name in os.listdir(f"{PROC}/{pid}/task")))
    except OSError:
        return ()


def thread_name(pid: int, tid: int) -> str:
    """The thread's name (at most 15 characters), "" when it is gone."""
    return (_read(f"{PROC}/{pid}/task/{tid}/comm") or "").rstrip("\n")


def thread_ns_ids(pid: int, tid: int) -> tuple[int, ...]:
    """The thread's ids from our namespace to its own; (tid,) when it cannot be read."""
    return _numbers(_status_fields(pid, tid).get("NSpid", "")) or (tid,)


def thread_syscall(pid: int, tid: int) -> ThreadSyscall | None:
    """The system call that a thread is in; None when it is gone or may not be read.

    Needs the right to ptrace the target, but does not stop or touch it.
    """
    text = _read(f"{PROC}/{pid}/task/{tid}/syscall")
    if not text:
        return None
    # "running", "-1 SP PC" when blocked outside of a call, else "NUMBER ARGS... SP PC"
    # (Documentation/filesystems/proc.rst and fs/proc/base.c proc_pid_syscall).
    first = text.split(None, 1)[0]
    if first == "running":
        return ThreadSyscall(None, running=True)
    number = int(first)
    return ThreadSyscall(number if number >= 0 else None, running=False)


def root_prefix(pid: int) -> str:
    """What to cut off a path in /proc/PID to get the target's own: "" without a chroot.

    The kernel prints the paths of maps, exe and cwd from the root of the mount namespace
    (d_path in fs/d_path.c), not from the root directory of the target.
    """
    try:
        root = os.readlink(f"{PROC}/{pid}/root")
    except OSError:
        return ""
    return "" if root == "/" else root


def own_pid_namespace() -> Namespace:
    """The PID namespace that this process (and so its pids) belongs to."""
    return _namespace("self", "pid")


def in_initial_pid_namespace() -> bool:
    """Whether the kernel's pids are ours, so that nothing needs to be translated."""
    return own_pid_namespace().inode == _INITIAL_PID_NAMESPACE


def _namespace(pid: int | str, kind: str) -> Namespace:
    stat = os.stat(f"{PROC}/{pid}/ns/{kind}")
    return Namespace(stat.st_dev, stat.st_ino)


def _status_fields(pid: int, tid: int | None = None) -> dict[str, str]:
    where = f"{PROC}/{pid}/status" if tid is None else f"{PROC}/{pid}/task/{tid}/status"
    lines = (line.partition(":") for line in (_read(where) or "").splitlines())
    return {name: value.strip() for name, _, value in lines}


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split())


def _read(path: str) -> str | None:
    """The text of a file in /proc; None when process or thread are gone, or unreadable."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _not_found(pid: int) -> TargetNotFound:
    return TargetNotFound(
        f"there is no process {pid}",
        "Look it up with `pgrep -af python`. In a container, greenscope sees the host's "
        "processes only with the host's PID namespace (hostPID, --pid=host).",
    )
