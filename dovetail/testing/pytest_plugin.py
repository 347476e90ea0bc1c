"""The pytest plugin: ``ledger`` and ``running_validator`` for the tests of a family.

Nothing but pytest is imported before a test asks for a fixture: the plugin is loaded in every run of every project that
has Dovetail installed.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dovetail.testing.running import RunningValidator
    from processor_sdk.handler import TransactionHandler
    from processor_sdk.testing import Ledger


@pytest.fixture
def handlers() -> "Sequence[TransactionHandler[Any]]":
    """The handlers of ``ledger``: a test module or conftest.py has its own fixture of this name."""
    pytest.fail(
        "the ledger needs to know its handlers: write a fixture `handlers` that returns them, as in [MyHandler()]",
        pytrace=False,
    )


@pytest.fixture
def ledger(handlers: "Sequence[TransactionHandler[Any]]") -> "Ledger":
    """A ledger in memory over ``handlers``, empty for every test; see ``processor_sdk.testing.Ledger``."""
    from processor_sdk.testing import Ledger

    return Ledger(*handlers)


@pytest.fixture(scope="module")
def running_validator(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[RunningValidator]":
    """A real validator with REST API on free ports; see ``dovetail.testing.running.RunningValidator``.

    One for each module: it takes seconds to start, too long for every test, and modules that know nothing of each other
    would share state and processors in one for the session. When a test fails, its processes' last words are shown.
    """
    from dovetail.testing.running import RunningValidator

    running = RunningValidator(tmp_path_factory.mktemp("validator"))
    try:
        yield running
    finally:
        running.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Put what the processes of a failed test's validator said into its report."""
    report: Any = yield
    running: Any = item.funcargs.get("running_validator") if isinstance(item, pytest.Function) else None
    if report.failed and running is not None:
        report.sections.append(("processes of running_validator", running.transcript()))
    return report  # type: ignore[no-any-return]
