"""The trie, compared with a dictionary: same state, same root; appended and replaced nodes; walks by index."""

from collections.abc import Callable, Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.validator.core.state import merkle, nodes, walk
from dovetail.validator.core.state.nodes import EMPTY, Ref
from dovetail.validator.core.state.view import Changed, Stored, View
from tests.dovetail.validator.support import NodeMemory, address
from tests.vectors.naive_trie import root_hash

Changes = Mapping[str, bytes | None]

# A few addresses that branch early, late and in between, so that histories collide.
ADDRESSES = [
    "0" * 70,
    "0" * 69 + "1",
    "0" * 68 + "10",
    "0" * 35 + "f" * 35,
    "0" * 35 + "f" * 34 + "e",
    "0" * 6 + "a" * 64,
    "00000f" + "0" * 64,
    *(nibble + "1" * 69 for nibble in "123456789abcdef"),
    "f" * 70,
]

addresses = st.sampled_from(ADDRESSES) | st.text("0f", min_size=3, max_size=3).map(lambda text: text.ljust(70, "0"))
values = st.binary(max_size=3)
states = st.dictionaries(addresses, values, max_size=12)
changes = st.dictionaries(addresses, st.none() | values, max_size=8)
histories = st.lists(changes, max_size=6)


def applied(model: dict[str, bytes], change: Changes) -> dict[str, bytes]:
    merged = {**model, **change}
    return {name: value for name, value in merged.items() if value is not None}


def reachable(memory: NodeMemory, ref: Ref) -> set[int]:
    """The numbers of all nodes under ``ref``, each checked against its parent's entry."""
    if not ref.number:
        return set()
    node = memory.node(ref.number)
    assert nodes.node_hash(node) == ref.hash
    if node[0] == nodes.LEAF:
        assert ref.leaves == 1
        return {ref.number}
    children = nodes.branch_children(node)
    assert len(children) > 1
    assert ref.leaves == sum(child.leaves for child in children.values())
    numbers = {ref.number}
    prefix = nodes.branch_prefix(node)
    for nibble, child in children.items():
        assert nodes.child_number(node, prefix + nibble) == child.number
        below = reachable(memory, child)
        assert not numbers & below
        numbers |= below
    for nibble in set("0123456789abcdef") - set(children):
        assert nodes.child_number(node, prefix + nibble) == 0
    return numbers


@given(histories)
def test_a_history_ends_in_the_root_of_its_state(history: list[Changes]) -> None:
    memory = NodeMemory()
    model: dict[str, bytes] = {}
    for change in history:
        memory.apply(change)
        model = applied(model, change)
        assert memory.root.hash == root_hash(model)
        for name in {*ADDRESSES, *change}:
            assert merkle.get(memory.node, memory.root, name) == model.get(name)
    if not model:
        assert memory.root == EMPTY


@given(histories)
def test_what_is_appended_and_superseded(history: list[Changes]) -> None:
    memory = NodeMemory()
    model: dict[str, bytes] = {}
    live: set[int] = set()
    for change in history:
        update = memory.apply(change)
        appended = [number for number, _ in update.nodes]
        assert appended == sorted(set(appended))
        assert len(update.superseded) == len(set(update.superseded))
        now = reachable(memory, memory.root)
        assert set(update.superseded) == live - now
        assert set(appended) == now - live
        before, model = model, applied(model, change)
        if model == before:
            assert not appended
        live = now


@given(states, st.randoms(use_true_random=False), st.integers(1, 4))
def test_the_order_of_changes_does_not_matter(state: dict[str, bytes], random: Random, parts: int) -> None:
    at_once = NodeMemory()
    at_once.apply(state)
    names = list(state)
    random.shuffle(names)
    by_parts = NodeMemory()
    for part in range(parts):
        by_parts.apply({name: state[name] for name in names[part::parts]})
    assert by_parts.root.hash == at_once.root.hash


@given(states, states)
def test_what_was_added_and_removed_again_leaves_nothing(state: dict[str, bytes], passing: dict[str, bytes]) -> None:
    memory = NodeMemory()
    memory.apply(state)
    root = memory.root
    extra = {name: value for name, value in passing.items() if name not in state}
    memory.apply(extra)
    memory.apply(dict.fromkeys(extra))
    assert (memory.root.hash, memory.root.leaves) == (root.hash, root.leaves)
    memory.apply(dict.fromkeys(state))
    assert memory.root == EMPTY


