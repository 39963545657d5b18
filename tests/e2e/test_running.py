"""CPU time by function and by kind, against the target's own clock."""

from __future__ import annotations

from collections import Counter
from math import sqrt

import pytest

from tests.harness.agent import guilty, watch_script
from tests.harness.runner import run_target

SAMPLE_NS = 1e9 / 199


@pytest.mark.parametrize("budget", ["2%", "none"])
def test_cpu_time_is_told_by_function_and_by_kind(budget: str) -> None:
    with run_target("two_handlers") as target:
        report = watch_script(target, "--budget", budget)
        figures = target.truth().figures
        target.quit()
    assert guilty(report) == []
    functions: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for row in report["running"]:
        functions[row["function"]] += row["running_ns"]
        if row["function"] in figures["cpu_ns"]:
            kinds[row["kind"]["function"]] += row["running_ns"]
    assert kinds.keys() == figures["kinds_ns"].keys()
    for told, true in ((functions, figures["cpu_ns"]), (kinds, figures["kinds_ns"])):
        for name, true_ns in true.items():
            # Samples: five times the standard deviation of a count, and 5 %.
            noise_ns = 5 * sqrt(true_ns * SAMPLE_NS)
            assert told[name] == pytest.approx(true_ns, abs=noise_ns + 0.05 * true_ns)
