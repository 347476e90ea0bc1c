"""Pruning: unneeded nodes go in the same write as the block, kept states stay whole, the space is reused."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.validator.core.state import merkle, nodes, walk
from dovetail.validator.core.state.nodes import Ref
from dovetail.validator.store import StorageFailed, Store, StoreReader
from dovetail.validator.store.records import key
from tests.dovetail.validator.support import LIMITS, address, commit, make_batch, make_commit

BLOCKS = 40
DEPTH = 3

State = dict[str, bytes]


def changes_of(num: int) -> dict[str, bytes | None]:
    """The changes of a block: leaves are written, written again and removed. Block 30 removes all leaves."""
    rng = random.Random(num)
    changes: dict[str, bytes | None] = {address(rng.randrange(60)): b"%d" % num for _ in range(6)}
    changes |= {address(rng.randrange(60)): None for _ in range(3)}
    return dict.fromkeys(map(address, range(60))) if num == 30 else changes


def write(store: Store, blocks: range) -> list[State]:
    """The state after each block, as a dictionary."""
    state: State = {}
    states = []
    for num in range(blocks.stop):
        changes = changes_of(num)
        state = {name: value for name, value in {**state, **changes}.items() if value is not None}
        states.append(state)
        if num in blocks:
            kept = {name: value for name, value in changes.items() if value is not None or num != 0}
            commit(store, [make_batch(num)], kept)
    return states


def read(store: StoreReader, root: Ref) -> State:
    return {leaf.address: leaf.value for leaf in walk.leaves(store.node, root)} if root.number else {}


def needed(store: StoreReader, root: Ref) -> set[int]:
    """The numbers of all nodes of a state."""
    found, waiting = set(), [root] if root.number else []
    while waiting:
        ref = waiting.pop()
        found.add(ref.number)
        node = store.node(ref.number)
        if node[0] == nodes.BRANCH:
            waiting.extend(nodes.branch_children(node).values())
    return found


def check(store: StoreReader, states: list[State], depth: int) -> None:
    """The newest ``depth`` states are whole, and no other node exists."""
    head = store.head
    assert head is not None
    first = max(0, head.num - depth + 1)
    assert store.pruned.states_from == first
    numbers: set[int] = set()
    for num in range(first, head.num + 1):
        root = store.root_after(num)
        assert read(store, root) == states[num]
        numbers |= needed(store, root)
    assert {int.from_bytes(name, "big") for name, _ in store.entries("nodes")} == numbers
    assert [int.from_bytes(name, "big") for name, _ in store.entries("superseded")] == [
        *range(first + 1 if first else 0, head.num + 1)
    ]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "store", LIMITS, DEPTH)
    yield opened
    opened.close()


def test_each_commit_leaves_the_newest_states_and_nothing_else(store: Store) -> None:
    for num in range(BLOCKS):
        states = write(store, range(num, num + 1))
        check(store, states, DEPTH)


def test_a_store_prunes_to_the_same_later_and_in_bounded_parts(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.validator.store.store._PRUNED_NODES_MAX", 20)
    states = write(store, range(BLOCKS))
    late = Store(tmp_path / "late", LIMITS)
    write(late, range(BLOCKS))
    assert late.pruned.states_from == 0
    parts = 1
    while late.prune(DEPTH):
        parts += 1
    assert parts > 5
    check(late, states, DEPTH)
    assert late.pruned == store.pruned
    assert late.head is not None
    assert store.head is not None
    assert late.head.root == store.head.root
    assert not late.prune(DEPTH)
    late.close()


def test_numbers_of_nodes_are_never_given_twice(tmp_path: Path) -> None:
    """After all leaves are removed, the newest nodes are pruned.

    The numbers of later nodes still continue after the pruned numbers.
    """
    store = Store(tmp_path / "store", LIMITS, 2)
    write(store, range(31))
    for num in range(31, 33):
        store.commit_block(make_commit(store, [make_batch(num)], {}))
    assert store.count("nodes") == 0
    following = store.next_node_number
    assert following > 100
    store.close()
    again = Store(tmp_path / "store", LIMITS, 2)
    assert again.next_node_number == following
    again.close()


def test_what_is_pruned_is_said_not_guessed(store: Store, tmp_path: Path) -> None:
    write(store, range(BLOCKS))
    first = BLOCKS - DEPTH
    with pytest.raises(StorageFailed, match=f"the state after block {first - 1} is not there any more: states"):
        store.root_after(first - 1)
    old = store.block(5)
    assert old is not None
    with pytest.raises(StorageFailed, match=f"kept are those after block {first} and later ones"):
        merkle.get(store.node, old.root, address(1))


def test_a_damaged_list_ends_pruning_and_nothing_else(store: Store) -> None:
    write(store, range(10))
    with store._env.begin(write=True) as transaction:
        transaction.put(key(8), b"damaged", db=store._tables["superseded"])
    store.refresh()
    states = write(store, range(10, 14))
    assert store.pruned.states_from == 7
    assert store.head is not None
    assert read(store, store.head.root) == states[13]


def test_a_commit_that_fails_prunes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write(store, range(10))
    before, nodes = store.pruned, store.count("nodes")
    monkeypatch.setattr(Store, "_make_room", lambda store, data_bytes: None)
    monkeypatch.setattr(Store, "_doubled", lambda store: False)
    big = {address(number): bytes(100_000) for number in range(200)}
    with pytest.raises(StorageFailed, match="refused a write"):
        commit(store, [make_batch("big")], big)
    assert (store.pruned, store.count("nodes")) == (before, nodes)


def test_the_file_is_used_again(tmp_path: Path) -> None:
    """The same leaves are written repeatedly. If few states are kept, the file grows by the receipts only."""

    def grown(folder: Path, depth: int) -> int:
        store = Store(folder, LIMITS, depth)
        value = bytes(1_000)
        sizes = []
        for num in range(120):
            commit(store, [make_batch(num)], {address(number): value + b"%d" % num for number in range(20)})
            if num in (39, 119):
                sizes.append(store.used_bytes())
        store.close()
        return sizes[1] - sizes[0]

    assert grown(tmp_path / "all", 0) - grown(tmp_path / "few", 2) > 80 * 20 * 1_000