@given(states, changes)
def test_the_state_before_stays_readable(state: dict[str, bytes], change: Changes) -> None:
    memory = NodeMemory()
    memory.apply(state)
    root = memory.root
    memory.apply(change)
    assert {name: merkle.get(memory.node, root, name) for name in state} == state


@given(states, st.integers(0, 20))
def test_leaves_are_walked_in_order_from_any_index(state: dict[str, bytes], skip: int) -> None:
    memory = NodeMemory()
    memory.apply(state)
    if state:
        assert list(walk.leaves(memory.node, memory.root, skip)) == sorted(state.items())[skip:]
        descending = walk.leaves(memory.node, memory.root, skip, backwards=True)
        assert list(descending) == sorted(state.items(), reverse=True)[skip:]


@given(states, addresses, st.integers(0, 35), st.sampled_from(["", "0", "z", "00000f00"]) | addresses)
def test_leaves_under_a_prefix_are_walked_from_behind_any_text(
    state: dict[str, bytes], name: str, pairs: int, after: str
) -> None:
    memory = NodeMemory()
    memory.apply(state)
    prefix = name[: 2 * pairs]
    expected = sorted(item for item in state.items() if item[0].startswith(prefix) and item[0] > after)
    assert list(walk.under(memory.node, memory.root, prefix, after)) == expected


@given(states, st.lists(changes, max_size=3), addresses, st.integers(0, 35), st.just("") | addresses)
def test_a_view_is_the_state_with_its_changes(
    state: dict[str, bytes], layers: list[Changes], name: str, pairs: int, after: str
) -> None:
    memory = NodeMemory()
    memory.apply(state)
    view: View = Stored(memory.node, memory.root)
    model = state
    prefix = name[: 2 * pairs]
    for layer in layers:
        growing: dict[str, bytes | None] = {}
        view = Changed(view, growing)
        # A layer is not copied: reads after it grew see its new entries.
        for part in (dict(list(layer.items())[:1]), layer):
            growing.update(part)
            model = applied(model, part)
            expected = sorted(item for item in model.items() if item[0].startswith(prefix) and item[0] > after)
            assert list(view.under(prefix, after)) == expected
        assert {held: view.get(held) for held in ADDRESSES} == {held: model.get(held) for held in ADDRESSES}


@given(states, addresses)
def test_positions_are_indexes_of_the_walk(state: dict[str, bytes], other: str) -> None:
    memory = NodeMemory()
    memory.apply(state)
    if not state:
        return
    order = sorted(state)
    for name in {*order, other}:
        expected = order.index(name) if name in state else None
        assert walk.position(memory.node, memory.root, name) == expected


@given(states, addresses, st.integers(0, 35))
def test_a_subtree_holds_what_its_prefix_begins(state: dict[str, bytes], name: str, pairs: int) -> None:
    memory = NodeMemory()
    memory.apply(state)
    prefix = name[: 2 * pairs]
    expected = sorted((held, value) for held, value in state.items() if held.startswith(prefix))
    top = walk.subtree(memory.node, memory.root, prefix)
    if top is None:
        assert expected == []
        return
    assert top.leaves == len(expected)
    assert list(walk.leaves(memory.node, top)) == expected
    for index, (held, _) in enumerate(expected):
        assert walk.position(memory.node, top, held) == index


def counted(memory: NodeMemory) -> tuple[list[int], Callable[[int], bytes]]:
    """The numbers of the nodes read so far, and a function that reads one."""
    read: list[int] = []

    def counting(number: int) -> bytes:
        read.append(number)
        return memory.node(number)

    return read, counting


def test_a_page_reads_nodes_by_its_length_not_the_states() -> None:
    memory = NodeMemory()
    memory.apply({address(number): b"v" for number in range(5_000)})
    read, counting = counted(memory)
    page = walk.leaves(counting, memory.root, 4_321)
    assert [next(page).address for _ in range(10)] == [address(number) for number in range(4_321, 4_331)]
    assert len(read) < 30
    read.clear()
    assert walk.position(counting, memory.root, address(4_999)) == 4_999
    assert merkle.get(counting, memory.root, address(77)) == b"v"
    assert len(read) < 20


