"""BPF links: uprobes of one process, by which taking one away stops nobody, and tracepoints.

Closing a perf event of a uprobe makes a thread that hits it meanwhile wait in the kernel for
some 10 ms, as it wants to help with the removal (handler_chain() in kernel/events/uprobes.c takes
register_rwsem, which uprobe_apply() holds while it waits for RCU). A link's handler never asks
for that. Measured in docs/decisions/0005. uprobe_multi came with Linux 6.6.
"""

from __future__ import annotations

import ctypes
import os
import re

from greenscope.bpf.perf_event import refused
from greenscope.bpf.syscall import sys_bpf

# include/uapi/linux/bpf.h
_BPF_RAW_TRACEPOINT_OPEN = 17
_BPF_LINK_CREATE = 28
ATTACH_TYPE = 48  # BPF_TRACE_UPROBE_MULTI, which a program must be loaded for
# Before 46ba0e49b642 ("bpf: fix multi-uprobe PID filtering logic") only the main thread was seen.
_FIRST_RELIABLE = (6, 10)


class _LinkAttributes(ctypes.Structure):
    """union bpf_attr for BPF_LINK_CREATE with uprobe_multi."""

    _fields_ = (
        ("prog_fd", ctypes.c_uint32),
        ("target_fd", ctypes.c_uint32),
        ("attach_type", ctypes.c_uint32),
        ("link_flags", ctypes.c_uint32),
        ("path", ctypes.c_uint64),
        ("offsets", ctypes.c_uint64),
        ("ref_ctr_offsets", ctypes.c_uint64),
        ("cookies", ctypes.c_uint64),
        ("cnt", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
    )


class _TracepointAttributes(ctypes.Structure):
    """union bpf_attr for BPF_RAW_TRACEPOINT_OPEN."""

    _fields_ = (
        ("name", ctypes.c_uint64),
        ("prog_fd", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
    )


def is_reliable(release: str) -> bool:
    """Whether a kernel of this release (uname) follows all threads of a process with one."""
    match = re.match(r"(\d+)\.(\d+)", release)
    return match is not None and (int(match[1]), int(match[2])) >= _FIRST_RELIABLE


def open_uprobe(
    program_fd: int,
    path: str,
    offset: int,
    pid: int,
    ref_ctr_offset: int = 0,
    cookie: int | None = None,
) -> int:
    """As perf_event.open_uprobe(); the program must have been loaded for ATTACH_TYPE."""
    name = ctypes.create_string_buffer(os.fsencode(path) + b"\0")
    offsets = ctypes.c_uint64(offset)
    semaphores = ctypes.c_uint64(ref_ctr_offset)
    cookies = ctypes.c_uint64(cookie or 0)
    attributes = _LinkAttributes(
        prog_fd=program_fd,
        attach_type=ATTACH_TYPE,
        path=ctypes.addressof(name),
        offsets=ctypes.addressof(offsets),
        ref_ctr_offsets=ctypes.addressof(semaphores) if ref_ctr_offset else 0,
        cookies=ctypes.addressof(cookies),
        cnt=1,
        pid=pid,
    )
    fd = sys_bpf(_BPF_LINK_CREATE, attributes)
    if fd < 0:
        raise refused(ctypes.get_errno(), f"a probe at {path}+{offset:#x}")
    return fd


def open_raw_tracepoint(program_fd: int, tracepoint: str) -> int:
    """Runs a program at a tracepoint of the whole machine; closing what it gives ends that.

    Raises as open_uprobe().
    """
    name = ctypes.create_string_buffer(tracepoint.encode() + b"\0")
    attributes = _TracepointAttributes(name=ctypes.addressof(name), prog_fd=program_fd)
    fd = sys_bpf(_BPF_RAW_TRACEPOINT_OPEN, attributes)
    if fd < 0:
        raise refused(ctypes.get_errno(), f"the tracepoint {tracepoint}")
    return fd
