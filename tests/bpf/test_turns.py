"""Probes that are taken away and put back while the target switches as fast as it can."""

from __future__ import annotations

from itertools import pairwise

import pytest

from greenscope.attachment import SwitchProbes
from greenscope.bpf.loader import Kernel
from greenscope.offsets.program import inspect_program
from greenscope.tracer import Options, Tracer
from tests.bpf.kernel_objects import bpf_objects, footprint, perf_events, wait_until
from tests.harness.runner import run_target

pytestmark = pytest.mark.bpf

TURNS = 300


def test_target_is_unharmed_and_nothing_is_left_after_many_turns() -> None:
    with run_target("fast_switches", args=("seconds=20", "greenlets=10")) as target:
        place = footprint(target.pid)
        before, events_before = bpf_objects("self"), perf_events("self")
        with Tracer(inspect_program(target.pid), Kernel(), Options(budget=None)) as tracer:
            target.go()
            probes = SwitchProbes(tracer._kernel, target.pid)
            hits = [probes.hits().switches]
            for _ in range(TURNS):
                probes.turn_off()
                probes.turn_on()
                tracer.poll()
                hits.append(probes.hits().switches)
            tracer.finish("duration")
        # Closed once more by the end, while the target goes on.
        assert all(later > earlier for earlier, later in pairwise(hits))
        assert bpf_objects("self") <= before
        assert perf_events("self") == events_before
        assert place.is_untouched()
        target.wait_done()
        truth = target.truth()
        target.quit()
    assert truth.figures["turns"] > hits[-1] / 2


def test_turning_off_takes_the_breakpoint_out_and_on_puts_it_back() -> None:
    """Twice is once."""
    with (
        run_target("idle_server") as target,
        Tracer(inspect_program(target.pid), Kernel(), Options(budget=None)) as tracer,
    ):
        place = footprint(target.pid)
        bursts = tracer._kernel.bursts
        for _ in range(2):
            bursts.turn_off()
            assert wait_until(lambda: not place.has_breakpoint())
        for _ in range(2):
            bursts.turn_on()
            assert place.has_breakpoint()
