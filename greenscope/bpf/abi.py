"""The structs that the BPF programs and the agent share, as ctypes.

Mirrors probes/gs_events.h and probes/gs_target.h; tests/probes compares size and offset of
every field with what the C compiler says.
"""

from __future__ import annotations

import ctypes
import enum
import struct
from typing import NamedTuple


class EventKind(enum.IntEnum):
    """enum gs_event_kind."""

    HOLD = 1
    SAMPLE = 2
    BLOCK = 3
    GREENLET_END = 4


class OffKind(enum.IntEnum):
    """enum gs_off_kind: how a thread left the CPU."""

    NONE = 0
    BLOCKED = 1
    PREEMPTED = 2
    FAULT = 3


class Role(enum.IntEnum):
    """enum gs_role: what a greenlet is, by its outermost code."""

    UNKNOWN = 0
    GREENLET = 1
    HUB = 2
    WORKER = 3
    LOOP = 4


class Hub(enum.IntEnum):
    """enum gs_hub: whether a thread has a hub."""

    NONE = 0
    SEEN = 1
    ASSUMED = 2


class WaitStacks(enum.IntEnum):
    """enum gs_wait_stacks: at which switches the stack of the leaving greenlet is walked."""

    OFF = 0
    SAMPLED = 1
    EXACT = 2


class WalkStatus(enum.IntEnum):
    """enum gs_walk_status."""

    COMPLETE = 0
    TRUNCATED = 1
    UNREADABLE = 2


class UsdtKind(enum.IntEnum):
    """enum gs_usdt_kind: how the value of an argument is got at (target.usdt.ArgumentKind)."""

    NONE = 0
    CONSTANT = 1
    REGISTER = 2
    MEMORY = 3


class LossKind(enum.IntEnum):
    """enum gs_loss: index into the map gs_lost."""

    EVENTS = 0
    STACKS = 1
    GREENLETS = 2
    THREADS = 3


FLAG_HUB = 0x01
FLAG_BEGAN_BEFORE = 0x02
FLAG_GC = 0x04
FLAG_IN_SYSCALL = 0x08
FLAG_ASSUMED = 0x10
FLAG_UNDECIDED = 0x20
FLAG_UNWATCHED = 0x40

NEVER_LOOKED = (1 << 64) - 2
"""gs_thread.phase before the first look at a thread."""

POLLS = (
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "io_uring_enter",
)
"""The system calls in which a hub waits for events: GS_NR_* of sched.bpf.c."""

SLEEPS = ("nanosleep", "clock_nanosleep")
"""Where eventlet's hub waits, and some of one's own, while they have no file to wait for."""

NO_SHIM = 255
"""gs_target.shim_owner where no frame is a shim."""


class Event(NamedTuple):
    """struct gs_event; see the header for what a field means in which kind."""

    kind: int
    flags: int
    off_kind: int
    pad: int
    nr: int
    tid: int
    tgid: int
    ktime_ns: int
    hold_id: int
    stack_id: int
    duration_ns: int
    greenlet_id: int
    blocked_ns: int
    preempted_ns: int
    gc_ns: int


EVENT = struct.Struct("<4BiII8Q")
FRAME = struct.Struct("<QQ")
STACK_HEADER = struct.Struct("<QQIHHII")


class Target(ctypes.Structure):
    """struct gs_target."""

    _fields_ = (
        ("tstate_addr", ctypes.c_uint64),
        ("threshold_ns", ctypes.c_uint64),
        ("sample_age_ns", ctypes.c_uint64),
        ("min_block_ns", ctypes.c_uint64),
        ("instr_mask", ctypes.c_uint64),
        ("tstate_frame", ctypes.c_uint32),
        ("cframe_frame", ctypes.c_int32),
        ("frame_code", ctypes.c_uint16),
        ("frame_previous", ctypes.c_uint16),
        ("frame_instr", ctypes.c_uint16),
        ("frame_owner", ctypes.c_uint16),
        ("shim_owner", ctypes.c_uint8),
        ("wait_stacks", ctypes.c_uint8),
        ("frame_span", ctypes.c_uint8),
        ("pad", ctypes.c_uint8),
        ("wait_walks", ctypes.c_uint32),
        ("tstate_version", ctypes.c_uint32),
        ("greenlet_self", ctypes.c_uint16),
        ("greenlet_dict", ctypes.c_uint16),
        ("object_type", ctypes.c_uint16),
        ("dict_keys", ctypes.c_uint16),
        ("dict_values", ctypes.c_uint16),
        ("keys_log2_index_bytes", ctypes.c_uint16),
        ("keys_kind", ctypes.c_uint16),
        ("keys_nentries", ctypes.c_uint16),
        ("keys_indices", ctypes.c_uint16),
        ("text_data", ctypes.c_uint16),
        ("method_function", ctypes.c_uint16),
        ("function_code", ctypes.c_uint16),
        ("values_items", ctypes.c_uint16),
        ("pad2", ctypes.c_uint16),
        ("function_type", ctypes.c_uint64),
        ("method_type", ctypes.c_uint64),
    )


