"""What happened: the transactions of a family, each with what it did and the state that it saw. Reads a store only."""

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from ledger import migration
from ledger.errors import NotDecodable
from ledger.ids import BatchId
from ledger.listing import Entry
from ledger.settings import FamilyVersion
from ledger.transaction import Transaction, TransactionHeader, decode_transaction
from protos import raw_pb2, transaction_receipt_pb2
from validator.state.nodes import EMPTY
from validator.state.view import Changed, Stored, View
from validator.store import BlockInfo, StorageFailed, StoreReader

_SET: Final = transaction_receipt_pb2.StateChange.SET


class Happened(NamedTuple):
    """A committed transaction. ``changes``: address to new value, None where it was removed."""

    block_num: int
    batch_id: BatchId
    transaction: Transaction
    changes: Mapping[str, bytes | None]
    receipt: transaction_receipt_pb2.TransactionReceipt


class Before:
    """A view as an apply asks for it (``processor_sdk.context.StateBefore``)."""

    __slots__ = ("get", "view")

    def __init__(self, view: View) -> None:
        self.view = view
        self.get = view.get

    def fetch(self, addresses: Collection[str]) -> Mapping[str, bytes]:
        """The values at addresses; those without data are missing."""
        return {address: data for address in addresses if (data := self.get(address)) is not None}

    def under(self, prefix: str) -> Iterator[Entry]:
        """The entries under a prefix, in address order."""
        return self.view.under(prefix, "")


class BlockHistory:
    """One committed block. Raises StorageFailed where the store does not hold it as a validator writes it."""

    def __init__(self, store: StoreReader, num: int) -> None:
        self._store = store
        self._num = num
        self._changes: dict[str, bytes | None] = {}
        parent = _required(store, num - 1) if num else None
        self.before = Before(Changed(Stored(store.node, parent.root if parent else EMPTY), self._changes))
        """The state that the transaction given last saw, until the next is asked for."""

    def of(self, family: FamilyVersion) -> Iterator[Happened]:
        """The block's transactions of ``family``, in order; without its migration, which no client sent."""
        try:
            yield from self._of(family)
        except (DecodeError, NotDecodable, struct.error) as error:
            raise StorageFailed(f"block {self._num} cannot be read: {error}") from None

    def _of(self, family: FamilyVersion) -> Iterator[Happened]:
        store, changes = self._store, self._changes
        block = _required(store, self._num)
        number = block.first_transaction
        for batch_number in block.batches:
            batch = raw_pb2.RawBatch.FromString(store.batch(batch_number).raw)
            for raw in batch.transactions:
                receipt = transaction_receipt_pb2.TransactionReceipt.FromString(store.transaction(number).receipt)
                made = {
                    change.address: change.value if change.type == _SET else None for change in receipt.state_changes
                }
                transaction = decode_transaction(raw)
                header = transaction.header
                if (header.family_name, header.family_version) == family and not _is_migration(header):
                    yield Happened(self._num, BatchId(batch.header_signature), transaction, made, receipt)
                changes.update(made)
                number += 1


def _required(store: StoreReader, num: int) -> BlockInfo:
    block = store.block(num)
    if block is None:
        raise StorageFailed(f"the store has no block {num}")
    return block


def _is_migration(header: TransactionHeader) -> bool:
    return header.signer_pubkey == migration.PUBLIC_KEY and header.payload_encoding == migration.PAYLOAD_ENCODING
