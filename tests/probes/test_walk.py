"""probes/gs_walk.h on frames as CPython 3.11 lays them out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from greenscope.bpf.abi import WalkStatus
from greenscope.offsets.rows import ROWS
from greenscope.offsets.table import InstrKind
from greenscope.rebuild.frames import MAX_FRAMES
from tests.probes.c_source import needs_compiler
from tests.probes.image import CFRAME, FRAMES, PAGE, TGID, TSTATE, HostWalker, Image, place

pytestmark = needs_compiler

OFFSETS = ROWS[3, 11]
SPAN = OFFSETS.frame_span
STRIDE = 112  # a function with a few locals; does not divide a page
# As from 3.12 on: frames of the C stack shim, whose owner is 3.
SHIMMED = replace(OFFSETS, shim_owner=3)
SHIM = 3
INDEXED = replace(OFFSETS, instr_kind=InstrKind.INDEX)


def addresses(depth: int, first: int = FRAMES, stride: int = STRIDE) -> list[int]:
    """Innermost first: the data stack grows up, towards the innermost frame."""
    return [first + stride * (depth - 1 - i) for i in range(depth)]


def places(depths: range) -> tuple[tuple[int, int], ...]:
    return tuple(map(place, depths))


@pytest.mark.parametrize("depth", [1, 2, 20, 127, 128, 129, 1023, 1024])
def test_stack_up_to_the_limit_is_complete(walker: HostWalker, depth: int) -> None:
    image = Image(OFFSETS)
    walked = walker.walk(image, image.put_stack(addresses(depth)))
    assert walked.stack.frames == places(range(depth))
    assert walked.stack.status is WalkStatus.COMPLETE
    assert walked.stack.outermost_code == place(depth - 1)[0]
    assert walked.stack.stack_id & 1
    assert walked.tgid == TGID


@pytest.mark.parametrize("depth", [1025, 1500])
def test_deeper_stack_keeps_its_innermost_frames_and_is_truncated(
    walker: HostWalker, depth: int
) -> None:
    image = Image(OFFSETS)
    walked = walker.walk(image, image.put_stack(addresses(depth)))
    assert walked.stack.frames == places(range(MAX_FRAMES))
    assert walked.stack.status is WalkStatus.TRUNCATED


def test_thread_without_frames_has_no_stack(walker: HostWalker) -> None:
    image = Image(OFFSETS)
    stack = walker.walk(image, image.put_stack([])).stack
    assert (stack.frames, stack.stack_id, stack.outermost_code) == ((), 0, 0)
    assert stack.status is WalkStatus.COMPLETE


def test_thread_state_without_cframe_has_no_stack(walker: HostWalker) -> None:
    image = Image(OFFSETS)
    image.write_word(TSTATE + OFFSETS.tstate_frame, 0)
    stack = walker.walk(image, TSTATE).stack
    assert (stack.frames, stack.stack_id, stack.status) == ((), 0, WalkStatus.COMPLETE)


def test_null_thread_state_is_unreadable(walker: HostWalker) -> None:
    image = Image(OFFSETS)
    image.put_stack(addresses(3))
    stack = walker.walk(image, 0).stack
    assert (stack.frames, stack.stack_id, stack.status) == ((), 0, WalkStatus.UNREADABLE)


@pytest.mark.parametrize("gone", [TSTATE, CFRAME])
def test_unmapped_thread_state_is_unreadable(walker: HostWalker, gone: int) -> None:
    image = Image(OFFSETS)
    tstate = image.put_stack(addresses(3))
    image.unmap(gone)
    stack = walker.walk(image, tstate).stack
    assert (stack.frames, stack.stack_id, stack.status) == ((), 0, WalkStatus.UNREADABLE)


@pytest.mark.parametrize("before_end", range(8, SPAN + 16, 8))
def test_frame_near_the_end_of_a_page_needs_only_its_own_bytes(
    walker: HostWalker, before_end: int
) -> None:
    """Where it straddles the page it is read whole; where it ends there, the next may be gone."""
    image = Image(OFFSETS)
    frame = FRAMES + PAGE - before_end
    walked = walker.walk(image, image.put_stack([frame, FRAMES]))
    assert walked.stack.frames == places(range(2))
    assert walked.stack.status is WalkStatus.COMPLETE
    assert (FRAMES + PAGE in image.pages) == (before_end < SPAN)


def test_frame_that_runs_into_an_unmapped_page_ends_the_walk(walker: HostWalker) -> None:
    image = Image(OFFSETS)
    straddling = FRAMES + PAGE - SPAN + 8
    tstate = image.put_stack([FRAMES, straddling, FRAMES + 256])
    image.unmap(FRAMES + PAGE)
    stack = walker.walk(image, tstate).stack
    assert stack.frames == places(range(1))
    assert stack.status is WalkStatus.UNREADABLE


@pytest.mark.parametrize("direction", [1, -1])
def test_chain_is_followed_over_pages_up_and_down(walker: HostWalker, direction: int) -> None:
    image = Image(OFFSETS)
    addrs = [FRAMES + direction * STRIDE * i for i in range(200)]
    stack = walker.walk(image, image.put_stack(addrs)).stack
    assert (stack.frames, stack.status) == (places(range(200)), WalkStatus.COMPLETE)


def test_memory_is_read_by_pages(walker: HostWalker) -> None:
    image = Image(OFFSETS)
    walked = walker.walk(image, image.put_stack(addresses(128, stride=128)))
    assert walked.stack.frames == places(range(128))
    # The thread state, the cframe, and the four pages that hold the frames.
    assert walked.reads == 2 + 4


@pytest.mark.parametrize("length", [1, 2, 7, 128])
def test_cyclic_chain_ends_truncated(walker: HostWalker, length: int) -> None:
    """Case L3: a corrupted image must not keep a walk running."""
    image = Image(OFFSETS)
    addrs = addresses(length)
    tstate = image.put_stack(addrs)
    image.write_word(addrs[-1] + OFFSETS.frame_previous, addrs[0])
    walked = walker.walk(image, tstate)
    cycle = places(range(length))
    assert walked.stack.frames == tuple(cycle[i % length] for i in range(MAX_FRAMES))
    assert walked.stack.status is WalkStatus.TRUNCATED
    assert walked.runs == 8


@pytest.mark.parametrize("wild", [1, 8, 0xDEAD_BEEF_0000, 1 << 63, (1 << 64) - 8, (1 << 64) - 1])
def test_frames_before_a_wild_pointer_are_kept(walker: HostWalker, wild: int) -> None:
    image = Image(OFFSETS)
    addrs = addresses(30)
    tstate = image.put_stack(addrs)
    image.write_word(addrs[9] + OFFSETS.frame_previous, wild)
    stack = walker.walk(image, tstate).stack
    assert stack.frames == places(range(10))
    assert stack.status is WalkStatus.UNREADABLE
    assert stack.outermost_code == place(9)[0]


@pytest.mark.parametrize("wild", [1, 1 << 63, (1 << 64) - 1])
def test_wild_first_frame_shows_nothing_of_an_earlier_walk(walker: HostWalker, wild: int) -> None:
    image = Image(OFFSETS)
    walker.walk(image, image.put_stack(addresses(40)))
    stack = walker.walk(image, image.put_thread(wild)).stack
    assert (stack.frames, stack.stack_id, stack.status) == ((), 0, WalkStatus.UNREADABLE)


def test_shim_frames_are_left_out(walker: HostWalker) -> None:
    image = Image(SHIMMED)
    tstate = image.put_stack(addresses(5), owners=[0, SHIM, 1, 2, 0])
    stack = walker.walk(image, tstate).stack
    assert stack.frames == (place(0), place(2), place(3), place(4))
    assert stack.outermost_code == place(4)[0]


def test_outermost_code_is_the_entry_function_inside_of_the_shim(walker: HostWalker) -> None:
    image = Image(SHIMMED)
    tstate = image.put_stack(addresses(3), owners=[0, 0, SHIM])
    stack = walker.walk(image, tstate).stack
    assert stack.frames == places(range(2))
    assert stack.outermost_code == place(1)[0]


def test_lone_shim_has_no_outermost_code(walker: HostWalker) -> None:
    image = Image(SHIMMED)
    # Leaves frames all over the scratch, as an earlier walk does.
    walker.walk(image, image.put_stack(addresses(MAX_FRAMES)))
    stack = walker.walk(image, image.put_stack(addresses(1), owners=[SHIM])).stack
    assert (stack.frames, stack.outermost_code) == ((), 0)


def test_every_owner_is_a_frame_where_the_interpreter_has_no_shim(walker: HostWalker) -> None:
    image = Image(OFFSETS)
    tstate = image.put_stack(addresses(4), owners=[0, 1, 2, SHIM])
    assert walker.walk(image, tstate).stack.frames == places(range(4))


def test_tag_bits_of_a_code_pointer_are_masked(walker: HostWalker) -> None:
    image = Image(OFFSETS)
    tstate = image.put_stack([FRAMES])
    image.write_word(FRAMES + OFFSETS.frame_code, place(0)[0] | 5)
    stack = walker.walk(image, tstate).stack
    assert (stack.frames, stack.outermost_code) == ((place(0),), place(0)[0])


def test_instruction_index_is_the_low_half_of_its_word(walker: HostWalker) -> None:
    image = Image(INDEXED)
    tstate = image.put_stack([FRAMES])
    image.write_word(FRAMES + OFFSETS.frame_instr, 0xABCD_0000_0000_0000 | 42)
    assert walker.walk(image, tstate).stack.frames == ((place(0)[0], 42),)


def test_equal_stacks_at_other_addresses_have_one_id(walker: HostWalker) -> None:
    ids = set()
    for first, stride in ((FRAMES, STRIDE), (FRAMES + 3 * PAGE + 8, 256)):
        image = Image(OFFSETS)
        ids.add(walker.walk(image, image.put_stack(addresses(25, first, stride))).stack.stack_id)
    assert len(ids) == 1


def test_different_stacks_have_different_ids(walker: HostWalker) -> None:
    ids = []
    for depth in range(1, 200):
        image = Image(OFFSETS)
        ids.append(walker.walk(image, image.put_stack(addresses(depth))).stack.stack_id)
    image = Image(OFFSETS)
    addrs = addresses(20)
    for depth in range(20):
        tstate = image.put_stack(addrs)
        image.write_word(addrs[depth] + OFFSETS.frame_instr, place(depth)[1] + 2)
        ids.append(walker.walk(image, tstate).stack.stack_id)
    image.put_stack(addrs)
    assert len(set(ids)) == len(ids)
