"""bpf(2), which libc has no function for."""

from __future__ import annotations

import ctypes
import os

_NUMBER = {"x86_64": 321, "aarch64": 280}  # arch/*/entry/syscalls, asm-generic/unistd.h

_libc = ctypes.CDLL(None, use_errno=True)


def sys_bpf(command: int, attributes: ctypes.Structure) -> int:
    """Its result; -1 with the reason in ctypes' errno. `command` is of enum bpf_cmd."""
    number = _NUMBER[os.uname().machine]
    result: int = _libc.syscall(
        number, command, ctypes.byref(attributes), ctypes.sizeof(attributes)
    )
    return result
