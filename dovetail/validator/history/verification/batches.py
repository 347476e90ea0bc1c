"""Checks one batch and its receipts without the chain: signatures, ids, encodings. Runs in workers."""

from typing import NamedTuple

from google.protobuf.message import DecodeError

from dovetail.ledger.addresses import AccessList, is_address
from dovetail.ledger.batch import VerifiedBatch, verify_batch, verify_migration
from dovetail.ledger.errors import RefusedBatch
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.receipt import Receipt, decode_event, encode_receipt
from dovetail.ledger.settings import FamilyVersion
from protos import batch_pb2, raw_pb2, transaction_pb2, transaction_receipt_pb2
from protos.transaction_receipt_pb2 import StateChange


class Fault(NamedTuple):
    """A fault of a batch, or of the transaction at index ``position`` in it."""

    position: int | None
    what: str
    expected: str
    found: str


class CheckedBatch(NamedTuple):
    """``verified``: None if the batch broke a rule. ``changes``: the merged state changes of its receipts.

    ``migrates``: whether it is signed with the migration key, which is legal in certain blocks only.
    """

    verified: VerifiedBatch | None
    migrates: bool
    changes: dict[str, bytes | None]
    faults: tuple[Fault, ...]


def check_batch(raw: bytes, receipts: list[bytes | None] | None) -> CheckedBatch:
    """Check a batch and the stored receipts of its transactions, in order.

    A receipt of None, or an empty batch, stands for an unreadable record. ``receipts`` is None if the batch is in no
    block yet.
    """
    faults: list[Fault] = []
    verified, migrates = None, False
    try:
        try:
            verified = verify_batch(raw) if raw else None
        except RefusedBatch as refusal:
            if refusal.rule != "migration_key":
                raise
            verified, migrates = verify_migration(raw), True
    except RefusedBatch as refusal:
        faults.append(Fault(None, refusal.rule, "a batch that keeps every rule", refusal.message))
    if verified is not None and verified.raw != raw:
        more = f"{len(raw)} bytes with unsigned or reordered fields"
        faults.append(Fault(None, "batch_form", f"the {len(verified.raw)} bytes of the canonical Batch", more))
    if receipts is None:
        return CheckedBatch(verified, migrates, {}, tuple(faults))
    if verified is not None and len(verified.transactions) != len(receipts):
        faults.append(Fault(None, "receipts", f"{len(verified.transactions)} of them", str(len(receipts))))
    changes: dict[str, bytes | None] = {}
    for position, content in enumerate(receipts):
        if content is None:
            continue
        transaction = (
            verified.transactions[position] if verified is not None and position < len(verified.transactions) else None
        )
        receipt = decode_receipt(content)
        if receipt is None or encode_receipt(receipt) != content:
            faults.append(Fault(position, "receipt_form", "a canonical TransactionReceipt", f"{content[:48].hex()}…"))
        if receipt is None:
            continue
        if transaction is not None:
            if receipt.transaction_id != transaction.id:
                faults.append(Fault(position, "receipt_names", transaction.id, receipt.transaction_id[:140]))
            outputs = AccessList(transaction.outputs)
            outside = next((address for address in receipt.changes if not outputs.permits(address)), None)
            if outside is not None:
                faults.append(Fault(position, "receipt_writes", "addresses within the outputs", outside))
        changes.update(receipt.changes)
    return CheckedBatch(verified, migrates, changes, tuple(faults))


def decode_receipt(content: bytes) -> Receipt | None:
    """Decode a serialized TransactionReceipt; None if the bytes are no receipt, or if a changed address is
    malformed."""
    try:
        message = transaction_receipt_pb2.TransactionReceipt.FromString(content)
    except DecodeError:
        return None
    changes: dict[str, bytes | None] = {}
    for change in message.state_changes:
        if not is_address(change.address):
            return None
        changes[change.address] = change.value if change.type == StateChange.SET else None
    return Receipt(
        TransactionId(message.transaction_id), changes, tuple(map(decode_event, message.events)), tuple(message.data)
    )


def families_of(raw: bytes) -> set[FamilyVersion]:
    """The families of a serialized batch's transactions. Raises ValueError if the bytes are no batch."""
    try:
        transactions = batch_pb2.Batch.FromString(raw).transactions
        headers = (transaction_pb2.TransactionHeader.FromString(transaction.header) for transaction in transactions)
        return {FamilyVersion(header.family_name, header.family_version) for header in headers}
    except DecodeError as error:
        raise ValueError(str(error)) from None


def transactions_of(raw: bytes) -> int | None:
    """The number of transactions in a serialized batch; None if the bytes are no batch."""
    try:
        return len(raw_pb2.RawBatch.FromString(raw).transactions)
    except DecodeError:
        return None
