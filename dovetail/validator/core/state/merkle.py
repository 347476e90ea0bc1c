"""The Merkle radix trie: updates with all changes of a block, and reads of one leaf.

The root depends on the leaves alone, not on the order or history of changes. Golden vectors in tests/vectors pin it.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Mapping
from os.path import commonprefix
from typing import NamedTuple

from dovetail.validator.core.state import nodes
from dovetail.validator.core.state.nodes import EMPTY, Ref

ReadNode = Callable[[int], bytes]
"""Returns the bytes of the node with this number."""

_Item = tuple[str, bytes | None]


class Update(NamedTuple):
    """The state after a block: its root, the new nodes in ascending order of number, the replaced nodes' numbers."""

    root: Ref
    nodes: list[tuple[int, bytes]]
    superseded: list[int]


def get(read: ReadNode, root: Ref, address: str) -> bytes | None:
    """The value at ``address`` (70 hex characters), or None. Raises WrongNode."""
    number = root.number
    while number:
        node = read(number)
        if node[0] == nodes.LEAF:
            return nodes.leaf_value(node) if nodes.leaf_address(node) == address else None
        child = nodes.child_number(node, address)
        if child >= number:
            nodes.check_below(number, child)
        number = child
    return None


def update(read: ReadNode, root: Ref, changes: Mapping[str, bytes | None], next_number: int) -> Update:
    """Apply ``changes`` (address to new value, None removes) to the state at ``root``. Raises WrongNode.

    New nodes are numbered from ``next_number`` on. Unchanged subtrees get no new nodes.
    """
    writer = _Writer(read, next_number)
    items = sorted(changes.items())
    new_root = writer.change(root, items) if items else root
    return Update(new_root or EMPTY, writer.appended, writer.superseded)


class _Writer:
    """Applies one block's changes. Each method returns the resulting subtree, or None if it is empty."""

    def __init__(self, read: ReadNode, next_number: int) -> None:
        self._read = read
        self._next = next_number
        self.appended: list[tuple[int, bytes]] = []
        self.superseded: list[int] = []

    def change(self, ref: Ref | None, items: list[_Item]) -> Ref | None:
        if ref is None or not ref.number:
            return self._grow([(address, value) for address, value in items if value is not None])
        node = self._read(ref.number)
        if node[0] == nodes.LEAF:
            return self._change_leaf(ref, node, items)
        prefix = nodes.branch_prefix(node)
        if items[0][0].startswith(prefix) and items[-1][0].startswith(prefix):
            return self._change_branch(ref, node, prefix, items)
        low = bisect_left(items, (prefix,))
        high = bisect_left(items, (prefix + "g",))
        inner = self._change_branch(ref, node, prefix, items[low:high]) if low < high else ref
        outside: list[tuple[str, bytes | Ref]] = [
            (address, value) for address, value in items[:low] + items[high:] if value is not None
        ]
        if not outside:
            return inner
        if inner is not None:
            outside.append((prefix, inner))
            outside.sort(key=_key)
        return self._grow(outside)

    def _change_leaf(self, ref: Ref, node: bytes, items: list[_Item]) -> Ref | None:
        address = nodes.leaf_address(node)
        old = nodes.leaf_value(node)
        if len(items) == 1 and items[0][0] == address:
            value = items[0][1]
            if value == old:
                return ref
            self.superseded.append(ref.number)
            return None if value is None else self._leaf(address, value)
        entries: list[tuple[str, bytes | Ref]] = []
        kept = True
        for item_address, value in items:
            if item_address != address:
                if value is not None:
                    entries.append((item_address, value))
            elif value != old:
                kept = False
                self.superseded.append(ref.number)
                if value is not None:
                    entries.append((address, value))
        if kept:
            if not entries:
                return ref
            entries.append((address, ref))
            entries.sort(key=_key)
        return self._grow(entries)

    def _change_branch(self, ref: Ref, node: bytes, prefix: str, items: list[_Item]) -> Ref | None:
        """``items``: at least one, all under ``prefix``."""
        depth = len(prefix)
        layout = nodes.layout(node)
        changed: list[tuple[str, Ref]] = []
        appeared_or_gone: dict[str, Ref | None] = {}
        leaves = ref.leaves
        start, count = 0, len(items)
        while start < count:
            nibble = items[start][0][depth]
            end = start + 1
            while end < count and items[end][0][depth] == nibble:
                end += 1
            before = nodes.branch_child(node, layout, nibble)
            if before is not None:
                nodes.check_below(ref.number, before.number)
            after = self.change(before, items[start:end])
            start = end
            if after is before:
                continue
            if before is None or after is None:
                appeared_or_gone[nibble] = after
            else:
                changed.append((nibble, after))
                leaves += after.leaves - before.leaves
        if appeared_or_gone:
            return self._replace(ref, prefix, nodes.branch_children(node), appeared_or_gone | dict(changed))
        if not changed:
            return ref
        # Most changes keep the set of children, and then need no decoding of the whole branch.
        self.superseded.append(ref.number)
        spliced, digest = nodes.with_children(node, layout, changed)
        return self._append(spliced, digest, leaves)

    def _replace(self, ref: Ref, prefix: str, children: dict[str, Ref], changes: dict[str, Ref | None]) -> Ref | None:
        """Replace a branch, with some of its children changed, added or (None) removed."""
        self.superseded.append(ref.number)
        kept: dict[str, Ref] = {}
        for nibble in children.keys() | changes.keys():
            child = changes[nibble] if nibble in changes else children[nibble]
            if child is not None:
                kept[nibble] = child
        return self._branch(prefix, kept)

    def _grow(self, entries: list[tuple[str, bytes | Ref]] | list[tuple[str, bytes]]) -> Ref | None:
        """A subtree of sorted, disjoint entries: new leaves (address, value) and existing subtrees (prefix, ref)."""
        if not entries:
            return None
        if len(entries) == 1:
            key, content = entries[0]
            return content if isinstance(content, Ref) else self._leaf(key, content)
        prefix = commonprefix((entries[0][0], entries[-1][0]))  # noqa: RUF071 (hex characters, not paths)
        depth = len(prefix)
        groups: dict[str, list[tuple[str, bytes | Ref]]] = {}
        for entry in entries:
            groups.setdefault(entry[0][depth], []).append(entry)
        children = {}
        for nibble, group in groups.items():
            child = self._grow(group)
            assert child is not None, "a group holds at least one entry"
            children[nibble] = child
        return self._branch(prefix, children)

    def _leaf(self, address: str, value: bytes) -> Ref:
        node = nodes.encode_leaf(address, value)
        return self._append(node, hashlib.sha256(node).digest(), 1)

    def _branch(self, prefix: str, children: dict[str, Ref]) -> Ref | None:
        if len(children) < 2:
            return next(iter(children.values()), None)
        node, digest = nodes.encode_branch(prefix, children)
        return self._append(node, digest, sum(child.leaves for child in children.values()))

    def _append(self, node: bytes, digest: bytes, leaves: int) -> Ref:
        number = self._next
        self._next += 1
        self.appended.append((number, node))
        return Ref(digest, number, leaves)


def _key(entry: tuple[str, bytes | Ref]) -> str:
    return entry[0]
