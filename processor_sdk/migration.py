"""One slice of a version's migration: the form of its transaction, and the handler's view of its state.

``processor_sdk.apply.dispatch`` runs migrations, and ``dovetail.ledger.migration`` slices the state.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, TypeVar, overload

from dovetail.ledger.addresses import AccessList, is_address
from dovetail.ledger.listing import Entry
from dovetail.ledger.migration import PAYLOAD_ENCODING, PUBLIC_KEY
from dovetail.ledger.presence import as_listed
from dovetail.ledger.transaction import Transaction
from processor_sdk.codecs.codec import Codec
from processor_sdk.context import Context, StateBefore, decoded
from processor_sdk.errors import InvalidTransaction

T = TypeVar("T")

KNOWN_BYTES_MAX: Final = 8 * 1024 * 1024
"""The most bytes of recently listed addresses and values that a MigrationContext keeps."""

NO_MIGRATION: Final = (
    "it is signed with the key of migrations, which everybody knows, and is none: only Dovetail's validator makes them,"
    " by itself. Sign with a key of your own"
)
"""The refusal of a client's transaction that is signed with the key of migrations."""

INHERITED_MIGRATE: Final = (
    "one that is inherited from a class of another version does not count: write migrate = Earlier.migrate to run it"
    " for this version too"
)


def check_migration(transaction: Transaction) -> None:
    """Check the form of a transaction that the validator sent as a migration. Raises InvalidTransaction."""
    _, header, _, payload = transaction
    if (
        header.signer_pubkey != PUBLIC_KEY
        or header.payload_encoding != PAYLOAD_ENCODING
        or payload
        or header.inputs != header.outputs
    ):
        raise InvalidTransaction(
            f"the validator calls it a migration and it is none: signer {header.signer_pubkey[:80]!r}, payload_encoding"
            f" {header.payload_encoding[:80]!r}, {len(payload)} bytes of payload, {len(header.inputs)} inputs,"
            f" {len(header.outputs)} outputs; a migration is signed with the key of migrations, and has"
            f" {PAYLOAD_ENCODING!r}, no payload, and outputs that are its inputs"
        )


class MigrationContext(Context):
    """A Context for ``migrate``: it reads and writes only under the prefixes of its slice.

    The state is sliced by addresses. Other slices cannot be reached.
    """

    __slots__ = ("_known", "prefixes")

    def __init__(self, prefixes: tuple[str, ...], namespaces: tuple[str, ...], before: StateBefore) -> None:
        self._known = _Known(before)
        access = AccessList(prefixes)
        super().__init__(access, access, namespaces, self._known)
        self.prefixes = prefixes
        """The prefixes of this slice's addresses. Reads and writes must lie under them."""

    @overload
    def leaves(self) -> Iterator[tuple[str, bytes]]: ...
    @overload
    def leaves(self, codec: Codec[T]) -> Iterator[tuple[str, T]]: ...
    def leaves(self, codec: Codec[T] | None = None) -> Iterator[tuple[str, bytes | T]]:
        """Every entry that the slice held before its migration, as (address, bytes or decoded value).

        The entries come in address order, each once, and are fetched a page at a time. Writes of ``migrate`` do not
        show. Bytes that do not fit ``codec`` raise InvalidTransaction, which ends the iteration and, if it is not
        caught, refuses the migration. To skip such entries, call ``leaves`` without a codec and decode each one. Listed
        entries are cached, up to KNOWN_BYTES_MAX: getting or removing them sends no request to the validator.
        """
        for prefix in sorted(self.prefixes):
            for address, data in as_listed(self._known.under(prefix)):
                yield address, data if codec is None else decoded(address, data, codec)

    def covers(self, address: str) -> bool:
        """Whether ``address`` is in this slice.

        To run a step only once, run it in the slice that covers one fixed address.
        """
        return is_address(address) and address.startswith(self.prefixes)


class _Known:
    """The state before the slice, with a cache of recently listed entries."""

    def __init__(self, before: StateBefore) -> None:
        self._before = before
        self._listed: dict[str, bytes] = {}
        self._listed_bytes = 0

    def fetch(self, addresses: Collection[str]) -> Mapping[str, bytes]:
        listed = self._listed
        found = {address: listed[address] for address in addresses if address in listed}
        unknown = [address for address in addresses if address not in listed]
        return {**found, **self._before.fetch(unknown)} if unknown else found

    def under(self, prefix: str) -> Iterator[Entry]:
        for address, data in self._before.under(prefix):
            self._keep(address, data)
            yield address, data

    def _keep(self, address: str, data: bytes) -> None:
        listed = self._listed
        if address in listed:
            return
        listed[address] = data
        self._listed_bytes += len(address) + len(data)
        while self._listed_bytes > KNOWN_BYTES_MAX:
            oldest = next(iter(listed))
            self._listed_bytes -= len(oldest) + len(listed.pop(oldest))
