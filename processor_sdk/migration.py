"""A slice of a version's migration: what its transaction looks like, and what its handler sees of the state.

Nothing is run here (``processor_sdk.apply.dispatch``), and how state is sliced is said in
``dovetail.ledger.migration``.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, TypeVar, overload

from dovetail.ledger.addresses import AccessList, is_address
from dovetail.ledger.listing import Entry
from dovetail.ledger.migration import PAYLOAD_ENCODING, PUBLIC_KEY
from dovetail.ledger.transaction import Transaction
from processor_sdk.codecs.codec import Codec
from processor_sdk.context import Context, StateBefore, decoded
from processor_sdk.errors import InvalidTransaction

T = TypeVar("T")

KNOWN_BYTES_MAX: Final = 8 * 1024 * 1024
"""Most bytes of addresses and values, of those that it gave last, that a MigrationContext keeps."""

NO_MIGRATION: Final = (
    "it is signed with the key of migrations, which everybody knows, and is none: only Dovetail's validator makes them,"
    " by itself. Sign with a key of your own"
)
"""What is said to a transaction with the key that the validator does not say it has made."""

INHERITED_MIGRATE: Final = (
    "one that is inherited from a class of another version does not count: write migrate = Earlier.migrate to run it"
    " for this version too"
)


def check_migration(transaction: Transaction) -> None:
    """That what a validator sent as a migration has the form of one. Raises InvalidTransaction."""
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
    """What ``migrate`` may see and change: what lies under the prefixes of its slice, by the rules of every Context.

    The state is sliced by addresses, and what lies in another slice is out of reach.
    """

    __slots__ = ("_known", "prefixes")

    def __init__(self, prefixes: tuple[str, ...], namespaces: tuple[str, ...], before: StateBefore) -> None:
        self._known = _Known(before)
        access = AccessList(prefixes)
        super().__init__(access, access, namespaces, self._known)
        self.prefixes = prefixes
        """What the addresses of this slice begin with: it may read and write under these, and nowhere else."""

    @overload
    def leaves(self) -> Iterator[tuple[str, bytes]]: ...
    @overload
    def leaves(self, codec: Codec[T]) -> Iterator[tuple[str, T]]: ...
    def leaves(self, codec: Codec[T] | None = None) -> Iterator[tuple[str, bytes | T]]:
        """Every entry that the slice held before its migration, as (address, bytes or what ``codec`` makes of them).

        In address order, each once, fetched a page at a time; nothing that ``migrate`` writes, before or meanwhile,
        shows. Bytes that do not fit ``codec`` raise InvalidTransaction and end the list: not caught, that refuses the
        migration; whoever catches it takes ``leaves`` without a codec and decodes by himself. To get, or remove, what
        was given asks the validator nothing, for the last KNOWN_BYTES_MAX.
        """
        for prefix in sorted(self.prefixes):
            for address, data in self._known.under(prefix):
                yield address, data if codec is None else decoded(address, data, codec)

    def covers(self, address: str) -> bool:
        """Whether ``address`` is of this slice: what a migration does once, it does in the slice of one address."""
        return is_address(address) and address.startswith(self.prefixes)


class _Known:
    """The state before the slice; keeps what it listed last, so that few entries are asked for twice."""

    def __init__(self, before: StateBefore) -> None:
        self._before = before
        self._listed: dict[str, bytes] = {}
        self._listed_bytes = 0

    def fetch(self, addresses: Collection[str]) -> Mapping[str, bytes]:
        """See ``StateBefore``."""
        listed = self._listed
        found = {address: listed[address] for address in addresses if address in listed}
        unknown = [address for address in addresses if address not in listed]
        return {**found, **self._before.fetch(unknown)} if unknown else found

    def under(self, prefix: str) -> Iterator[Entry]:
        """See ``StateBefore``."""
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
