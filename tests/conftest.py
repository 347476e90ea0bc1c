"""How every test runs: property tests repeat exactly, what fails can be pasted back, and no test leaves the next one
its signal handlers. No fixtures of one package."""

import signal
from collections.abc import Generator

import hypothesis
import pytest

hypothesis.settings.register_profile(
    "dovetail", derandomize=True, print_blob=True, deadline=None, database=None, max_examples=60
)
# For a search beyond the examples that everybody sees: pytest --hypothesis-profile=explore
hypothesis.settings.register_profile("explore", print_blob=True, deadline=None, max_examples=2000)
hypothesis.settings.load_profile("dovetail")


_HEEDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """A command that is told to end leaves the next signal to the system, which would then end the next test's run."""
    handlers = {number: signal.getsignal(number) for number in _HEEDED}
    try:
        return (yield)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def pytest_configure(config: pytest.Config) -> None:
    """The plugin of the project itself, where it is not installed and so not loaded by its entry point."""
    if not config.pluginmanager.hasplugin("dovetail"):
        config.pluginmanager.import_plugin("dovetail.testing.pytest_plugin")
