"""Fixtures for tests of running processors."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.processor_sdk.router import Validator
from tests.processor_sdk.running import Running


@pytest.fixture
def validator() -> Iterator[Validator]:
    """A validator without registered processors."""
    opened = Validator()
    yield opened
    opened.close()


@pytest.fixture
def start(validator: Validator) -> Iterator[Callable[..., Running]]:
    """Starts processors with workers. They are stopped and joined after the test."""
    running: list[Running] = []

    def begin(run: dict[str, Any] | None = None, url: str = "", **options: Any) -> Running:
        running.append(Running(url or validator.url, run or {}, {"stop_s_max": 0.2, **options}))
        return running[-1]

    yield begin
    for entry in running:
        entry.stop()
    for entry in running:
        entry.join()
