"""A target's truth.jsonl as data. Times are ns of the monotonic clock (the kernel's ktime)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class TruthFrame:
    """One frame as the target itself saw it."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Act:
    """One guilty act: `function` made the guilty call at `line` of `file`.

    `lines` are all the lines that may be blamed (a loop has several), `line` is the first of
    them. `cpu_ns` is the thread's CPU time within it. `stack` is innermost first and begins with
    that frame. `greenlet` is the target's own label. `holds_hub` is False for an act on a thread
    that runs no hub.
    """

    function: str
    file: str
    line: int
    lines: tuple[int, ...]
    reason: str
    begin_ns: int
    end_ns: int
    cpu_ns: int
    tid: int
    greenlet: str
    is_hub: bool
    holds_hub: bool
    stack: tuple[TruthFrame, ...]

    @property
    def duration_ns(self) -> int:
        """How long the act took by the target's own clock."""
        return self.end_ns - self.begin_ns


@dataclass(frozen=True, slots=True)
class StackTruth:
    """`traceback.extract_stack()` of one greenlet, innermost first."""

    greenlet: str
    frames: tuple[TruthFrame, ...]


@dataclass(frozen=True, slots=True)
class TruthFile:
    """All that a target wrote: acts in the order they ended, stacks, and named figures."""

    acts: tuple[Act, ...]
    stacks: tuple[StackTruth, ...]
    figures: dict[str, Any]

    def acts_of(self, function: str) -> tuple[Act, ...]:
        """The acts that this function is to blame for."""
        return tuple(act for act in self.acts if act.function == function)

    def total_ns(self, function: str) -> int:
        """The time that all acts of this function took together."""
        return sum(act.duration_ns for act in self.acts_of(function))


def read_truth(path: Path) -> TruthFile:
    """The truth written at `path`; a line of an unknown kind is an error."""
    acts: list[Act] = []
    stacks: list[StackTruth] = []
    figures: dict[str, Any] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        kind = line.pop("kind")
        if kind == "act":
            line["lines"] = tuple(line["lines"])
            acts.append(Act(**{**line, "stack": _frames(line["stack"])}))
        elif kind == "stack":
            stacks.append(StackTruth(line["greenlet"], _frames(line["frames"])))
        elif kind == "figure":
            figures[line["name"]] = line["value"]
        else:
            raise ValueError(f"{path}: unknown kind of truth {kind!r}")
    return TruthFile(tuple(acts), tuple(stacks), figures)


def _frames(rows: list[list[Any]]) -> tuple[TruthFrame, ...]:
    return tuple(TruthFrame(function, file, line) for function, file, line in rows)
