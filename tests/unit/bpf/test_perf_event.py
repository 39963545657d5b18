from __future__ import annotations

import ctypes
import errno

import pytest

from greenscope.bpf import perf_event
from greenscope.errors import BpfUnavailable, PermissionMissing


def test_attributes_have_the_size_that_the_kernel_calls_version_1() -> None:
    """PERF_ATTR_SIZE_VER1 of include/uapi/linux/perf_event.h."""
    attributes = perf_event._Attributes
    assert ctypes.sizeof(attributes) == 72
    assert (attributes.flags.offset, attributes.config1.offset, attributes.config2.offset) == (
        40,
        56,
        64,
    )


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EPERM, PermissionMissing),
        (errno.EACCES, PermissionMissing),
        (errno.EINVAL, BpfUnavailable),
        (errno.ENOENT, BpfUnavailable),
    ],
)
def test_refusal_tells_a_missing_right_from_a_missing_feature(
    number: int, kind: type[Exception]
) -> None:
    error = perf_event.refused(number, "a probe at /x+0x10")
    assert type(error) is kind
    assert error.message.startswith("the kernel refuses a probe at /x+0x10: ")
    assert "greenscope doctor" in error.hint


def test_probe_in_a_file_that_is_not_there_isrefused() -> None:
    if not perf_event._UPROBE_TYPE.exists():
        pytest.skip("this kernel has no uprobes")
    with pytest.raises((BpfUnavailable, PermissionMissing)):
        perf_event.open_uprobe(-1, "/nonexistent/library.so", 0x1000, -1)
