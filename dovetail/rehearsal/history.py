"""The past transactions of a family, each with its receipt and the state before it. Reads a store only."""

import struct
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from dovetail.ledger import migration
from dovetail.ledger.errors import NotDecodable
from dovetail.ledger.ids import BatchId
from dovetail.ledger.listing import Entry
from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.transaction import Transaction, TransactionHeader, decode_transaction
from dovetail.validator.core.state.view import Changed, Stored, View
from dovetail.validator.history.verification.state import GARBLED
from dovetail.validator.store import BlockInfo, StorageFailed, StoreReader
from protos import raw_pb2, transaction_receipt_pb2

_SET: Final = transaction_receipt_pb2.StateChange.SET


class Span(NamedTuple):
    """The transactions with numbers from ``first`` to below ``end``, in blocks ``first_block`` to ``last_block``."""

    first_block: int
    last_block: int
    first: int
    end: int

    @property
    def transactions(self) -> int:
        return self.end - self.first


class PastTransaction(NamedTuple):
    """A committed transaction. ``receipt``: serialized."""

    block_num: int
    batch_id: BatchId
    transaction: Transaction
    receipt: bytes


class Before:
    """The state before a transaction, for an apply (``processor_sdk.context.StateBefore``).

    ``failed``: the first failure to read the store. Failed reads raise it. An apply may catch it, so the rehearsal also
    checks ``failed`` afterwards.
    """

    __slots__ = ("failed", "view")

    def __init__(self, view: View) -> None:
        self.view = view
        self.failed: StorageFailed | None = None

    def get(self, address: str) -> bytes | None:
        """The value at an address, or None."""
        try:
            return self.view.get(address)
        except GARBLED as error:
            raise self._fail(error) from error

    def fetch(self, addresses: Collection[str]) -> Mapping[str, bytes]:
        """The values at addresses; those without data are missing."""
        return {address: data for address in addresses if (data := self.get(address)) is not None}

    def under(self, prefix: str) -> Iterator[Entry]:
        """The entries under a prefix, in address order."""
        try:
            yield from self.view.under(prefix, "")
        except GARBLED as error:
            raise self._fail(error) from error

    def _fail(self, error: Exception) -> StorageFailed:
        self.failed = StorageFailed(
            f"the state cannot be read ({type(error).__name__}: {error}): `dovetail chain verify` shows all that is"
            " damaged, and what to do"
        )
        return self.failed


def changes_of(receipt: transaction_receipt_pb2.TransactionReceipt) -> dict[str, bytes | None]:
    """The receipt's changes: address to new value, None if the entry was removed."""
    return {change.address: change.value if change.type == _SET else None for change in receipt.state_changes}


def span_of(store: StoreReader, first_block: int, last_block: int) -> Span:
    """All transactions of these blocks. Raises StorageFailed if the store lacks the first or the last block."""
    begin, end = required_block(store, first_block), required_block(store, last_block)
    return Span(first_block, last_block, begin.first_transaction, end.transaction_end)


class BlockHistory:
    """One committed block, read once from the first to the last transaction. Raises StorageFailed if it is damaged.

    ``num``: the block's number. ``next``: the number of the next transaction.
    """

    def __init__(self, store: StoreReader, num: int) -> None:
        self._store = store
        self._block = required_block(store, num)
        self._changes: dict[str, bytes | None] = {}
        self._rest = self._transactions()
        self.num = num
        self.next = self._block.first_transaction
        self.before = Before(Changed(Stored(store.node, store.root_after(num - 1)), self._changes))
        """The state before the transaction that ``of`` yielded last."""

    def of(self, family: FamilyVersion, first: int, end: int, others: Counter[str]) -> Iterator[PastTransaction]:
        """The transactions of ``family`` with numbers from ``first`` to below ``end``, in order, without migrations.

        Continues at ``next``, which must not be above ``end``. Counts the transactions of the family's other versions
        in ``others``.
        """
        try:
            for raw, batch_id, receipt in islice(self._rest, end - self.next):
                number = self.next
                self.next += 1
                if number < first:
                    continue
                transaction = decode_transaction(raw)
                header = transaction.header
                if header.family_name != family.name or _is_migration(header):
                    continue
                if header.family_version == family.version:
                    yield PastTransaction(self.num, batch_id, transaction, receipt)
                else:
                    others[header.family_version] += 1
        except (DecodeError, NotDecodable, struct.error) as error:
            raise StorageFailed(f"block {self.num} cannot be read: {error}") from None

    def _transactions(self) -> Iterator[tuple[bytes, BatchId, bytes]]:
        """Serialized transaction, id of its batch, serialized receipt."""
        store, changes = self._store, self._changes
        number = self._block.first_transaction
        for batch_number in self._block.batches:
            batch = raw_pb2.RawBatch.FromString(store.batch(batch_number).raw)
            batch_id = BatchId(batch.header_signature)
            for raw in batch.transactions:
                receipt = store.transaction(number).receipt
                made = changes_of(transaction_receipt_pb2.TransactionReceipt.FromString(receipt))
                yield raw, batch_id, receipt
                changes.update(made)
                number += 1


def required_block(store: StoreReader, num: int) -> BlockInfo:
    """Block ``num``. Raises StorageFailed if the store lacks it."""
    block = store.block(num)
    if block is None:
        raise StorageFailed(f"the store has no block {num}")
    return block


def _is_migration(header: TransactionHeader) -> bool:
    return header.signer_pubkey == migration.PUBLIC_KEY and header.payload_encoding == migration.PAYLOAD_ENCODING
