"""Stacks without a target behind them."""

from __future__ import annotations

from greenscope.model import Code, CodeOrigin, Frame, Stack
from greenscope.offsets.rows import ROWS
from greenscope.rebuild.stacks import StackResolver
from greenscope.target.memory import RecordedMemory

VIEW = Code("view", "/srv/app/views.py", 10, CodeOrigin.APPLICATION)
JOB = Code("job", "/srv/app/jobs.py", 20, CodeOrigin.APPLICATION)
HUB_RUN = Code(
    "Hub.run", "/srv/venv/lib/python3.11/site-packages/gevent/hub.py", 631, CodeOrigin.LIBRARY
)


def stack_of(code: Code) -> Stack:
    return Stack((Frame(code, code.first_line + 1),))


class KnownStacks(StackResolver):
    """A resolver that has these stacks already."""

    def __init__(self, stacks: dict[int, Stack]) -> None:
        super().__init__(RecordedMemory({}), ROWS[3, 11])
        self._stacks = dict(stacks)
