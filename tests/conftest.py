"""Fixtures and markers that all suites share."""

from __future__ import annotations

import pytest

from tests.harness import default_python
from tests.harness.kernel import check_bpf_test


def pytest_runtest_setup(item: pytest.Item) -> None:
    check_bpf_test(item)


@pytest.fixture(scope="session")
def target_python() -> str:
    """The interpreter that runs the targets of this test run."""
    return default_python()