class Watch(ctypes.Structure):
    """struct gs_watch."""

    _fields_ = (
        ("phase", ctypes.c_uint64),
        ("on_since_ns", ctypes.c_uint64),
        ("fresh_since", ctypes.c_uint64),
        ("switches", ctypes.c_uint64),
        ("walks", ctypes.c_uint64),
        ("polls", ctypes.c_uint64),
        ("births", ctypes.c_uint64),
        ("leaves", ctypes.c_uint64),
        ("python_state", ctypes.c_uint64),
    )


class Thread(ctypes.Structure):
    """struct gs_thread."""

    _fields_ = (
        ("tstate", ctypes.c_uint64),
        ("greenlet", ctypes.c_uint64),
        ("greenlet_id", ctypes.c_uint64),
        ("hold_id", ctypes.c_uint64),
        ("hold_start_ns", ctypes.c_uint64),
        ("blocked_ns", ctypes.c_uint64),
        ("preempted_ns", ctypes.c_uint64),
        ("gc_ns", ctypes.c_uint64),
        ("gc_since_ns", ctypes.c_uint64),
        ("off_since_ns", ctypes.c_uint64),
        ("off_stack_id", ctypes.c_uint64),
        ("off_nr", ctypes.c_int32),
        ("off_kind", ctypes.c_uint8),
        ("role", ctypes.c_uint8),
        ("has_hub", ctypes.c_uint8),
        ("idle", ctypes.c_uint8),
        ("began_before", ctypes.c_uint8),
        ("exited", ctypes.c_uint8),
        ("stack_wanted", ctypes.c_uint8),
        ("slot", ctypes.c_uint8),
        ("tgid", ctypes.c_uint32),
        ("undecided", ctypes.c_uint8),
        ("pad", ctypes.c_uint8 * 7),
        ("phase", ctypes.c_uint64),
        ("version", ctypes.c_uint64),
        ("seen_ns", ctypes.c_uint64),
        ("same_since_ns", ctypes.c_uint64),
        ("before_same_ns", ctypes.c_uint64),
        ("uncertain_ns", ctypes.c_uint64),
        ("longest_block_ns", ctypes.c_uint64),
        ("unwatched_ns", ctypes.c_uint64),
        ("unwatched_switches", ctypes.c_uint64),
        ("drift", ctypes.c_int64),
        ("switches", ctypes.c_uint64),
        ("holds", ctypes.c_uint64),
        ("holding_ns", ctypes.c_uint64),
        ("hub_ns", ctypes.c_uint64),
        ("idle_ns", ctypes.c_uint64),
        ("longest_hold_ns", ctypes.c_uint64),
        ("walk_window_ns", ctypes.c_uint64),
        ("walk_tokens", ctypes.c_uint64),
    )


class GreenletKey(ctypes.Structure):
    """struct gs_greenlet_key."""

    _fields_ = (
        ("addr", ctypes.c_uint64),
        ("tgid", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
    )


class Greenlet(ctypes.Structure):
    """struct gs_greenlet."""

    _fields_ = (
        ("id", ctypes.c_uint64),
        ("left_ns", ctypes.c_uint64),
        ("left_stack_id", ctypes.c_uint64),
        ("kind_stack_id", ctypes.c_uint64),
        ("switches", ctypes.c_uint64),
        ("running_ns", ctypes.c_uint64),
        ("waiting_ns", ctypes.c_uint64),
        ("longest_hold_ns", ctypes.c_uint64),
        ("phase", ctypes.c_uint64),
        ("start_code", ctypes.c_uint64),
        ("tid", ctypes.c_uint32),
        ("role", ctypes.c_uint8),
        ("finished", ctypes.c_uint8),
        ("start_read", ctypes.c_uint8),
        ("pad", ctypes.c_uint8),
    )


USDT_ARGS = 12
NO_REGISTER = 0xFFFF


class UsdtArg(ctypes.Structure):
    """struct gs_usdt_arg."""

    _fields_ = (
        ("value", ctypes.c_int64),
        ("base", ctypes.c_uint16),
        ("index", ctypes.c_uint16),
        ("kind", ctypes.c_uint8),
        ("scale_shift", ctypes.c_uint8),
        ("unused_bits", ctypes.c_uint8),
        ("is_signed", ctypes.c_uint8),
    )


class Place(ctypes.Structure):
    """struct gs_place."""

    _fields_ = (
        ("probe", ctypes.c_uint32),
        ("nr_args", ctypes.c_uint32),
        ("args", UsdtArg * USDT_ARGS),
    )


def u8(value: int) -> ctypes.c_uint8:
    """A map value of one byte."""
    return ctypes.c_uint8(value)


def u32(value: int) -> ctypes.c_uint32:
    """A map key that is a pid or tid."""
    return ctypes.c_uint32(value)


def u64(value: int) -> ctypes.c_uint64:
    """A map key that is an address in the target."""
    return ctypes.c_uint64(value)
