"""The contract of the trie's node storage, in memory and in the store: equal histories give equal roots and nodes."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.validator.core.state import merkle, walk
from tests.dovetail.validator.support import NodeMemory, NodesOnDisk, address
from tests.vectors.naive_trie import root_hash

Nodes = NodeMemory | NodesOnDisk


@pytest.fixture(params=["memory", "disk"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Nodes]:
    if request.param == "memory":
        yield NodeMemory()
        return
    disk = NodesOnDisk(tmp_path)
    yield disk
    disk.store.close()


def test_nothing_is_stored_at_first(nodes: Nodes) -> None:
    assert nodes.root.leaves == 0
    assert nodes.next_number == 1
    assert merkle.get(nodes.node, nodes.root, address(1)) is None
    assert nodes.apply({address(1): None}).nodes == []
    assert nodes.next_number == 1


def test_numbers_ascend_without_gaps(nodes: Nodes) -> None:
    numbers: list[int] = []
    for start in (0, 3, 6):
        numbers += [
            number for number, _ in nodes.apply({address(n): b"v%d" % start for n in range(start, start + 5)}).nodes
        ]
    assert numbers == list(range(1, len(numbers) + 1))
    assert nodes.next_number == len(numbers) + 1


_changes = st.dictionaries(
    st.integers(0, 20).map(lambda number: address(number * 257)), st.none() | st.binary(max_size=2), max_size=8
)


@given(history=st.lists(_changes, max_size=4))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_state_is_the_dictionary_of_all_changes(nodes: Nodes, history: list[Mapping[str, bytes | None]]) -> None:
    # All examples of a run share the fixture, so the model starts from the state that earlier examples left.
    model = {} if not nodes.root.number else {leaf.address: leaf.value for leaf in walk.leaves(nodes.node, nodes.root)}
    for changes in history:
        update = nodes.apply(changes)
        for name, value in changes.items():
            if value is None:
                model.pop(name, None)
            else:
                model[name] = value
        assert update.root == nodes.root
        assert nodes.root.hash == root_hash(model)
        assert nodes.root.leaves == len(model)
    listed = list(walk.leaves(nodes.node, nodes.root)) if model else []
    assert listed == sorted(model.items())
