"""What several test modules of the SDK's runtime stand before."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.processor_sdk.router import Validator
from tests.processor_sdk.running import Running


@pytest.fixture
def validator() -> Iterator[Validator]:
    """One that nobody has registered with."""
    opened = Validator()
    yield opened
    opened.close()


@pytest.fixture
def start(validator: Validator) -> Iterator[Callable[..., Running]]:
    """Starts processors with workers, and ends them and waits for them when the test is over."""
    running: list[Running] = []

    def begin(run: dict[str, Any] | None = None, url: str = "", **options: Any) -> Running:
        running.append(Running(url or validator.url, run or {}, {"stop_s_max": 0.2, **options}))
        return running[-1]

    yield begin
    for entry in running:
        entry.stop()
    for entry in running:
        entry.join()
