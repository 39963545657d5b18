"""Whether tests marked `bpf` can run here, and what happens to them where they cannot."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

REQUIRE_BPF = "GREENSCOPE_REQUIRE_BPF"
KERNEL_BTF = Path("/sys/kernel/btf/vmlinux")


def why_no_bpf() -> str | None:
    """What is missing for a test on the real kernel, None where it can run."""
    if os.geteuid() != 0:
        return "not root"
    if importlib.util.find_spec("bcc") is None:
        return "no bcc in this interpreter (Debian: python3-bpfcc and --system-site-packages)"
    if not KERNEL_BTF.exists():
        return f"no {KERNEL_BTF}"
    return None


def check_bpf_test(item: pytest.Item) -> None:
    """Skip a `bpf` test by name where it cannot run; fail it where it was required to."""
    if item.get_closest_marker("bpf") is None:
        return
    why = why_no_bpf()
    if why is None:
        return
    if os.environ.get(REQUIRE_BPF) == "1":
        pytest.fail(f"{REQUIRE_BPF}=1, but: {why}", pytrace=False)
    pytest.skip(why)
