"""A transaction's view of state: reads, buffered writes, events and receipt data. The same in both protocols.

Writes stay here until the apply has ended. Then ``processor_sdk.apply.dispatch`` sends them, or ``StateCalls.flush`` in
the 1.x conversation. No wire messages except events, no sockets.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NoReturn, Protocol, TypeVar, overload

from dovetail.ledger.addresses import AccessList, is_address, is_prefix
from dovetail.ledger.errors import NotDecodable
from dovetail.ledger.listing import Entry, changes_under, overlaid
from dovetail.ledger.presence import as_listed, as_read
from dovetail.ledger.receipt import Event, encode_event
from processor_sdk.codecs.codec import Codec
from processor_sdk.errors import AuthorizationException, InvalidTransaction
from protos import events_pb2

T = TypeVar("T")


class StateBefore(Protocol):
    """The state before the transaction. Context checks the inputs before it asks."""

    def fetch(self, addresses: Collection[str]) -> Mapping[str, bytes]:
        """The values at addresses; those that are not set are missing, or have no bytes."""

    def under(self, prefix: str) -> Iterator[Entry]:
        """The entries whose address begins with ``prefix``, in address order, fetched during the iteration."""


class Context:
    """The state that one transaction may read and change.

    An address is 70 lower-case hex characters. Reads must lie under the transaction's inputs, writes under its outputs
    and the handler's namespaces. Other accesses raise AuthorizationException and change nothing.

    As in Sawtooth 1.x, an entry without bytes reads as none, also if the transaction itself wrote it.
    """

    __slots__ = ("_before", "_namespaces", "_readable", "_writable", "changes", "events", "receipt_data", "refused")

    def __init__(
        self, readable: AccessList, writable: AccessList, namespaces: tuple[str, ...], before: StateBefore
    ) -> None:
        self._readable = readable
        self._writable = writable
        self._namespaces = namespaces
        self._before = before
        self.changes: dict[str, bytes | None] = {}
        """The transaction's changes: address to new value, None if the entry is removed. For the SDK."""
        self.events: list[events_pb2.Event] = []
        self.receipt_data: list[bytes] = []
        self.refused: AuthorizationException | None = None
        """The first refused access. It makes the transaction invalid even if the handler catches it."""

    @overload
    def get(self, address: str) -> bytes | None: ...
    @overload
    def get(self, address: str, codec: Codec[T]) -> T | None: ...
    def get(self, address: str, codec: Codec[T] | None = None) -> bytes | T | None:
        """The entry at ``address``, including the transaction's own writes; None if there is none.

        Returns bytes, or the value that ``codec`` decodes. Bytes that do not fit ``codec`` make the transaction
        invalid.
        """
        self._check_readable(address)
        changes = self.changes
        data = as_read(changes[address] if address in changes else self._before.fetch((address,)).get(address))
        return data if codec is None or data is None else decoded(address, data, codec)

    @overload
    def get_many(self, addresses: Iterable[str]) -> dict[str, bytes]: ...
    @overload
    def get_many(self, addresses: Iterable[str], codec: Codec[T]) -> dict[str, T]: ...
    def get_many(self, addresses: Iterable[str], codec: Codec[T] | None = None) -> dict[str, bytes] | dict[str, T]:
        """The entries at ``addresses``, without the missing ones, fetched in one request. See ``get``."""
        wanted = _each(addresses)
        for address in wanted:
            self._check_readable(address)
        changes = self.changes
        found = self._before.fetch([address for address in wanted if address not in changes]) if wanted else {}
        entries = {
            address: data
            for address in wanted
            if (data := as_read(changes[address] if address in changes else found.get(address))) is not None
        }
        return entries if codec is None else {key: decoded(key, data, codec) for key, data in entries.items()}

    @overload
    def set(self, address: str, value: bytes) -> None: ...
    @overload
    def set(self, address: str, value: T, codec: Codec[T]) -> None: ...
    def set(self, address: str, value: bytes | T, codec: Codec[T] | None = None) -> None:
        """Write ``value`` to ``address``: bytes, or a value that ``codec`` encodes.

        A value that the codec refuses (ValueError) makes the transaction invalid.
        """
        self._check_writable(address)
        self.changes[address] = _encoded(address, value, codec)

    @overload
    def set_many(self, entries: Mapping[str, bytes]) -> None: ...
    @overload
    def set_many(self, entries: Mapping[str, T], codec: Codec[T]) -> None: ...
    def set_many(self, entries: Mapping[str, bytes] | Mapping[str, T], codec: Codec[T] | None = None) -> None:
        """Write every entry, or none. See ``set``."""
        for address in entries:
            self._check_writable(address)
        self.changes.update({address: _encoded(address, value, codec) for address, value in entries.items()})

    @overload
    def list(self, prefix: str) -> Iterator[tuple[str, bytes]]: ...
    @overload
    def list(self, prefix: str, codec: Codec[T]) -> Iterator[tuple[str, T]]: ...
    def list(self, prefix: str, codec: Codec[T] | None = None) -> Iterator[tuple[str, bytes | T]]:
        """The entries whose address begins with ``prefix``, as (address, bytes or decoded value), in address order.

        The entries include the transaction's own writes up to this call; later writes do not show, not even during
        the iteration. They are fetched a page at a time. ``prefix``: an even number of lower-case hex characters, 0 to
        70, that begins with one of the inputs. Raises InternalError at a validator of the Sawtooth 1.x line, whose
        protocol has no message for lists.
        """
        if not is_prefix(prefix):
            self._refuse(AuthorizationException.for_malformed_prefix(prefix))
        if not self._readable.permits_prefix(prefix):
            self._refuse(AuthorizationException.for_list(prefix, self._readable.declared))
        entries = as_listed(overlaid(self._before.under(prefix), changes_under(self.changes, prefix)))
        return entries if codec is None else ((key, decoded(key, data, codec)) for key, data in entries)

    def delete(self, address: str) -> bool:
        """Remove the entry at ``address``. Returns whether the address held data.

        If only the outputs cover the address, the transaction may not know the earlier entry: the answer is True
        unless the transaction itself has already removed it.
        """
        return bool(self.delete_many((address,)))

    def delete_many(self, addresses: Iterable[str]) -> Sequence[str]:
        """Remove the entries at all ``addresses``, or none; returns those that held data (see ``delete``), in order."""
        wanted = _each(addresses)
        for address in wanted:
            self._check_writable(address)
        changes = self.changes
        readable = {address for address in wanted if self._readable.permits(address)}
        before = self._before.fetch([address for address in wanted if address in readable]) if readable else {}
        held = []
        for address in wanted:
            # Do not show whether an unreadable address has an entry. Packed execution knows more such entries than the
            # 1.x protocol does, so a handler that used this knowledge would give different verdicts.
            there_before = address not in readable or as_read(before.get(address)) is not None
            if as_read(changes[address]) is not None if address in changes else there_before:
                held.append(address)
            # Also if nothing was read: there may be an entry without bytes. The validator drops idle removals.
            changes[address] = None
        return held

    def add_event(
        self, event_type: str, attributes: Mapping[str, str] | Iterable[tuple[str, str]] = (), data: bytes = b""
    ) -> None:
        """Raise an event, which is published if the transaction is committed. ``data``: bytes of the family.

        ``attributes``: a mapping or (key, value) pairs, whose order is kept. A key may occur several times.
        """
        if not isinstance(event_type, str):
            raise TypeError(f"the type of the event is {event_type!r}, not text")
        if not isinstance(data, bytes):
            raise TypeError(f"the data of the event {event_type!r} is {type(data).__name__}, not bytes")
        pairs = attributes.items() if isinstance(attributes, Mapping) else attributes
        checked = tuple(_attribute(event_type, pair) for pair in pairs)
        self.events.append(encode_event(Event(event_type, checked, data)))

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


