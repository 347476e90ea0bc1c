"""The pytest plugin: the fixtures ``ledger`` and ``running_validator`` for the tests of a family.

The fixtures import Dovetail when they are used, because pytest loads this plugin in every project where Dovetail is
installed.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dovetail.testing.running import RunningValidator
    from processor_sdk.handler import TransactionHandler
    from processor_sdk.testing import Ledger


@pytest.fixture
def handlers() -> "Sequence[TransactionHandler[Any]]":
    """The handlers of ``ledger``. A test module or conftest.py must define its own fixture of this name."""
    pytest.fail(
        "the ledger needs to know its handlers: write a fixture `handlers` that returns them, as in [MyHandler()]",
        pytrace=False,
    )


@pytest.fixture
def ledger(handlers: "Sequence[TransactionHandler[Any]]") -> "Ledger":
    """A ledger in memory over ``handlers``, empty for every test. See ``processor_sdk.testing.Ledger``."""
    from processor_sdk.testing import Ledger

    return Ledger(*handlers)


@pytest.fixture(scope="module")
def running_validator(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[RunningValidator]":
    """A real validator with REST API on free ports. See ``dovetail.testing.running.RunningValidator``.

    One for each module: starting takes seconds, too long for every test, and independent modules must not share state
    and processors. The report of a failed test shows the end of the processes' logs.
    """
    from dovetail.testing.running import RunningValidator

    with closing(RunningValidator(tmp_path_factory.mktemp("validator"))) as running:
        yield running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the logs of the validator's processes to the report of a failed test."""
    report: Any = yield
    running: Any = item.funcargs.get("running_validator") if isinstance(item, pytest.Function) else None
    if report.failed and running is not None:
        report.sections.append(("processes of running_validator", running.transcript()))
    return report  # type: ignore[no-any-return]
