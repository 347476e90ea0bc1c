"""Walks the trie in address order: pages by index or address, counts and positions, each in O(count + depth).

Reads only. Every function raises WrongNode if a child does not have a lower number than its parent.
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
    """The subtree of exactly the leaves under ``prefix``, or None."""
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
    """The leaves of a subtree in ascending (``backwards``: descending) address order, without the first ``skip``."""
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
    """The leaves under ``prefix`` whose address sorts after ``after`` (any text), in ascending address order."""
    top = subtree(read, root, prefix)
    if top is not None:
        yield from _after(read, top, after)


def _after(read: ReadNode, ref: Ref, after: str) -> Iterator[Leaf]:
    node = read(ref.number)
    if node[0] == nodes.LEAF:
        if nodes.leaf_address(node) > after:
            yield Leaf(nodes.leaf_address(node), nodes.leaf_value(node))
        return
    place = nodes.branch_prefix(node)
    start, rest = after[: len(place)], after[len(place) :]
    if place > start:
        yield from leaves(read, ref)
    elif place == start:
        for nibble, child in nodes.children_below(node, ref.number).items():
            if nibble > rest[:1]:
                yield from leaves(read, child)
            elif nibble == rest[:1]:
                yield from _after(read, child, after)


def position(read: ReadNode, ref: Ref, address: str) -> int | None:
    """The number of leaves before ``address`` in the subtree; None if the subtree has no such leaf."""
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
