"""What the kernel side is made of, without what makes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# One translation unit in this order: the maps first, as bcc rewrites map accesses in the main
# file only, then one file for each attach point.
SOURCES = ("maps", "unwatched", "kind", "switch", "lifecycle", "poll", "sampler", "sched", "gc")
UPROBES = (
    "gs_on_switch",
    "gs_on_greenlet_created",
    "gs_on_greenlet_finished",
    "gs_on_greenlet_freed",
    "gs_on_poll",
    "gs_on_gc_start",
    "gs_on_gc_done",
)
SAMPLER = "gs_on_sample"
TRACEPOINTS = {
    "sched_switch": "gs_on_sched_switch",
    "sched_process_exit": "gs_on_thread_exit",
}
WALKS = {
    "gs_switch_programs": "gs_on_switch_walk",
    "gs_sampler_programs": "gs_on_sample_walk",
    "gs_sched_programs": "gs_on_sched_switch_walk",
}
"""By the array of programs in which the tail calls look for them."""
MAPS = (
    "gs_targets",
    "gs_slots",
    "gs_watches",
    "gs_threads",
    "gs_greenlets",
    "gs_roles",
    "gs_tstates",
    "gs_sent_stacks",
    "gs_lost",
    "gs_events",
    "gs_stacks",
    # The kernel empties an array of programs when user space has it open no more.
    *WALKS,
)


@dataclass(frozen=True, slots=True)
class Part:
    """What only some modes need and the others do not wait for: more sources, uprobes, maps."""

    sources: tuple[str, ...]
    uprobes: tuple[str, ...] = ()
    maps: tuple[str, ...] = ()


PARTS: dict[str, Part] = {
    "usdt": Part(sources=("usdt",), maps=("gs_places",)),
}
"""The parts, each compiled with -DGS_WITH_NAME; a source that two share comes once."""

MAX_PLACES = 1024
"""Places of USDT probes (struct gs_place) that one kernel side may have."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes of the maps (entries) and rings (bytes, a power of two of pages)."""

    targets: int = 64
    threads: int = 512
    walks: int = 256
    greenlets: int = 65536
    stacks: int = 16384
    event_ring_bytes: int = 1 << 20
    stack_ring_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be built. `for_links`: uprobe programs are attached by links (links.py)."""

    limits: Limits
    parts: tuple[str, ...]
    for_links: bool


@dataclass(frozen=True, slots=True)
class Built:
    """File descriptors by name, of loaded programs and of maps; names of system calls."""

    programs: dict[str, int]
    maps: dict[str, int]
    syscalls: dict[int, str]

    def syscall_name(self, number: int) -> str:
        """`clock_nanosleep` for 230; the number where it has no known name."""
        return self.syscalls.get(number, str(number))

    @property
    def fds(self) -> tuple[int, ...]:
        """All of them, in an order that both sides know."""
        return *self.programs.values(), *self.maps.values()


def probes_dir() -> Path:
    """Where the BPF sources lie, in a checkout as well as installed."""
    import_root = Path(__file__).resolve().parents[2]
    return import_root / "probes"
