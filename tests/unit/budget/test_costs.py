from __future__ import annotations

import pytest

from greenscope.budget.costs import BIRTH, CALL, LEAVE, POLL, SWITCH, WALK, Hits


def test_each_kind_has_its_weight() -> None:
    hits = Hits(switches=2, walks=1, polls=1, calls=4, births=5, leaves=6)
    assert hits.cost_ns(1000.0) == pytest.approx(
        1000 * (2 * SWITCH + WALK + POLL + 4 * CALL + 5 * BIRTH + 6 * LEAVE)
    )


def test_walk_is_part_of_a_hit() -> None:
    assert Hits(switches=3, walks=3, polls=1, calls=2).total == 6
