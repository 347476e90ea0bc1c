"""Batches: decoding and verification.

``verify_batch`` checks signatures, payload hashes, ids against the header, and the batcher's key (seed specification,
"Rules on transactions and batches"). A verified batch holds what was signed, in one encoding: header bytes as received,
signature, and the same with the payload of each transaction. Unknown, repeated and reordered fields around them are
dropped: no signature covers them, so one id would name batches of different bytes and sizes.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from google.protobuf.message import DecodeError

from dovetail.ledger import migration, signing
from dovetail.ledger.errors import InvalidKey, NotDecodable, RefusedBatch
from dovetail.ledger.ids import BatchId, TransactionId, is_id
from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.transaction import check_declarations, check_declared, decode_header
from protos import batch_pb2, raw_pb2, transaction_pb2


class VerifiedTransaction(NamedTuple):
    """The fields of a transaction that routing, scheduling and rules use, and its bytes.

    ``raw``: the canonical Transaction, without anything unsigned.
    """

    id: TransactionId
    family: FamilyVersion
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dependencies: tuple[TransactionId, ...]
    raw: bytes


class VerifiedBatch(NamedTuple):
    """A batch that passed ``verify_batch`` or ``verify_migration``.

    ``declared``: how many inputs and outputs its transactions declare together. ``dependencies``: how many dependencies
    they declare together. ``raw``: the canonical Batch, without anything unsigned. ``signer``: the batcher's key.
    """

    id: BatchId
    transactions: tuple[VerifiedTransaction, ...]
    declared: int
    raw: bytes
    signer: str
    dependencies: int


def decode_batch_list(content: bytes) -> list[bytes]:
    """The serialized batches of a BatchList, each as it was received. Raises NotDecodable."""
    try:
        return list(raw_pb2.RawBatchList.FromString(content).batches)
    except DecodeError:
        raise NotDecodable("the bytes are no BatchList") from None


def verify_batch(raw: bytes) -> VerifiedBatch:
    """Check one serialized Batch against every rule. Raises RefusedBatch with the broken rule."""
    return _verify(raw, refused_signer=migration.PUBLIC_KEY)


def checked_batch(raw: bytes) -> VerifiedBatch | RefusedBatch:
    """Like ``verify_batch``, but returns the refusal."""
    try:
        return verify_batch(raw)
    except RefusedBatch as refusal:
        return refusal


def verify_migration(raw: bytes) -> VerifiedBatch:
    """Like ``verify_batch``, but for a batch that a validator injected: allows the migration key. Raises
    RefusedBatch."""
    return _verify(raw, refused_signer=None)


def _verify(raw: bytes, refused_signer: str | None) -> VerifiedBatch:
    try:
        batch = raw_pb2.RawBatch.FromString(raw)
    except DecodeError:
        raise RefusedBatch("batch_not_decodable", f"{len(raw)} bytes in the list are no Batch") from None
    batch_id = batch.header_signature
    if not is_id(batch_id):
        raise RefusedBatch(
            "batch_id_malformed", f"batch id {batch_id[:140]!r} is not a signature of 128 lower-case hex characters"
        )
    try:
        header = batch_pb2.BatchHeader.FromString(batch.header)
    except DecodeError:
        raise RefusedBatch("header_not_decodable", f"batch {batch_id}: its header is no BatchHeader") from None
    signer = header.signer_pubkey
    _check_signature(f"batch {batch_id}", signer, refused_signer, batch.header, batch_id)
    if not batch.transactions:
        raise RefusedBatch("empty_batch", f"batch {batch_id} holds no transaction")
    transactions = tuple(
        _verify_transaction(raw_transaction, batch_id, signer, refused_signer) for raw_transaction in batch.transactions
    )
    declared = sum(len(transaction.inputs) + len(transaction.outputs) for transaction in transactions)
    check_declared(batch_id, declared)
    _check_transaction_ids(batch_id, list(header.transaction_ids), [transaction.id for transaction in transactions])
    dependencies = sum(len(transaction.dependencies) for transaction in transactions)
    canonical = raw_pb2.RawBatch(
        header=batch.header, header_signature=batch_id, transactions=[transaction.raw for transaction in transactions]
    ).SerializeToString()
    return VerifiedBatch(BatchId(batch_id), transactions, declared, canonical, signer, dependencies)


def verify_transaction(raw: bytes) -> VerifiedTransaction:
    """Check one serialized Transaction that is in no batch yet. Raises RefusedBatch with the broken rule."""
    return _verify_transaction(raw, "(none yet)", None, migration.PUBLIC_KEY)


def _verify_transaction(
    raw: bytes, batch_id: str, batch_signer: str | None, refused_signer: str | None
) -> VerifiedTransaction:
    try:
        message = transaction_pb2.Transaction.FromString(raw)
    except DecodeError:
        raise RefusedBatch(
            "transaction_not_decodable", f"batch {batch_id}: {len(raw)} bytes in it are no Transaction"
        ) from None
    transaction_id = message.header_signature
    where = f"transaction {transaction_id[:140]} of batch {batch_id}"
    if not is_id(transaction_id):
        raise RefusedBatch(
            "transaction_id_malformed", f"{where}: its id is not a signature of 128 lower-case hex characters"
        )
    header_bytes = message.header
    try:
        header = decode_header(header_bytes)
    except NotDecodable as error:
        raise RefusedBatch("header_not_decodable", f"{where}: {error}") from None
    _check_signature(where, header.signer_pubkey, refused_signer, header_bytes, transaction_id)
    if batch_signer is not None and header.batcher_pubkey != batch_signer:
        raise RefusedBatch(
            "batcher_key_mismatch",
            f"{where}: its batcher_pubkey {header.batcher_pubkey[:70]} is not the key that signed the batch,"
            f" {batch_signer}",
        )
    payload_sha512 = hashlib.sha512(message.payload).hexdigest()
    if payload_sha512 != header.payload_sha512:
        raise RefusedBatch(
            "payload_hash_mismatch",
            f"{where}: the payload's SHA-512 is {payload_sha512}, its header says {header.payload_sha512[:140]}",
        )
    check_declarations(where, header)
    # All known fields are signed or hashed, and the encoder writes each once, in order.
    message.DiscardUnknownFields()
    return VerifiedTransaction(
        id=TransactionId(transaction_id),
        family=_family(header.family_name, header.family_version),
        inputs=header.inputs,
        outputs=header.outputs,
        dependencies=header.dependencies,
        raw=message.SerializeToString(),
    )


@lru_cache(maxsize=1024)
def _family(name: str, version: str) -> FamilyVersion:
    """One value for all transactions of a family, so that a pickle contains it once."""
    return FamilyVersion(name, version)


def _check_signature(where: str, public_key: str, refused: str | None, header_bytes: bytes, signature: str) -> None:
    if public_key == refused:
        raise RefusedBatch(
            "migration_key", f"{where}: its signer_pubkey is the key of migrations, which only validators make"
        )
    if signing.is_high_s(signature):
        raise RefusedBatch("signature_high_s", f"{where}: its signature has a high s value; low-s is required")
    try:
        valid = signing.verify(public_key, header_bytes, signature)
    except InvalidKey as error:
        raise RefusedBatch("public_key_malformed", f"{where}: signer_pubkey: {str(error)[:160]}") from None
    if not valid:
        raise RefusedBatch(
            "signature_mismatch", f"{where}: signer_pubkey {public_key} did not make this signature over this header"
        )


def _check_transaction_ids(batch_id: str, named: list[str], held: Sequence[TransactionId]) -> None:
    if named != held:
        raise RefusedBatch("transaction_ids_mismatch", f"batch {batch_id}: {_first_difference(named, held)}")
    seen: set[TransactionId] = set()
    for transaction_id in held:
        if transaction_id in seen:
            raise RefusedBatch("duplicate_transaction", f"batch {batch_id} holds transaction {transaction_id} twice")
        seen.add(transaction_id)


def _first_difference(named: list[str], held: Sequence[str]) -> str:
    for position, (expected, found) in enumerate(zip(named, held, strict=False)):
        if expected != found:
            return f"its header names transaction {expected[:140]} at position {position}, the batch holds {found}"
    return f"its header names {len(named)} transactions, the batch holds {len(held)}"
