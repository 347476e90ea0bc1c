"""Settings of all tests: property tests are reproducible, and signal handlers are restored after each test.

Fixtures of one package do not belong here.
"""

import signal
from collections.abc import Generator

import hypothesis
import pytest

hypothesis.settings.register_profile(
    "dovetail", derandomize=True, print_blob=True, deadline=None, database=None, max_examples=60
)
# More and random examples: pytest --hypothesis-profile=explore
hypothesis.settings.register_profile("explore", print_blob=True, deadline=None, max_examples=2000)
hypothesis.settings.load_profile("dovetail")

_RESTORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Background jobs and nohup start pytest with ignored signals. Processes that a test starts would inherit that.
for _number in _RESTORED:
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Restore signal handlers: a command that is told to end resets them, and the next signal would end pytest."""
    handlers = {number: signal.getsignal(number) for number in _RESTORED}
    try:
        return (yield)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def pytest_configure(config: pytest.Config) -> None:
    """Load the project's own plugin if the project is not installed, so that no entry point loads it."""
    if not config.pluginmanager.hasplugin("dovetail"):
        config.pluginmanager.import_plugin("dovetail.testing.pytest_plugin")
