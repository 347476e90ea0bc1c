"""The node that the tables are held against: one given by --url, or one that the suite starts itself."""

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
    """Seen when this folder is named on the command line; in a run of all tests the option is not there."""
    parser.addoption("--url", help="the REST API to hold to the rules; by default a node that the suite starts")


def given_url(config: pytest.Config) -> str | None:
    """The node to test, None for one of the suite's own."""
    url: str | None = config.getoption("--url", default=None)
    return url


def pytest_configure(config: pytest.Config) -> None:
    """Where nothing answers, one line says so instead of each row."""
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
        # Something does; the rows tell what is wrong with it.
        return
    finally:
        http.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Everything in this folder talks to real processes."""
    url = given_url(config)
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(180))
            if url is not None and item.path.name == "test_schemathesis.py":
                item.add_marker(pytest.mark.skip(f"searches a node of its own, not {url}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Put the rule, and what was asked and answered, into the report of a row that fails."""
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
    """A client that holds every answer to the OpenAPI document that the node itself publishes."""
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
    """The node, with an empty transcript."""
    assert _shared_world.names
    _shared_world.http.forget()
    return _shared_world
