"""Nodes of ``tests/system/e2e`` for tests that damage them. No assertions."""

from pathlib import Path

import pytest

from tests.system.e2e.conftest import _session_node as _session_node
from tests.system.e2e.conftest import author as author
from tests.system.e2e.conftest import named as named
from tests.system.e2e.conftest import networks as networks
from tests.system.e2e.conftest import pytest_runtest_makereport as pytest_runtest_makereport
from tests.system.e2e.conftest import shared as shared


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Most tests of this folder start real processes."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.e2e)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(180))
