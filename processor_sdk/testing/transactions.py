"""Transactions and batches on their way into a test ledger: made by fields without a key, or signed ones checked.

Signed ones are checked by the validator's own rule (``ledger.batch``), which needs the curve library: it is imported
when the first one comes.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ledger.addresses import is_prefix
from ledger.ids import BatchId, PublicKey, TransactionId, is_id
from ledger.settings import FamilyVersion
from ledger.transaction import FAMILY_CHARACTERS_MAX
from protos import transaction_pb2

if TYPE_CHECKING:
    from ledger.building import SignedBatch, SignedTransaction

SIGNER: Final = PublicKey("02" + "5e" * 32)
"""The public key that unsigned transactions name where the test names none."""


class UnsignedTransaction(NamedTuple):
    """A transaction that never had a signature; ``id`` is made from its content. ``raw``: a serialized Transaction."""

    id: TransactionId
    family: FamilyVersion
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dependencies: tuple[TransactionId, ...]
    raw: bytes


class Batch(NamedTuple):
    """What is applied whole or not at all."""

    id: BatchId
    transactions: tuple[UnsignedTransaction, ...]


Applicable: TypeAlias = (
    "UnsignedTransaction | SignedTransaction | SignedBatch | Sequence[UnsignedTransaction | SignedTransaction]"
)
"""One transaction, a batch by its transactions in order, or a signed batch."""


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
    """A transaction by its fields. Raises ValueError for what the validator would not take in."""
    declared_in, declared_out, needed = tuple(inputs), tuple(outputs), tuple(dependencies)
    for entry in (*declared_in, *declared_out):
        if not is_prefix(entry):
            raise ValueError(f"{entry!r} is no address: an even number of lower-case hex characters, 0 to 70")
    for dependency in needed:
        if not is_id(dependency):
            raise ValueError(f"{dependency!r} is no transaction id of 128 lower-case hex characters")
    for name, value in (("family", family.name), ("version", family.version)):
        if not 0 < len(value) <= FAMILY_CHARACTERS_MAX:
            raise ValueError(f"the {name} has {len(value)} characters, allowed are 1 to {FAMILY_CHARACTERS_MAX}")
    header = transaction_pb2.TransactionHeader(
        batcher_pubkey=signer,
        dependencies=needed,
        family_name=family.name,
        family_version=family.version,
        inputs=declared_in,
        nonce=nonce,
        outputs=declared_out,
        payload_encoding=encoding,
        payload_sha512=hashlib.sha512(payload).hexdigest(),
        signer_pubkey=signer,
    ).SerializeToString()
    id_ = TransactionId(hashlib.sha512(header).hexdigest())
    raw = transaction_pb2.Transaction(header=header, header_signature=id_, payload=payload).SerializeToString()
    return UnsignedTransaction(id_, family, declared_in, declared_out, needed, raw)


def batch_of(what: Applicable) -> Batch:
    """The batch that ``what`` means. Raises RefusedBatch for a signed one that the validator would not take in."""
    if isinstance(what, UnsignedTransaction):
        return _batch((what,))
    if type(what) in (list, tuple):
        return _batch(tuple(_transaction_of(item) for item in what))
    from ledger.batch import verify_batch
    from ledger.building import SignedBatch

    if isinstance(what, SignedBatch):
        batch = verify_batch(what.raw)
        return Batch(batch.id, tuple(UnsignedTransaction(*transaction) for transaction in batch.transactions))
    return _batch((_transaction_of(what),))


def _transaction_of(what: object) -> UnsignedTransaction:
    if isinstance(what, UnsignedTransaction):
        return what
    from ledger.batch import verify_transaction
    from ledger.building import SignedTransaction

    if isinstance(what, SignedTransaction):
        return UnsignedTransaction(*verify_transaction(what.raw))
    raise TypeError(
        f"a {type(what).__name__} cannot be applied: give ledger.transaction(…), a SignedTransaction, a SignedBatch,"
        " or a list of transactions, which is a batch"
    )


def _batch(transactions: tuple[UnsignedTransaction, ...]) -> Batch:
    ids = [transaction.id for transaction in transactions]
    if not ids:
        raise ValueError("a batch holds at least one transaction")
    for id_ in ids:
        if ids.count(id_) > 1:
            raise ValueError(f"the batch holds transaction {id_} twice: give one of them another nonce")
    return Batch(BatchId(hashlib.sha512("".join(ids).encode()).hexdigest()), transactions)
