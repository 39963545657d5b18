"""perf events that run a BPF program: uprobes of one process, and the CPU clock.

bcc's own attach functions cannot take a semaphore's place, and write semaphores into the
target's memory themselves, where a killed agent leaves them. Given to perf_event_open as
ref_ctr_offset (Linux 4.20) the kernel counts them and takes them back with the file
descriptor, whatever ends the agent.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from pathlib import Path

from greenscope.bpf.syscall import sys_bpf
from greenscope.errors import (
    BpfUnavailable,
    GreenscopeError,
    PermissionMissing,
    TargetNotFound,
)

# include/uapi/linux/perf_event.h, arch/x86/entry/syscalls/syscall_64.tbl
_SYS_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_PERF_TYPE_SOFTWARE = 1
_PERF_COUNT_SW_CPU_CLOCK = 0
_FLAG_FD_CLOEXEC = 8
_PERF_COUNT_SW_DUMMY = 9
# bits of the attributes' flags
_ATTR_INHERIT = 1 << 1
_ATTR_MMAP = 1 << 8
_ATTR_FREQ = 1 << 10
_ATTR_WATERMARK = 1 << 14
_IOC_ENABLE = 0x2400
_IOC_SET_BPF = 0x40042408
_UPROBE_TYPE = Path("/sys/bus/event_source/devices/uprobe/type")
_REF_CTR_SHIFT = 32  # /sys/bus/event_source/devices/uprobe/format/ref_ctr_offset

# include/uapi/linux/bpf.h
_BPF_LINK_CREATE = 28
_BPF_PERF_EVENT = 41

_libc = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    """struct perf_event_attr up to config2 (PERF_ATTR_SIZE_VER1)."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period_or_freq", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup_events", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("config1", ctypes.c_uint64),
        ("config2", ctypes.c_uint64),
    )


class _LinkAttributes(ctypes.Structure):
    """union bpf_attr for BPF_LINK_CREATE on a perf event (Linux 5.15)."""

    _fields_ = (
        ("prog_fd", ctypes.c_uint32),
        ("target_fd", ctypes.c_uint32),
        ("attach_type", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("bpf_cookie", ctypes.c_uint64),
    )


def open_uprobe(
    program_fd: int,
    path: str,
    offset: int,
    pid: int,
    ref_ctr_offset: int = 0,
    cookie: int | None = None,
) -> int:
    """Runs a program when process `pid` executes the byte at `offset` of the file `path`.

    `ref_ctr_offset` is the file offset of a USDT semaphore, 0 for none. `cookie` is what
    bpf_get_attach_cookie() gives the program here, by which it tells its places apart. Other
    processes that map the file are not touched. Gives a file descriptor; closing it removes
    the probe.

    Raises:
        PermissionMissing: a capability is missing.
        TargetNotFound: the process is gone.
        BpfUnavailable: the kernel refuses the probe.
    """
    name = os.fsencode(path) + b"\0"
    buffer = ctypes.create_string_buffer(name)
    attributes = _Attributes(
        type=int(_UPROBE_TYPE.read_text()),
        size=ctypes.sizeof(_Attributes),
        config=ref_ctr_offset << _REF_CTR_SHIFT,
        config1=ctypes.addressof(buffer),
        config2=offset,
    )
    what = f"a probe at {path}+{offset:#x}"
    if cookie is None:
        return _open(attributes, program_fd, pid, -1, what)
    fd = _perf_event_open(attributes, pid, -1, what)
    try:
        # The link holds the event from here on.
        return _create_link(program_fd, fd, cookie, what)
    finally:
        os.close(fd)


def open_cpu_clock(program_fd: int, hz: int, cpu: int) -> int:
    """Runs a program `hz` times a second on one CPU, while it is not idle.

    Gives a file descriptor; closing it stops the sampling. Raises as open_uprobe().
    """
    attributes = _Attributes(
        type=_PERF_TYPE_SOFTWARE,
        size=ctypes.sizeof(_Attributes),
        config=_PERF_COUNT_SW_CPU_CLOCK,
        sample_period_or_freq=hz,
        flags=_ATTR_FREQ,
    )
    return _open(attributes, program_fd, -1, cpu, f"the CPU clock of CPU {cpu}")


def open_mappings(pid: int, cpu: int) -> int:
    """Records of the executable mappings that a process and its later children make on a CPU.

    Gives a file descriptor that is to be mapped and polled. Raises as open_uprobe().
    """
    attributes = _Attributes(
        type=_PERF_TYPE_SOFTWARE,
        size=ctypes.sizeof(_Attributes),
        config=_PERF_COUNT_SW_DUMMY,
        flags=_ATTR_INHERIT | _ATTR_MMAP | _ATTR_WATERMARK,
        wakeup_events=1,  # with the flag above: readable from the first byte on
    )
    return _perf_event_open(attributes, pid, cpu, f"the mappings of process {pid}")


def _perf_event_open(attributes: _Attributes, pid: int, cpu: int, what: str) -> int:
    number = _SYS_PERF_EVENT_OPEN[os.uname().machine]
    fd: int = _libc.syscall(
        number, ctypes.byref(attributes), pid, cpu, -1, ctypes.c_ulong(_FLAG_FD_CLOEXEC)
    )
    if fd < 0:
        raise refused(ctypes.get_errno(), what)
    return fd


def _create_link(program_fd: int, event_fd: int, cookie: int, what: str) -> int:
    attributes = _LinkAttributes(program_fd, event_fd, _BPF_PERF_EVENT, 0, cookie)
    fd = sys_bpf(_BPF_LINK_CREATE, attributes)
    if fd < 0:
        raise refused(ctypes.get_errno(), what)
    return fd


def _open(attributes: _Attributes, program_fd: int, pid: int, cpu: int, what: str) -> int:
    fd = _perf_event_open(attributes, pid, cpu, what)
    try:
        fcntl.ioctl(fd, _IOC_SET_BPF, program_fd)
        fcntl.ioctl(fd, _IOC_ENABLE, 0)
    except OSError as error:
        os.close(fd)
        raise refused(error.errno or 0, what) from error
    return fd


def refused(number: int, what: str) -> GreenscopeError:
    """What a system call's error means for the user."""
    message = f"the kernel refuses {what}: {os.strerror(number)}"
    if number == errno.ESRCH:
        return TargetNotFound("the process ended while it was being attached to")
    if number in (errno.EPERM, errno.EACCES):
        return PermissionMissing(
            message, "`greenscope doctor` names the capability that is missing."
        )
    return BpfUnavailable(message, "`greenscope doctor` checks what the kernel offers.")
