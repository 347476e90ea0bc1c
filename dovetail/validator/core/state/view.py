"""Read-only views of the state: the trie at a root, and layers of changes over another view.

Access rules are checked elsewhere (``dovetail.ledger.access``).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Protocol

from dovetail.ledger.listing import Entry, overlaid
from dovetail.validator.core.state import merkle, walk
from dovetail.validator.core.state.merkle import ReadNode
from dovetail.validator.core.state.nodes import Ref


class View(Protocol):
    """Address to bytes."""

    def get(self, address: str) -> bytes | None:
        """The value at ``address`` (70 hex characters), or None."""

    def under(self, prefix: str, after: str) -> Iterator[Entry]:
        """The entries whose address begins with ``prefix`` and sorts after ``after`` (any text), in address order."""


class Stored:
    """The state at a root, which never changes."""

    __slots__ = ("_read", "_root")

    def __init__(self, read: ReadNode, root: Ref) -> None:
        self._read = read
        self._root = root

    def get(self, address: str) -> bytes | None:
        return merkle.get(self._read, self._root, address)

    def under(self, prefix: str, after: str) -> Iterator[Entry]:
        return walk.under(self._read, self._root, prefix, after)


class Changed:
    """A view with changes over it: address to new value, None removes.

    ``changes`` is not copied. The caller may add addresses to it, but not remove any.
    """

    __slots__ = ("_below", "_changes", "_order")

    def __init__(self, below: View, changes: Mapping[str, bytes | None]) -> None:
        self._below = below
        self._changes = changes
        self._order: list[str] = []

    def get(self, address: str) -> bytes | None:
        changes = self._changes
        return changes[address] if address in changes else self._below.get(address)

    def under(self, prefix: str, after: str) -> Iterator[Entry]:
        changes = self._changes
        # Listing is rare, but then asks for page after page: sort at the first page and keep the order.
        if len(self._order) != len(changes):
            self._order = sorted(changes)
        order = self._order
        start = max(bisect_left(order, prefix), bisect_right(order, after))
        end = bisect_left(order, prefix + "g")  # "g" sorts after all hex characters.
        changed = ((address, changes[address]) for address in islice(order, start, max(start, end)))
        return overlaid(self._below.under(prefix, after), changed)
