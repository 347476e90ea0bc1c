"""Every rule of the specification and of API.md that a client can observe, one test a row."""

from collections import Counter

import pytest

from tests.conformance import (
    rules_answers,
    rules_links,
    rules_lists,
    rules_node,
    rules_order,
    rules_proxy,
    rules_resources,
    rules_status,
    rules_submission,
    rules_wait,
)
from tests.conformance.table import Row
from tests.conformance.world import World

ROWS = [
    *rules_answers.ROWS,
    *rules_submission.ROWS,
    *rules_wait.ROWS,
    *rules_status.ROWS,
    *rules_lists.ROWS,
    *rules_links.ROWS,
    *rules_order.ROWS,
    *rules_resources.ROWS,
    *rules_proxy.ROWS,
    *rules_node.ROWS,
]


PROXIED = {row.id for row in rules_proxy.ROWS}


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_rule(row: Row, world: World) -> None:
    if row.id in PROXIED and not world.http.is_loopback:
        pytest.skip(f"needs a node that trusts this machine as a proxy, and {world.http.url} is another machine")
    row.run(world)


def test_each_row_has_a_name_of_its_own() -> None:
    assert not [name for name, count in Counter(row.id for row in ROWS).items() if count > 1]
