"""How every test runs: property tests repeat exactly, and what fails can be pasted back. No fixtures of one package."""

import hypothesis
import pytest

hypothesis.settings.register_profile(
    "dovetail", derandomize=True, print_blob=True, deadline=None, database=None, max_examples=60
)
# For a search beyond the examples that everybody sees: pytest --hypothesis-profile=explore
hypothesis.settings.register_profile("explore", print_blob=True, deadline=None, max_examples=2000)
hypothesis.settings.load_profile("dovetail")


def pytest_configure(config: pytest.Config) -> None:
    """The plugin of the project itself, where it is not installed and so not loaded by its entry point."""
    if not config.pluginmanager.hasplugin("dovetail"):
        config.pluginmanager.import_plugin("dovetail.pytest_plugin")
