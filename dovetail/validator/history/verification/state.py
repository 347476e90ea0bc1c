"""Rebuilds the trie of each block from its receipts, and compares it with the stored nodes byte for byte.

Starting from the empty state, this checks every stored node. If states are pruned, the missing nodes are rebuilt and
held as long as a later state needs them. No batches, no headers here.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Final

from dovetail.validator.core.state import merkle, nodes
from dovetail.validator.core.state.nodes import EMPTY, Ref
from dovetail.validator.history.verification.findings import Finding, difference, shown
from dovetail.validator.store import BlockInfo, StorageFailed, StoreReader

GARBLED: Final = (StorageFailed, ValueError, LookupError, OverflowError, struct.error)
"""The errors of reading a record that is missing or damaged."""

_CORRECTED_MAX: Final = 10_000


class StateCheck:
    """``base``: the state before the next block; None if unknown."""

    def __init__(self, reader: StoreReader, add: Callable[[Finding], None]) -> None:
        self._reader = reader
        self._add = add
        self.base: Ref | None = EMPTY
        self._next: int | None = 1
        self._corrected: dict[int, bytes] = {}
        self._pruned = reader.pruned
        self._gone: dict[int, bytes] = {}
        self._removed: int | None = 0

    @property
    def nodes(self) -> int | None:
        """The number of nodes that the store should hold so far; None if unknown."""
        return None if self._next is None else self._next - 1 - self._pruned.nodes

    def node(self, number: int) -> bytes:
        """The right node: the rebuilt one if the stored one is wrong or pruned, else the stored one."""
        node = self._corrected.get(number)
        if node is None and self._gone:
            node = self._gone.get(number)
        return self._reader.node(number) if node is None else node

    def is_stored(self, num: int) -> bool:
        """Whether the store holds the complete state after block ``num``."""
        return num >= self._pruned.states_from

    def _is_pruned(self, num: int) -> bool:
        """Whether pruning removed the nodes that block ``num`` replaced."""
        return 0 < self._pruned.states_from >= num

    def forget(self) -> None:
        """Mark the state and the number of nodes as unknown."""
        self.base = self._next = self._removed = None

    def adopt(self, info: BlockInfo, root_hash: bytes) -> bool:
        """Continue from the stored state of a block, if its nodes lead to the hash in the block's header."""
        known = self._next or 0
        fault = "another hash" if info.root.hash != root_hash else fault_below(self.node, info.root, known)
        self.base = None if fault else info.root
        if fault:
            return False
        if info.root.number >= known:
            # The root is the last node that a block writes.
            self._next = info.root.number + 1 if info.root.number else None
        return True

    def apply(self, info: BlockInfo, root_hash: bytes, changes: Mapping[str, bytes | None]) -> bool:
        """Rebuild the state of the next block and compare. Returns whether all is right.

        ``root_hash``: the one in the signed header. A wrong node gives one finding: later blocks use the rebuilt node.
        """
        where, num = f"block {info.num}", info.num
        if self.base is None:
            if not self.is_stored(num):
                return False
            if not self.adopt(info, root_hash):
                self._add(Finding(num, "state_unknown", where, "nodes that lead to its state root", "others"))
            return False
        try:
            first = self._next
            update = merkle.update(self.node, self.base, changes, first or 0)
            if first is None and update.nodes:
                first = info.root.number - len(update.nodes) + 1
                update = merkle.update(self.node, self.base, changes, first)
        except GARBLED as error:
            self._add(Finding(num, "state_unreadable", where, "the nodes of the state before it", shown(error)))
            self.adopt(info, root_hash)
            return False
        if update.root.hash != root_hash:
            made, named = update.root.hash.hex(), root_hash.hex()
            finding = Finding(num, "state_root", where, f"the root {named} of its header", f"{made} of its receipts")
            self._add(finding)
            self.adopt(info, root_hash)
            return False
        same = self._compare_nodes(num, update)
        if self._is_pruned(num):
            same &= self._follow_pruning(num, update)
        elif not self._compare_superseded(num, update):
            same = False
        if info.root != update.root:
            self._add(Finding(num, "root_record", where, _words(update.root), _words(info.root)))
            same = False
        self.base = update.root
        if first is not None:
            self._next = first + len(update.nodes)
        return same

    def _compare_superseded(self, num: int, update: merkle.Update) -> bool:
        where = f"block {num}"
        try:
            superseded = self._reader.superseded(num)
        except GARBLED as error:
            self._add(Finding(num, "superseded", where, f"{len(update.superseded)} numbers", shown(error)))
            return False
        if superseded != update.superseded:
            expected, found = _first_difference(update.superseded, superseded)
            self._add(Finding(num, "superseded", where, expected, found))
            return False
        return True

    def _follow_pruning(self, num: int, update: merkle.Update) -> bool:
        """Drop the nodes that the block replaced. At the first complete state, no other node may be missing."""
        for number in update.superseded:
            self._gone.pop(number, None)
        if self._removed is not None:
            self._removed += len(update.superseded)
        if num < self._pruned.states_from:
            return True
        same = True
        if self._removed is not None and self._removed != self._pruned.nodes:
            found = f"a record of {self._pruned.nodes}"
            self._add(Finding(num, "pruned", f"block {num}", f"{self._removed} nodes pruned up to it", found))
            same = False
        for number, node in self._gone.items():
            self._add(Finding(num, "node", f"block {num}, node {number}", shown(node), "none"))
            same = False
        return same

    def _compare_nodes(self, num: int, update: merkle.Update) -> bool:
        same = True
        for number, node in update.nodes:
            try:
                stored = self._reader.find_node(number)
            except GARBLED as error:
                expected, found = shown(node), shown(error)
            else:
                if stored == node:
                    continue
                if stored is None and self._is_pruned(num):
                    self._gone[number] = node
                    continue
                expected, found = (shown(node), "none") if stored is None else difference(node, stored)
            same = False
            self._add(Finding(num, "node", f"block {num}, node {number}", expected, found))
            if len(self._corrected) < _CORRECTED_MAX:
                self._corrected[number] = node
        return same


