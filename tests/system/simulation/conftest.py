"""Suppresses the log lines of simulated nodes, and restores logging for other tests."""

from collections.abc import Iterator

import pytest
import structlog

from tests.system.simulation.turns import quiet


@pytest.fixture(autouse=True)
def no_log() -> Iterator[None]:
    before = structlog.get_config()
    quiet()
    yield
    structlog.configure(**before)