def test_a_list_reads_nodes_by_its_page_not_the_state() -> None:
    memory = NodeMemory()
    memory.apply({address(number): b"v" for number in range(5_000)})
    read, counting = counted(memory)
    page = walk.under(counting, memory.root, "1cf126", address(4_320))
    assert [next(page).address for _ in range(10)] == [address(number) for number in range(4_321, 4_331)]
    assert len(read) < 30


def test_an_update_reads_and_appends_along_its_paths_alone() -> None:
    memory = NodeMemory()
    memory.apply({address(number): b"v" for number in range(5_000)})
    read, counting = counted(memory)
    update = merkle.update(counting, memory.root, {address(1): b"new", address(4_000): None}, memory.next_number)
    assert len(read) == len(set(read)) < 20
    assert len(update.nodes) < 20


def test_a_block_makes_each_node_on_its_paths_once(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = NodeMemory()
    memory.apply({address(number): b"v" for number in range(5_000)})
    taken_apart: list[bytes] = []
    layout = nodes.layout

    def counting(node: bytes) -> nodes.Layout:
        taken_apart.append(node)
        return layout(node)

    monkeypatch.setattr(nodes, "layout", counting)
    made = merkle.update(memory.node, memory.root, {address(n): b"new" for n in range(0, 5_000, 5)}, memory.next_number)
    assert len(made.nodes) == len(made.superseded) < 2_000
    assert len(taken_apart) == len(made.nodes) - 1_000  # The 1,000 leaves are not decoded.


@pytest.mark.parametrize("value", [b"", b"\0", bytes(300)])
def test_leaves_as_bytes(value: bytes) -> None:
    node = nodes.encode_leaf(ADDRESSES[3], value)
    assert (nodes.leaf_address(node), nodes.leaf_value(node)) == (ADDRESSES[3], value)
    assert node == b"\0" + bytes.fromhex(ADDRESSES[3]) + value


@given(
    st.text("0123456789abcdef", max_size=69),
    st.dictionaries(
        st.sampled_from("0123456789abcdef"),
        st.builds(Ref, st.binary(min_size=32, max_size=32), st.integers(1, 2**64 - 1), st.integers(1, 2**32 - 1)),
        min_size=2,
    ),
)
def test_branches_as_bytes(prefix: str, children: dict[str, Ref]) -> None:
    node, digest = nodes.encode_branch(prefix, children)
    assert nodes.encode_branch(prefix, dict(reversed(children.items()))) == (node, digest)
    assert nodes.node_hash(node) == digest
    assert nodes.branch_prefix(node) == prefix
    assert nodes.branch_children(node) == children
    assert list(nodes.branch_children(node)) == sorted(children)
    moved = {nibble: child._replace(number=1, leaves=1) for nibble, child in children.items()}
    assert nodes.encode_branch(prefix, moved)[1] == digest


WAYS: dict[str, Callable[[merkle.ReadNode, Ref], object]] = {
    "get": lambda read, root: merkle.get(read, root, "0" * 70),
    "update": lambda read, root: merkle.update(read, root, {"0" * 70: b"x"}, 10),
    "subtree": lambda read, root: walk.subtree(read, root, "00"),
    "leaves": lambda read, root: list(walk.leaves(read, root)),
    "under": lambda read, root: list(walk.under(read, root, "", "")),
    "position": lambda read, root: walk.position(read, root, "0" * 70),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_way_that_leads_back_up_is_refused_and_not_walked_for_ever(way: str) -> None:
    """A flipped bit in the stored number of a child makes the child its own ancestor."""
    child = Ref(b"h" * 32, 1, 1)
    loop, _ = nodes.encode_branch("", dict.fromkeys("01", child))
    there, _ = nodes.encode_branch("0", {"0": child._replace(number=2), "1": child})
    for stored in ({1: loop}, {1: there, 2: loop}):
        with pytest.raises(nodes.WrongNode, match=r"node \d names node \d as its child"):
            WAYS[way](stored.__getitem__, Ref(b"r" * 32, max(stored), 2))
