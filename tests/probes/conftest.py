from __future__ import annotations

import pytest

from tests.probes.image import HostWalker


@pytest.fixture(scope="session")
def walker(tmp_path_factory: pytest.TempPathFactory) -> HostWalker:
    return HostWalker(tmp_path_factory.mktemp("walker"))
