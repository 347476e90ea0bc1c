"""A slice of a version's migration: what its transaction looks like, and what its handler sees of the state.

Nothing is run here (``processor_sdk.dispatch``), and how state is sliced is said in ``ledger.migration``.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, TypeVar, overload

from ledger.addresses import AccessList, is_address
from ledger.listing import Entry
from ledger.migration import PAYLOAD_ENCODING
from ledger.transaction import Transaction
from processor_sdk.codecs.codec import Codec
from processor_sdk.context import Context, StateBefore, decoded
from processor_sdk.errors import InvalidTransaction

T = TypeVar("T")

NO_MIGRATION: Final = (
    "it is signed with the key of migrations, which everybody knows, and is none: only Dovetail's validator makes them,"
    " by itself. Sign with a key of your own"
)
"""What is said to a transaction whose signer shows nothing, because the validator lets anybody use the key."""


def check_migration(transaction: Transaction) -> None:
    """That what a validator sent as a migration has the form of one. Raises InvalidTransaction."""
    _, header, _, payload = transaction
    if header.payload_encoding != PAYLOAD_ENCODING or payload or header.inputs != header.outputs:
        raise InvalidTransaction(
            f"it is signed with the key of migrations and is none: payload_encoding {header.payload_encoding[:80]!r},"
            f" {len(payload)} bytes of payload, {len(header.inputs)} inputs, {len(header.outputs)} outputs; a migration"
            f" has {PAYLOAD_ENCODING!r}, no payload, and outputs that are its inputs"
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
        shows. Bytes that do not fit ``codec`` refuse the migration. To get, or remove, what was given costs no question
        to the validator any more.
        """
        for prefix in sorted(self.prefixes):
            for address, data in self._known.under(prefix):
                yield address, data if codec is None else decoded(address, data, codec)

    def covers(self, address: str) -> bool:
        """Whether ``address`` is of this slice: what a migration does once, it does in the slice of one address."""
        return is_address(address) and address.startswith(self.prefixes)


class _Known:
    """The state before the slice; keeps what it listed, so that no entry is asked for twice."""

    def __init__(self, before: StateBefore) -> None:
        self._before = before
        self._listed: dict[str, bytes] = {}

    def fetch(self, addresses: Collection[str]) -> Mapping[str, bytes]:
        """See ``StateBefore``."""
        listed = self._listed
        found = {address: listed[address] for address in addresses if address in listed}
        unknown = [address for address in addresses if address not in listed]
        return {**found, **self._before.fetch(unknown)} if unknown else found

    def under(self, prefix: str) -> Iterator[Entry]:
        """See ``StateBefore``."""
        for address, data in self._before.under(prefix):
            self._listed[address] = data
            yield address, data
