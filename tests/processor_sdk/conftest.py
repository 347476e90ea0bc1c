"""What several test modules of the SDK's runtime stand before."""

from collections.abc import Iterator

import pytest

from tests.processor_sdk.router import Validator


@pytest.fixture
def validator() -> Iterator[Validator]:
    """One that nobody has registered with."""
    opened = Validator()
    yield opened
    opened.close()
