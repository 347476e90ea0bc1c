"""Walking the trie in address order, by index or behind an address: pages, counts and positions in O(count + depth).

Reads only. All of it raises WrongNode where a way has no end.
"""

from collections.abc import Iterator
from typing import NamedTuple

from dovetail.validator.core.state import nodes
from dovetail.validator.core.state.merkle import ReadNode
from dovetail.validator.core.state.nodes import Ref


class Leaf(NamedTuple):
    address: str
    value: bytes


def subtree(read: ReadNode, root: Ref, prefix: str) -> Ref | None:
    """The subtree that holds exactly the leaves under ``prefix``; None where there is none."""
    ref: Ref | None = root if root.number else None
    while ref is not None:
        node = read(ref.number)
        if node[0] == nodes.LEAF:
            return ref if nodes.leaf_address(node).startswith(prefix) else None
        place = nodes.branch_prefix(node)
        if place.startswith(prefix):
            return ref
        if not prefix.startswith(place):
            return None
        ref = nodes.children_below(node, ref.number).get(prefix[len(place)])
    return None


def leaves(read: ReadNode, ref: Ref, skip: int = 0, *, backwards: bool = False) -> Iterator[Leaf]:
    """The leaves of a subtree in ascending address order, or in descending order, without the first ``skip`` of it."""
    node = read(ref.number)
    if node[0] == nodes.LEAF:
        if not skip:
            yield Leaf(nodes.leaf_address(node), nodes.leaf_value(node))
        return
    children = list(nodes.children_below(node, ref.number).values())
    for child in reversed(children) if backwards else children:
        if skip >= child.leaves:
            skip -= child.leaves
        else:
            yield from leaves(read, child, skip, backwards=backwards)
            skip = 0


def under(read: ReadNode, root: Ref, prefix: str, after: str) -> Iterator[Leaf]:
    """The leaves under ``prefix`` whose address comes behind ``after`` (any text), in ascending address order."""
    top = subtree(read, root, prefix)
    if top is not None:
        yield from _behind(read, top, after)


def _behind(read: ReadNode, ref: Ref, after: str) -> Iterator[Leaf]:
    node = read(ref.number)
    if node[0] == nodes.LEAF:
        if nodes.leaf_address(node) > after:
            yield Leaf(nodes.leaf_address(node), nodes.leaf_value(node))
        return
    place = nodes.branch_prefix(node)
    way, rest = after[: len(place)], after[len(place) :]
    if place > way:
        yield from leaves(read, ref)
    elif place == way:
        for nibble, child in nodes.children_below(node, ref.number).items():
            if nibble > rest[:1]:
                yield from leaves(read, child)
            elif nibble == rest[:1]:
                yield from _behind(read, child, after)


def position(read: ReadNode, ref: Ref, address: str) -> int | None:
    """How many leaves of the subtree come before ``address``; None where it has no leaf."""
    before = 0
    while True:
        node = read(ref.number)
        if node[0] == nodes.LEAF:
            return before if nodes.leaf_address(node) == address else None
        place = nodes.branch_prefix(node)
        if not address.startswith(place):
            return None
        children = nodes.children_below(node, ref.number)
        nibble = address[len(place)]
        if nibble not in children:
            return None
        before += sum(child.leaves for other, child in children.items() if other < nibble)
        ref = children[nibble]
