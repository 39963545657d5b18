"""The walk in the kernel and the one from outside give the same stack of any memory."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenscope.offsets.rows import ROWS
from greenscope.offsets.table import InstrKind, InterpreterOffsets
from greenscope.rebuild.frames import walk_thread
from tests.probes.c_source import needs_compiler
from tests.probes.image import FRAMES, PAGE, HostWalker, Image, ImageFrame, Walked

pytestmark = needs_compiler

OFFSETS = ROWS[3, 11]
SHAPES = (
    OFFSETS,
    replace(OFFSETS, instr_kind=InstrKind.INDEX),
    replace(OFFSETS, shim_owner=3),
    # As 3.13: the thread state holds the frame itself.
    replace(OFFSETS, cframe_frame=None, shim_owner=3),
)
PAGES = 4
WORDS = st.integers(0, (1 << 64) - 1)
ADDRESSES = st.integers(FRAMES, FRAMES + PAGES * PAGE - 1)
ALIGNED = st.integers(0, PAGES * PAGE // 8 - 1).map(lambda word: FRAMES + 8 * word)


@st.composite
def images(draw: st.DrawFn) -> tuple[Image, int]:
    """Frames that may overlap, straddle and cycle, in pages some of which are missing."""
    offsets: InterpreterOffsets = draw(st.sampled_from(SHAPES))
    image = Image(offsets)
    addrs = draw(st.lists(ALIGNED | ADDRESSES, min_size=1, max_size=40))
    links = st.sampled_from([*addrs, 0]) | WORDS
    chained = draw(st.booleans())
    for addr, following in zip(addrs, [*addrs[1:], 0], strict=True):
        previous = following if chained else draw(links)
        owner = draw(st.integers(0, 3) | st.integers(0, 255))
        image.put_frame(ImageFrame(addr, draw(WORDS), draw(WORDS), owner, previous))
    for page in draw(st.sets(st.integers(0, PAGES), max_size=2)):
        image.unmap(FRAMES + page * PAGE)
    return image, image.put_thread(draw(st.just(addrs[0]) | links))


def has_one_entry(walked: Walked, offsets: InterpreterOffsets) -> bool:
    """Whether the outermost shim, if any, has a function inside of it, as it always has."""
    shim_owner = offsets.shim_owner
    return shim_owner is None or any(owner < shim_owner for owner in walked.owners[-2:])


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(drawn=images())
def test_both_walkers_give_the_same_frames_and_status(
    walker: HostWalker, drawn: tuple[Image, int]
) -> None:
    image, tstate = drawn
    walked = walker.walk(image, tstate)
    outside = walk_thread(image.memory(), tstate, image.offsets)
    assert (walked.stack.frames, walked.stack.status) == (outside.frames, outside.status)
    if has_one_entry(walked, image.offsets):
        assert walked.stack.outermost_code == outside.outermost_code
