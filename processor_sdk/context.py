"""A transaction's view of state: reads, buffered writes, events and receipt data; the same in both protocols.

Writes stay here until the apply has ended; who carries them to the validator is ``processor_sdk.dispatch``. No
messages of the wire except the events, no sockets.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NoReturn

from ledger.addresses import AccessList, is_address
from ledger.receipt import Event, encode_event
from processor_sdk.errors import AuthorizationException
from protos import events_pb2

Fetch = Callable[[Collection[str]], Mapping[str, bytes]]
"""The values that readable addresses had before the transaction; addresses without data are missing."""


class Context:
    """What one transaction may see and change.

    An address is 70 lower-case hex characters. A read must lie under the transaction's inputs, a write under its
    outputs and the handler's namespaces; anything else raises AuthorizationException and does nothing.
    """

    __slots__ = ("_fetch", "_namespaces", "_readable", "_writable", "changes", "events", "receipt_data", "refused")

    def __init__(self, readable: AccessList, writable: AccessList, namespaces: tuple[str, ...], fetch: Fetch) -> None:
        self._readable = readable
        self._writable = writable
        self._namespaces = namespaces
        self._fetch = fetch
        self.changes: dict[str, bytes | None] = {}
        """What the transaction changes: address to its new value, None where it is removed. For the SDK to read."""
        self.events: list[events_pb2.Event] = []
        self.receipt_data: list[bytes] = []
        self.refused: AuthorizationException | None = None
        """The first access that was refused: it makes the transaction invalid, whatever the handler does about it."""

    def get(self, address: str) -> bytes | None:
        """The data at ``address``, the transaction's own writes included; None where there is none."""
        self._check_readable(address)
        if address in self.changes:
            return self.changes[address]
        return self._fetch((address,)).get(address)

    def get_many(self, addresses: Iterable[str]) -> dict[str, bytes]:
        """The data at each of ``addresses`` that holds data, asked for at once."""
        wanted = dict.fromkeys(addresses)
        for address in wanted:
            self._check_readable(address)
        changes = self.changes
        found = self._fetch([address for address in wanted if address not in changes]) if wanted else {}
        return {
            address: data
            for address in wanted
            if (data := changes[address] if address in changes else found.get(address)) is not None
        }

    def set(self, address: str, data: bytes) -> None:
        """Write ``data`` to ``address``."""
        self._check_writable(address)
        if not isinstance(data, bytes):
            raise TypeError(f"the data for {address} is {type(data).__name__}, not bytes")
        self.changes[address] = data

    def set_many(self, entries: Mapping[str, bytes]) -> None:
        """Write every entry, or none."""
        for address, data in entries.items():
            self._check_writable(address)
            if not isinstance(data, bytes):
                raise TypeError(f"the data for {address} is {type(data).__name__}, not bytes")
        self.changes.update(entries)

    def delete(self, address: str) -> bool:
        """Remove what ``address`` holds; whether it held data.

        Where only outputs cover the address, the transaction may not know what it held before: the answer is True
        unless the transaction itself has removed it already.
        """
        return bool(self.delete_many((address,)))

    def delete_many(self, addresses: Iterable[str]) -> list[str]:
        """Remove what all of ``addresses`` hold, or nothing; those that held data (see ``delete``), in their order."""
        wanted = dict.fromkeys(addresses)
        for address in wanted:
            self._check_writable(address)
        changes = self.changes
        readable = {address for address in wanted if self._readable.permits(address)}
        before = self._fetch([address for address in wanted if address in readable]) if readable else {}
        held = []
        for address in wanted:
            # What an unreadable address held must not leak: packed execution sees more of it than the 1.x protocol,
            # and a handler that branches on it would judge differently in the two.
            there_before = address in before or address not in readable
            if changes[address] is not None if address in changes else there_before:
                held.append(address)
            if there_before:
                changes[address] = None
            else:
                changes.pop(address, None)
        return held

    def add_event(self, event_type: str, attributes: Iterable[tuple[str, str]] = (), data: bytes = b"") -> None:
        """Tell the world, if the transaction is committed: a type, (key, value) attributes, bytes of the family."""
        self.events.append(encode_event(Event(event_type, tuple(attributes), data)))

    def add_receipt_data(self, data: bytes) -> None:
        """Add bytes of the family to the transaction's receipt."""
        if not isinstance(data, bytes):
            raise TypeError(f"the receipt data is {type(data).__name__}, not bytes")
        self.receipt_data.append(data)

    def _check_readable(self, address: str) -> None:
        if not is_address(address):
            self._refuse(AuthorizationException.for_malformed(address))
        if not self._readable.permits(address):
            self._refuse(AuthorizationException.for_read(address, self._readable.declared))

    def _check_writable(self, address: str) -> None:
        if not is_address(address):
            self._refuse(AuthorizationException.for_malformed(address))
        if not self._writable.permits(address):
            self._refuse(AuthorizationException.for_write(address, self._writable.declared))
        if not address.startswith(self._namespaces):
            self._refuse(AuthorizationException.for_namespace(address, self._namespaces))

    def _refuse(self, refusal: AuthorizationException) -> NoReturn:
        self.refused = self.refused or refusal
        raise refusal
