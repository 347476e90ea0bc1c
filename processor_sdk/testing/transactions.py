"""Transactions and batches for a test ledger: unsigned ones made of fields, and signed ones.

The validator's own rule (``dovetail.ledger.batch``) checks signed ones. This rule needs the curve library, which is
imported for the first signed batch.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from dovetail.ledger.errors import RefusedBatch
from dovetail.ledger.ids import BatchId, PublicKey, TransactionId, is_public_key
from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.transaction import TransactionHeader, check_declarations, check_declared
from protos import batch_pb2, raw_pb2, transaction_pb2

if TYPE_CHECKING:
    from dovetail.ledger.building import SignedBatch, SignedTransaction

SIGNER: Final = PublicKey("02" + "5e" * 32)
"""The default public key of unsigned transactions."""


class UnsignedTransaction(NamedTuple):
    """A transaction without a signature. ``id``: a hash of its header; ``raw``: a serialized Transaction."""

    id: TransactionId
    family: FamilyVersion
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dependencies: tuple[TransactionId, ...]
    raw: bytes


class Batch(NamedTuple):
    """Transactions that are applied all or not at all."""

    id: BatchId
    transactions: tuple[UnsignedTransaction, ...]


Applicable: TypeAlias = (
    "UnsignedTransaction | SignedTransaction | SignedBatch | Sequence[UnsignedTransaction | SignedTransaction]"
)
"""One transaction, the transactions of a batch in order, or a signed batch."""


def unsigned(
    family: FamilyVersion,
    payload: bytes,
    *,
    encoding: str,
    inputs: Iterable[str],
    outputs: Iterable[str],
    signer: str,
    dependencies: Iterable[TransactionId],
    nonce: str,
) -> UnsignedTransaction:
    """An unsigned transaction of these fields. Raises RefusedBatch if the validator would not accept it."""
    for name, values in (("inputs", inputs), ("outputs", outputs), ("dependencies", dependencies)):
        if isinstance(values, str):
            raise TypeError(f"{name} is the text {values!r}; write a list: [{values!r}]")
    if not is_public_key(signer):
        raise RefusedBatch(
            "public_key_malformed", f"signer {signer!r} is not a compressed public key of 66 lower-case hex characters"
        )
    header = TransactionHeader(
        batcher_pubkey=signer,
        dependencies=tuple(dependencies),
        family_name=family.name,
        family_version=family.version,
        inputs=tuple(inputs),
        nonce=nonce,
        outputs=tuple(outputs),
        payload_encoding=encoding,
        payload_sha512=hashlib.sha512(payload).hexdigest(),
        signer_pubkey=signer,
    )
    check_declarations("the transaction", header)
    header_bytes = transaction_pb2.TransactionHeader(**header._asdict()).SerializeToString()
    id_ = TransactionId(hashlib.sha512(header_bytes).hexdigest())
    raw = transaction_pb2.Transaction(header=header_bytes, header_signature=id_, payload=payload).SerializeToString()
    return UnsignedTransaction(id_, family, header.inputs, header.outputs, header.dependencies, raw)


def batch_of(what: Applicable, body_bytes_max: int) -> Batch:
    """``what`` as a batch. Raises RefusedBatch if the validator would not accept it.

    ``body_bytes_max``: the size limit of a BatchList with only this batch.
    """
    if isinstance(what, UnsignedTransaction):
        return _batch((what,), body_bytes_max)
    if type(what) in (list, tuple):
        return _batch(tuple(_transaction_of(item) for item in what), body_bytes_max)
    from dovetail.ledger.batch import verify_batch
    from dovetail.ledger.building import SignedBatch

    if isinstance(what, SignedBatch):
        _check_body(what.raw, body_bytes_max)
        batch = verify_batch(what.raw)
        return Batch(batch.id, tuple(UnsignedTransaction(*transaction) for transaction in batch.transactions))
    return _batch((_transaction_of(what),), body_bytes_max)


def _transaction_of(what: object) -> UnsignedTransaction:
    if isinstance(what, UnsignedTransaction):
        return what
    from dovetail.ledger.batch import verify_transaction
    from dovetail.ledger.building import SignedTransaction

    if isinstance(what, SignedTransaction):
        return UnsignedTransaction(*verify_transaction(what.raw))
    raise TypeError(
        f"a {type(what).__name__} cannot be applied: give ledger.transaction(…), a SignedTransaction, a SignedBatch,"
        " or a list of transactions, which is a batch"
    )


def made(transactions: tuple[UnsignedTransaction, ...]) -> Batch:
    """A batch of ``transactions``, unchecked."""
    ids = "".join(transaction.id for transaction in transactions)
    return Batch(BatchId(hashlib.sha512(ids.encode()).hexdigest()), transactions)


def _batch(transactions: tuple[UnsignedTransaction, ...], body_bytes_max: int) -> Batch:
    if not transactions:
        raise RefusedBatch("empty_batch", "a batch holds at least one transaction")
    batch = made(transactions)
    id_ = batch.id
    ids = [transaction.id for transaction in transactions]
    # These messages are as long as those of a signed batch.
    header = batch_pb2.BatchHeader(signer_pubkey=SIGNER, transaction_ids=ids).SerializeToString()
    raw = raw_pb2.RawBatch(header=header, header_signature=id_, transactions=[item.raw for item in transactions])
    _check_body(raw.SerializeToString(), body_bytes_max)
    check_declared(id_, sum(len(transaction.inputs) + len(transaction.outputs) for transaction in transactions))
    seen: set[TransactionId] = set()
    for transaction_id in ids:
        if transaction_id in seen:
            raise RefusedBatch(
                "duplicate_transaction", f"the batch holds transaction {transaction_id} twice: give one another nonce"
            )
        seen.add(transaction_id)
    return batch


def _check_body(raw: bytes, body_bytes_max: int) -> None:
    size = raw_pb2.RawBatchList(batches=[raw]).ByteSize()
    if size > body_bytes_max:
        raise RefusedBatch("too_large", f"the list has {size} bytes, at most {body_bytes_max} are allowed")
