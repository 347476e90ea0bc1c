"""The rules that need nodes with other settings or failures, which a URL cannot give: one test a row."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import rules_settings, rules_validator
from tests.conformance.conftest import given_url, open_http
from tests.conformance.nodes import Nodes, Surrounded

ROWS = [*rules_settings.ROWS, *rules_validator.ROWS]


@pytest.fixture(scope="module")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    made = Nodes(tmp_path_factory.mktemp("shared"), open_http)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def nodes(request: pytest.FixtureRequest, tmp_path: Path, _shared: Nodes) -> Iterator[Nodes]:
    """A maker of nodes; skips the row if the suite tests a given node."""
    url = given_url(request.config)
    if url is not None:
        pytest.skip(f"needs nodes with settings of its own, which {url} is not")
    made = Nodes(tmp_path, open_http, _shared)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_rule(row: Surrounded, nodes: Nodes) -> None:
    row.run(nodes)
