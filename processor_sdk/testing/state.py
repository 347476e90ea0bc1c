"""The state of a ledger in memory, as tests read and prepare it, and what an apply sees of it. No rules on access.

Addresses are kept in order, and nothing here copies the whole state.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TypeVar

from dovetail.ledger.addresses import is_address, is_prefix
from dovetail.ledger.listing import Entry, changes_under, overlaid
from processor_sdk.codecs.codec import Codec

T = TypeVar("T")


class State(MutableMapping[str, bytes]):
    """Address (70 lower-case hex characters) to bytes, in address order. Equal to any mapping that holds the same."""

    def __init__(self, entries: Mapping[str, bytes]) -> None:
        for address, data in entries.items():
            _check(address, data)
        self._entries = dict(entries)
        self._order = sorted(self._entries)

    def read(self, address: str, codec: Codec[T]) -> T:
        """The decoded entry at ``address``. Raises KeyError if there is none."""
        return codec.decode(self[address])

    def under(self, prefix: str) -> dict[str, bytes]:
        """The entries whose address begins with ``prefix``, in address order."""
        if not is_prefix(prefix):
            raise ValueError(f"{prefix!r} is no prefix: an even number of lower-case hex characters, 0 to 70")
        return dict(self.entries(prefix))

    def entries(self, prefix: str, after: str = "") -> Iterator[Entry]:
        """The entries whose address begins with ``prefix`` and is greater than ``after``, in address order."""
        at = max(bisect_left(self._order, prefix), bisect_right(self._order, after))
        while at < len(self._order) and self._order[at].startswith(prefix):
            yield self._order[at], self._entries[self._order[at]]
            at += 1

    def __getitem__(self, address: str) -> bytes:
        return self._entries[address]

    def __setitem__(self, address: str, data: bytes) -> None:
        _check(address, data)
        if address not in self._entries:
            insort(self._order, address)
        self._entries[address] = data

    def __delitem__(self, address: str) -> None:
        del self._entries[address]
        del self._order[bisect_left(self._order, address)]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._order))  # A copy, so that a test may remove entries during the iteration.

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"State({dict(self)!r})"


class View:
    """``base`` overlaid with ``changes``, in which None removes an entry. Both may change afterwards."""

    def __init__(self, base: "State | View", changes: Mapping[str, bytes | None]) -> None:
        self._base = base
        self._changes = changes

    def get(self, address: str) -> bytes | None:
        """The value at ``address``, or None."""
        return self._changes[address] if address in self._changes else self._base.get(address)

    def entries(self, prefix: str, after: str = "") -> Iterator[Entry]:
        changes = [change for change in changes_under(self._changes, prefix) if change[0] > after]
        return overlaid(self._base.entries(prefix, after), changes)


def _check(address: str, data: bytes) -> None:
    if not is_address(address):
        raise ValueError(f"{address!r} is no address of 70 lower-case hex characters")
    if not isinstance(data, bytes):
        raise TypeError(f"the entry for {address} is {type(data).__name__}, not bytes")
