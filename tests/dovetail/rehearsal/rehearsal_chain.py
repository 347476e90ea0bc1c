"""Builds chains as a validator does, in this process: signed batches that handlers apply, receipts, blocks."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dovetail.ledger.building import SignedTransaction, build_batch
from dovetail.ledger.limits import Limits
from dovetail.ledger.permitted import Permission
from dovetail.ledger.receipt import Receipt, decode_event, encode_receipt
from dovetail.ledger.signing import Signer
from dovetail.ledger.transaction import decode_transaction
from dovetail.rehearsal.history import Before
from dovetail.validator.core.journal.migrations import batch_for
from dovetail.validator.core.journal.model import CommittedBatch
from dovetail.validator.core.state.nodes import EMPTY
from dovetail.validator.core.state.view import Changed, Stored
from dovetail.validator.store import BlockInfo, Store
from families.intkey.client import intkey_transaction
from families.intkey.handler import IntkeyHandler
from families.intkey.payload import Verb
from processor_sdk import TransactionHandler
from processor_sdk.apply.dispatch import Dispatcher
from tests.dovetail.validator.support import sealed_commit

SIGNER = Signer("22" * 32)

Step = tuple[Verb, str, int]
"""One intkey transaction: verb, name, value."""


class Chain:
    """The store at ``folder``, and the handlers that apply its transactions."""

    def __init__(self, folder: Path, *handlers: TransactionHandler[Any]) -> None:
        self.store = Store(folder, Limits())
        self._dispatcher = Dispatcher(handlers or (IntkeyHandler(),))
        self._nonce = self.store.head.transaction_end if self.store.head else 0

    def intkey(self, verb: Verb, name: str, value: int) -> SignedTransaction:
        """A unique transaction."""
        self._nonce += 1
        return intkey_transaction(SIGNER, SIGNER.public_key, verb, name, value, f"{self._nonce}")

    def steps(self, *batches: Iterable[Step]) -> BlockInfo:
        """One block of intkey batches."""
        return self.block([[self.intkey(*step) for step in batch] for batch in batches])

    def block(self, batches: Iterable[Sequence[SignedTransaction]]) -> BlockInfo:
        """Commit the next block. It holds the batches of ``batches`` in which every transaction is OK."""
        store, head = self.store, self.store.head
        base = head.root if head else EMPTY
        changes: dict[str, bytes | None] = {}
        view = Changed(Stored(store.node, base), changes)
        committed = []
        for transactions in batches:
            batch = build_batch(SIGNER, transactions)
            own: dict[str, bytes | None] = {}
            before = Before(Changed(view, own))
            receipts = []
            for signed in transactions:
                transaction = decode_transaction(signed.raw)
                family = (transaction.header.family_name, transaction.header.family_version)
                context = self._dispatcher.run_apply(family, transaction, before).context
                if context is None:
                    break
                kept = {
                    name: value
                    for name, value in context.changes.items()
                    if value is not None or before.get(name) is not None
                }
                events = tuple(map(decode_event, context.events))
                receipt = encode_receipt(Receipt(signed.id, kept, events, tuple(context.receipt_data)))
                receipts.append((signed.id, receipt))
                own.update(kept)
            else:
                changes.update(own)
                committed.append(CommittedBatch(batch.id, batch.raw, tuple(receipts)))
        return self._commit(committed, changes)

    def migrated(self, permission: Permission) -> BlockInfo:
        """Commit the next block, which holds the migration of the given version."""
        head = self.store.head
        view = Stored(self.store.node, head.root if head else EMPTY)
        batch = batch_for(permission, view)
        changes: dict[str, bytes | None] = {}
        receipts = []
        for transaction in batch.transactions:
            context = self._dispatcher.run_slice(permission.family, transaction.inputs, Before(view)).context
            assert context is not None
            receipts.append((transaction.id, encode_receipt(Receipt(transaction.id, context.changes, (), ()))))
            changes.update(context.changes)
        return self._commit([CommittedBatch(batch.id, batch.raw, tuple(receipts))], changes)

    def _commit(self, committed: list[CommittedBatch], changes: dict[str, bytes | None]) -> BlockInfo:
        return self.store.commit_block(sealed_commit(self.store, SIGNER, committed, changes))

    def close(self) -> None:
        """Close the store, so that this process can open it for reading."""
        self.store.close()


def long_chain(folder: Path, transactions: int, block_transactions: int, names: int) -> None:
    """Commit an intkey chain with one transaction a batch: names are set, then increased and decreased in turn."""
    chain = Chain(folder)
    for first in range(0, transactions, block_transactions):
        chain.steps(*([_step(number, names)] for number in range(first, min(first + block_transactions, transactions))))
    chain.close()


def _step(number: int, names: int) -> Step:
    name = f"n{number % names}"
    if number < names:
        return "set", name, 1000
    return ("inc", "dec")[number // names % 2], name, 1 + number % 7
