"""Settings of all tests: which tests are slow, reproducible property tests, signal handlers restored after each test.

Fixtures of one package do not belong here.
"""

import faulthandler
import signal
from collections.abc import Collection, Generator
from pathlib import Path
from typing import Final

import hypothesis
import pytest

SLOW: Final = {
    "tests/conformance": "more than a thousand rows on nodes of their own",
    "tests/contracts/test_largest_messages.py": "messages of 32 MiB by the dozen",
    "tests/dovetail/bench/http/test_http_run.py": "benchmarks of nodes",
    "tests/dovetail/bench/load/test_load_run.py": "benchmarks of nodes",
    "tests/dovetail/cli/commands/upgrade/test_rehearse.py": "processes that rehearse a long chain",
    "tests/dovetail/cli/test_scaffold.py::test_its_tests_pass_as_written": "a node for each encoding",
    "tests/dovetail/cli/test_scaffold.py::test_it_is_typed": "mypy over the whole project",
    "tests/dovetail/testing/test_pytest_plugin.py": "nodes in runs of pytest",
    "tests/dovetail/validator/store/test_reader.py": "readers killed by the dozen",
    "tests/dovetail/validator/test_page_cost.py": "long chains",
    "tests/processor_sdk/testing/test_interpreters.py": "interpreters started by the dozen",
    "tests/properties/test_serial_equivalence.py": "long histories",
    "tests/properties/test_testing_ledger.py": "long histories",
    "tests/system/e2e": "a node for nearly every test",
    "tests/system/faults": "nodes that are killed again and again",
    "tests/system/holes": "nodes of their own",
    "tests/system/linearizability/test_node.py": "nodes under load for seconds",
    "tests/system/soak": "a node under everything at once for half a minute",
}
"""The tests that the README's test command leaves out (marker ``slow``), and the reason for each."""

NOT_SLOW: Final = (
    "tests/contracts/test_largest_messages.py::test_every_message_type_has_a_row",
    "tests/properties/test_serial_equivalence.py::test_equals_plain_serial_execution",
    # Real processes, with a client and a processor that use no code of the project.
    "tests/system/e2e/test_processors.py",
    "tests/system/e2e/test_submission.py",
    # Processes that are killed with SIGKILL.
    "tests/system/e2e/test_restart.py::TestUpRestartsWhatDies::test_validator_killed_in_the_middle_of_a_load",
)
"""Tests below ``SLOW`` that the README's command runs nevertheless."""

_ROOT: Final = Path(__file__).parent.parent

hypothesis.settings.register_profile(
    "dovetail", derandomize=True, print_blob=True, deadline=None, database=None, max_examples=60
)
# This profile runs more examples, drawn at random: pytest --hypothesis-profile=explore
hypothesis.settings.register_profile("explore", print_blob=True, deadline=None, max_examples=2000)
hypothesis.settings.load_profile("dovetail")

_RESTORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Background jobs and nohup start pytest with signals ignored, and processes that a test starts would ignore them, too.
for _number in _RESTORED:
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


def _is_listed(node_id: str, listed: Collection[str]) -> bool:
    return any(node_id == entry or node_id.startswith((f"{entry}/", f"{entry}::", f"{entry}[")) for entry in listed)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a module if none of its tests would run, because imports slow down the run of the other tests."""
    path = collection_path.relative_to(_ROOT).as_posix()
    runs = any(entry.startswith(path) for entry in NOT_SLOW) or not _is_listed(path, SLOW)
    return None if runs or config.option.markexpr != "not slow" else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _is_listed(item.nodeid, SLOW) and not _is_listed(item.nodeid, NOT_SLOW):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Restore signal handlers, and cancel the timer of a command.

    A command that a signal ends resets the handlers and starts a timer, and each of these would end pytest.
    """
    handlers = {number: signal.getsignal(number) for number in _RESTORED}
    try:
        return (yield)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        faulthandler.cancel_dump_traceback_later()


def pytest_configure(config: pytest.Config) -> None:
    """If the project is not installed, no entry point loads its pytest plugin: load it here."""
    if not config.pluginmanager.hasplugin("dovetail"):
        config.pluginmanager.import_plugin("dovetail.testing.pytest_plugin")
