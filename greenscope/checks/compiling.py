"""Compiles a C program of one line with libbcc; run as a program of its own.

The headers are those of BCC_KERNEL_SOURCE, the errors are the compiler's own on stderr. The
library is called directly: bcc's Python half is the loader's, and is not needed to compile.
"""

from __future__ import annotations

import ctypes
import sys

LIBRARY = "libbcc.so.0"  # what bcc/libbcc.py loads
# Reads as much of the kernel's headers as any of the probes does.
_SOURCE = b"""
#include <uapi/linux/ptrace.h>
#include <linux/sched.h>
int gs_selftest(struct pt_regs *ctx) { return 0; }
"""


def main() -> int:
    """0 when it compiled, 1 when not; the compiler has told why."""
    library = ctypes.CDLL(LIBRARY)
    # src/cc/bcc_common.h of bcc 0.26: text, flags, cflags, number of cflags, allow_rlimit,
    # device name
    create = library.bpf_module_create_c_from_string
    create.restype = ctypes.c_void_p
    create.argtypes = [
        *(ctypes.c_char_p, ctypes.c_uint, ctypes.POINTER(ctypes.c_char_p), ctypes.c_int),
        *(ctypes.c_bool, ctypes.c_char_p),
    ]
    module = create(_SOURCE, 0, (ctypes.c_char_p * 1)(None), 0, True, None)
    return 0 if module else 1


if __name__ == "__main__":
    sys.exit(main())
