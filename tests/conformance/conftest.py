"""The node under test: one given by ``--url``, or one that the suite starts."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.conformance.nodes import Nodes
from tests.conformance.schema_check import check
from tests.conformance.wire import Answer, Http
from tests.conformance.world import World
from tests.system.e2e.network import Network


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--url``. The option exists only in runs that name this folder on the command line."""
    parser.addoption("--url", help="URL of the REST API to test; default: a node that the suite starts")


def given_url(config: pytest.Config) -> str | None:
    """The URL of the node under test, None for a node of the suite's own."""
    url: str | None = config.getoption("--url", default=None)
    return url


def pytest_configure(config: pytest.Config) -> None:
    """Stop with one line if nothing answers at the URL, instead of failing each row."""
    url = given_url(config)
    if url is None:
        return
    try:
        http = Http(url)
    except ValueError as error:
        raise pytest.UsageError(f"--url: {error}") from None
    try:
        http.get("/healthz")
    except httpx.TransportError as error:
        raise pytest.UsageError(f"--url: nothing answers at {url}: {error}") from None
    except (AssertionError, ValueError):
        # Any answer shows that a node is there. The rows report what is wrong with the answer.
        return
    finally:
        http.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark everything in this folder as tests of real processes."""
    url = given_url(config)
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(180))
            if url is not None and item.path.name == "test_schemathesis.py":
                item.add_marker(pytest.mark.skip(f"needs a node of its own, which {url} is not"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the rule and the transcript of requests and answers to the report of a failed row."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):  # type: ignore[attr-defined]
        row, world, nodes = (item.funcargs.get(name) for name in ("row", "world", "nodes"))
        if row is not None:
            report.sections.append(("rule", f"{row.id}: {row.rule}"))  # type: ignore[attr-defined]
        if isinstance(world, World):
            report.sections.append(("asked and answered", world.http.transcript()))  # type: ignore[attr-defined]
        if isinstance(nodes, Nodes):
            report.sections.append(("asked and answered", nodes.transcript()))  # type: ignore[attr-defined]
    return report


def open_http(url: str) -> Http:
    """A client that checks every answer against the OpenAPI document that the node publishes."""
    http = Http(url)
    document = http.get("/openapi.json").json
    http.checker = partial(_check, document)
    return http


def _check(document: Mapping[str, Any], answer: Answer) -> None:
    path = urlsplit(answer.request.target).path if "://" in answer.request.target else answer.request.target
    check(answer.request.method, path or "/", answer.status, answer.headers, answer.body, document=document)


@pytest.fixture(scope="module")
def _shared_world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    url = given_url(request.config)
    network = None
    try:
        if url is None:
            network = Network(tmp_path_factory.mktemp("node"), DOVETAIL_VALIDATOR_VERIFIER_PROCESSES="0")
            network.up()
            url = network.rest_url
        http = open_http(url)
        yield World(http)
        http.close()
    finally:
        if network is not None:
            network.close()


@pytest.fixture
def world(_shared_world: World) -> World:
    """The node under test, with an empty transcript."""
    assert _shared_world.names
    _shared_world.http.forget()
    return _shared_world