def _attribute(event_type: str, pair: object) -> tuple[str, str]:
    # A string of two characters would count as a pair.
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f'an attribute of the event {event_type!r} is {pair!r}, not a pair as in ("key", "value")')
    key, value = pair
    if not isinstance(key, str):
        raise TypeError(f"the event {event_type!r} has the attribute {key!r}, whose key is not text")
    if not isinstance(value, str):
        raise TypeError(f"the attribute {key!r} of the event {event_type!r} is {value!r}, not text")
    return key, value


def _each(addresses: Iterable[str]) -> dict[str, None]:
    if isinstance(addresses, str):
        raise TypeError(f"the addresses are one text, {addresses[:140]!r}; give a list of addresses")
    return dict.fromkeys(addresses)


def decoded(address: str, data: bytes, codec: Codec[T]) -> T:
    """The entry at ``address``, decoded. Raises InvalidTransaction if the bytes do not fit ``codec``."""
    try:
        return codec.decode(data)
    except (NotDecodable, ValueError) as error:
        raise InvalidTransaction(f"the entry at {address} does not fit its codec: {error}") from None


def _encoded(address: str, value: object, codec: Codec[T] | None) -> bytes:
    try:
        data = value if codec is None else codec.encode(value)  # type: ignore[arg-type]
    except ValueError as error:
        raise InvalidTransaction(f"the entry for {address} does not fit: {error}") from None
    if not isinstance(data, bytes):
        codec_hint = "" if codec else "; give set a codec to write typed values"
        raise TypeError(f"the entry for {address} is {type(data).__name__}, not bytes{codec_hint}")
    return data
