"""Whether bcc is there, is the right one, and compiles."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from greenscope.bpf.headers import ENVIRONMENT, KernelHeaders
from greenscope.checks import compiling
from greenscope.checks.result import Check, fail, ok
from greenscope.errors import BpfUnavailable

COMPILE_TIMEOUT_S = 60
_INSTALL = (
    "Install it with `apt-get install python3-bpfcc` and run greenscope with Debian's "
    "/usr/bin/python3, in an environment made with --system-site-packages."
)


def bcc_check() -> Check:
    """Python half and library of bcc, found and told from PyPI's unrelated package."""
    # Looked up, not imported: importing is the loader's, and PyPI's bcc does not survive it.
    spec = importlib.util.find_spec("bcc")
    if spec is None or spec.origin is None:
        return fail("bcc", f"not found by {sys.executable}", _INSTALL, BpfUnavailable)
    place = Path(spec.origin).parent
    if not (place / "libbcc.py").exists():
        advice = f"`pip uninstall bcc`. {_INSTALL}"
        return fail("bcc", f"{place} is PyPI's bcc, another project", advice, BpfUnavailable)
    try:
        ctypes.CDLL(compiling.LIBRARY)
    except OSError as error:
        return fail("bcc", f"{place}, but {error}", "`apt-get install libbpfcc`", BpfUnavailable)
    return ok("bcc", f"{_version()} at {place}")


def compile_check(headers: KernelHeaders) -> Check:
    """Compile a small program with libbcc and these headers, in a process of its own.

    A compiler that dies (memory limit, damaged library) then is an answer, too.
    """
    # By its path and with -P: nothing is imported from where the user happens to stand.
    command = [sys.executable, "-P", str(compiling.__file__)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=COMPILE_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            env=os.environ | {ENVIRONMENT: str(headers.path)},
            check=False,
        )
    except subprocess.TimeoutExpired:
        found = f"not done in {COMPILE_TIMEOUT_S} s"
        return fail("bcc compile", found, "Is the machine out of memory?", BpfUnavailable)
    if done.returncode == 0:
        return ok("bcc compile", "a small program, with these headers")
    first = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]
    advice = f"Do the kernel headers fit? {headers.path} was used."
    return fail("bcc compile", first, advice, BpfUnavailable)


def _version() -> str:
    try:
        return importlib.metadata.version("bcc")
    except importlib.metadata.PackageNotFoundError:
        return "unknown version"