def fault_below(read: merkle.ReadNode, root: Ref, known_below: int) -> str | None:
    """The first fault in the nodes of a state; None if there is none.

    Subtrees of nodes with numbers below ``known_below`` were checked before and are skipped.
    """
    if root.leaves == 0:
        return None if root == EMPTY else "a root without leaves that is not the empty state's"
    waiting = [root]
    while waiting:
        ref = waiting.pop()
        try:
            node = read(ref.number)
            if nodes.node_hash(node) != ref.hash:
                return f"node {ref.number} has another hash"
            if node[0] == nodes.LEAF:
                children: dict[str, Ref] = {}
                leaves = 1
            else:
                children = nodes.branch_children(node)
                leaves = sum(child.leaves for child in children.values())
                if nodes.encode_branch(nodes.branch_prefix(node), children)[0] != node:
                    return f"node {ref.number} is no branch"
        except GARBLED as error:
            return f"node {ref.number}: {shown(error)}"
        # A child has a lower number than its parent, so the loop ends.
        if leaves != ref.leaves or any(child.number >= ref.number for child in children.values()):
            return f"node {ref.number} has other numbers than its parent names"
        if ref.number >= known_below:
            waiting.extend(children.values())
    return None


def _words(root: Ref) -> str:
    return f"root {root.hash.hex()} at node {root.number} over {root.leaves} leaves"


def _first_difference(expected: list[int], found: list[int]) -> tuple[str, str]:
    pairs = enumerate(zip(expected, found, strict=False))
    at = next((place for place, (one, other) in pairs if one != other), min(len(expected), len(found)))
    return tuple(  # type: ignore[return-value]
        f"{len(numbers)} numbers, number {at} of them {numbers[at] if at < len(numbers) else 'absent'}"
        for numbers in (expected, found)
    )
