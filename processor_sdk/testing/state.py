"""The state of a ledger in memory, as tests read and prepare it. No rules on who may write what."""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import TypeVar

from ledger.addresses import is_address, is_prefix
from processor_sdk.codecs.codec import Codec

T = TypeVar("T")


class State(MutableMapping[str, bytes]):
    """Address (70 lower-case hex characters) to bytes, in address order. Equal to any mapping that holds the same."""

    def __init__(self, entries: Mapping[str, bytes]) -> None:
        self._entries: dict[str, bytes] = {}
        self.update(entries)

    def read(self, address: str, codec: Codec[T]) -> T:
        """The entry at ``address`` as ``codec`` decodes it. Raises KeyError where there is none."""
        return codec.decode(self[address])

    def under(self, prefix: str) -> dict[str, bytes]:
        """The entries whose address begins with ``prefix``, in address order."""
        if not is_prefix(prefix):
            raise ValueError(f"{prefix!r} is no prefix: an even number of lower-case hex characters, 0 to 70")
        return {address: data for address, data in self.items() if address.startswith(prefix)}

    def __getitem__(self, address: str) -> bytes:
        return self._entries[address]

    def __setitem__(self, address: str, data: bytes) -> None:
        if not is_address(address):
            raise ValueError(f"{address!r} is no address of 70 lower-case hex characters")
        if not isinstance(data, bytes):
            raise TypeError(f"the entry for {address} is {type(data).__name__}, not bytes")
        self._entries[address] = data

    def __delitem__(self, address: str) -> None:
        del self._entries[address]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"State({dict(self)!r})"
