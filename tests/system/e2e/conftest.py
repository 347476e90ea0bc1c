"""Nodes for tests: one for the whole session, and new nodes. A failed test's report shows their processes' output."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.e2e.clients import Api, Author, WireClient, name_for
from tests.system.e2e.network import Network
from tests.system.e2e.process import Process, ProcessFailed
from tests.system.e2e.script_family import HANDLER, Gate


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder as tests of real processes."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(120))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the output of the nodes of a failed test to its report."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):  # type: ignore[attr-defined]
        transcripts = {name: getattr(value, "transcript", None) for name, value in item.funcargs.items()}
        for name, transcript in transcripts.items():
            if callable(transcript):
                report.sections.append((f"processes of {name}", transcript()))  # type: ignore[attr-defined]
    return report


class Shared:
    """The session's node: ``dovetail up`` and a processor of the script family. Tests only add batches to it."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.up: Process = network.up()
        self.script: Process = network.processor(HANDLER)
        self.script.wait_logged("ready")
        self.api = Api(network.rest_url)
        self.wire = WireClient(network.validator_url)
        self.transcript = network.transcript

    def close(self) -> None:
        self.api.close()
        self.wire.close()


@pytest.fixture(scope="session")
def _session_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    network = Network(
        tmp_path_factory.mktemp("node"),
        DOVETAIL_VALIDATOR_VERIFIER_PROCESSES="0",
        DOVETAIL_LIMITS_INTERNAL_ERROR_BACK_OFF_MS="10",
    )
    try:
        shared = Shared(network)
        yield shared
        shared.close()
    except ProcessFailed as error:
        error.add_note(network.transcript())
        raise
    finally:
        network.close()


@pytest.fixture
def shared(_session_node: Shared) -> Shared:
    """The session's node."""
    return _session_node


@pytest.fixture
def api(_session_node: Shared) -> Api:
    """The REST API of the session's node."""
    return _session_node.api


@pytest.fixture
def wire_to(_session_node: Shared) -> WireClient:
    """A 1.x client of the session's node."""
    return _session_node.wire


class Networks:
    """Makes nodes, and ends them after the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: list[Network] = []
        self._apis: list[Api] = []

    def __call__(self, **environment: str) -> Network:
        network = Network(self._folder / f"node{len(self._made)}", **environment)
        self._made.append(network)
        return network

    def api(self, network: Network) -> Api:
        """A client of the network's REST API."""
        self._apis.append(Api(network.rest_url))
        return self._apis[-1]

    def transcript(self) -> str:
        return "\n".join(network.transcript() for network in self._made)

    def close(self) -> None:
        for api in self._apis:
            api.close()
        for network in self._made:
            network.close()


@pytest.fixture
def networks(tmp_path: Path) -> Iterator[Networks]:
    """Makes new nodes: ``networks(DOVETAIL_…="…")``."""
    made = Networks(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def module_networks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Networks]:
    """Makes nodes that end with the module, for tests that do not disturb each other."""
    made = Networks(tmp_path_factory.mktemp("module"))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def author(request: pytest.FixtureRequest) -> Author:
    """A key of the test's own."""
    return Author(request.node.nodeid)


@pytest.fixture
def named(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes an intkey name that no other test uses, from a name of at most 8 characters."""
    prefix = name_for(request.node.nodeid)
    return lambda name: f"{prefix}{name}"


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Holds applies until the test lets them continue."""
    made = Gate()
    try:
        yield made
    finally:
        made.close()
