"""Trying out what the agent asks of the kernel, in the smallest form, without bcc.

Each attempt gives the kernel's errno, or 0 when it worked; whatever it made is closed again
before it returns. Only x86-64, as all of greenscope.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

from greenscope.target.elf import ElfError, ElfImage
from greenscope.target.maps import mapped_files, read_maps

# arch/x86/entry/syscalls/syscall_64.tbl
_NR_PERF_EVENT_OPEN = 298
_NR_BPF = 321
# enum bpf_cmd, bpf_map_type and bpf_prog_type in include/uapi/linux/bpf.h
_BPF_MAP_CREATE = 0
_BPF_PROG_LOAD = 5
_BPF_MAP_TYPE_RINGBUF = 27
_BPF_PROG_TYPE_KPROBE = 2
# r0 = 0; exit (struct bpf_insn: code, registers, offset, immediate)
_PROGRAM = struct.pack("<BBhi", 0xB7, 0, 0, 0) + struct.pack("<BBhi", 0x95, 0, 0, 0)
_LICENSE = b"GPL\0"
# include/uapi/linux/perf_event.h
_PERF_ATTR_SIZE = 112  # PERF_ATTR_SIZE_VER5, known to every kernel since 4.1
_PERF_TYPE_SOFTWARE = 1
_PERF_COUNT_SW_CPU_CLOCK = 0
_PERF_FLAG_FD_CLOEXEC = 8
_PERF_ATTR_DISABLED = 1
_UPROBE_TYPE = Path("/sys/bus/event_source/devices/uprobe/type")
_SAMPLE_PERIOD_NS = 1_000_000_000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def load_program() -> int:
    """Load a program of two instructions of the type that probes have."""
    code, text = ctypes.create_string_buffer(_PROGRAM), ctypes.create_string_buffer(_LICENSE)
    # union bpf_attr, BPF_PROG_LOAD: prog_type, insn_cnt, insns, license, log_level, log_size,
    # log_buf, kern_version, prog_flags
    attr = struct.pack(
        "<IIQQIIQII",
        _BPF_PROG_TYPE_KPROBE,
        len(_PROGRAM) // 8,
        ctypes.addressof(code),
        ctypes.addressof(text),
        *(0, 0, 0, 0, 0),
    )
    return _bpf(_BPF_PROG_LOAD, attr)


def create_ring_buffer() -> int:
    """Create a ring buffer of one page."""
    # union bpf_attr, BPF_MAP_CREATE: map_type, key_size, value_size, max_entries, map_flags
    page = os.sysconf("SC_PAGE_SIZE")
    return _bpf(_BPF_MAP_CREATE, struct.pack("<IIIII", _BPF_MAP_TYPE_RINGBUF, 0, 0, page, 0))


def open_uprobe() -> int | None:
    """Open a uprobe on our own C library, for ourselves; None where this cannot be tried.

    It is never enabled, and set on a function that nobody calls while it is open.
    """
    place = _libc_function()
    try:
        event_type = int(_UPROBE_TYPE.read_text())
    except (OSError, ValueError):
        return None
    if place is None:
        return None
    path, offset = place
    text = ctypes.create_string_buffer(os.fsencode(path))
    # config1 is the path, config2 the offset in the file (uprobe_path, probe_offset)
    return _perf_event_open(event_type, 0, 0, os.getpid(), -1, ctypes.addressof(text), offset)


def open_cpu_clock() -> int:
    """Open the sampler's clock on the first CPU, for all processes."""
    return _perf_event_open(_PERF_TYPE_SOFTWARE, _PERF_COUNT_SW_CPU_CLOCK, _SAMPLE_PERIOD_NS, -1, 0)


def _libc_function() -> tuple[str, int] | None:
    for file in mapped_files(os.getpid(), read_maps(os.getpid())):
        if file.name.startswith(("libc.so", "libc-", "ld-musl")):
            try:
                with ElfImage(file.path) as image:
                    symbol = image.symbol("gethostid")
                    offset = image.file_offset(symbol.address) if symbol else None
            except ElfError:
                return None
            return None if offset is None else (file.path, offset)
    return None


def _bpf(command: int, attr: bytes) -> int:
    buffer = ctypes.create_string_buffer(attr, len(attr))
    return _made(_libc.syscall(_NR_BPF, command, ctypes.byref(buffer), len(attr)))


def _perf_event_open(
    type_: int, config: int, period: int, pid: int, cpu: int, config1: int = 0, config2: int = 0
) -> int:
    # struct perf_event_attr: type, size, config, sample_period, sample_type, read_format,
    # flags (disabled is bit 0), wakeup_events, bp_type, config1, config2, and zeros
    attr = struct.pack(
        "<IIQQQQQIIQQ",
        *(type_, _PERF_ATTR_SIZE, config, period, 0, 0, _PERF_ATTR_DISABLED, 0, 0),
        *(config1, config2),
    ).ljust(_PERF_ATTR_SIZE, b"\0")
    buffer = ctypes.create_string_buffer(attr, len(attr))
    return _made(
        _libc.syscall(
            _NR_PERF_EVENT_OPEN, ctypes.byref(buffer), pid, cpu, -1, _PERF_FLAG_FD_CLOEXEC
        )
    )


def _made(fd: int) -> int:
    """Close what a call made, or its errno."""
    if fd < 0:
        return ctypes.get_errno()
    os.close(fd)
    return 0
