"""Builds signed transactions, batches and the body of a POST, for clients. Reads no key files and no clock."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dovetail.ledger.ids import BatchId, TransactionId
from dovetail.ledger.signing import Signer
from protos import batch_pb2, raw_pb2, transaction_pb2


class SignedTransaction(NamedTuple):
    """A transaction ready for a batch: its id and its serialized bytes."""

    id: TransactionId
    raw: bytes


def build_transaction(
    signer: Signer,
    *,
    batcher_pubkey: str,
    family_name: str,
    family_version: str,
    inputs: Iterable[str],
    outputs: Iterable[str],
    payload: bytes,
    payload_encoding: str,
    nonce: str,
    dependencies: Iterable[TransactionId] = (),
) -> SignedTransaction:
    """Sign one transaction. Give each its own ``nonce``: transactions with equal contents have equal ids."""
    header_bytes = transaction_pb2.TransactionHeader(
        batcher_pubkey=batcher_pubkey,
        dependencies=dependencies,
        family_name=family_name,
        family_version=family_version,
        inputs=inputs,
        nonce=nonce,
        outputs=outputs,
        payload_encoding=payload_encoding,
        payload_sha512=hashlib.sha512(payload).hexdigest(),
        signer_pubkey=signer.public_key,
    ).SerializeToString()
    transaction_id = TransactionId(signer.sign(header_bytes))
    message = transaction_pb2.Transaction(header=header_bytes, header_signature=transaction_id, payload=payload)
    return SignedTransaction(transaction_id, message.SerializeToString())


class SignedBatch(NamedTuple):
    """A batch ready to be posted: its id and its serialized bytes."""

    id: BatchId
    raw: bytes


def build_batch(signer: Signer, transactions: Sequence[SignedTransaction]) -> SignedBatch:
    """Sign one batch. ``signer`` must be the batcher of each transaction."""
    header_bytes = batch_pb2.BatchHeader(
        signer_pubkey=signer.public_key, transaction_ids=[transaction.id for transaction in transactions]
    ).SerializeToString()
    batch_id = BatchId(signer.sign(header_bytes))
    message = raw_pb2.RawBatch(
        header=header_bytes, header_signature=batch_id, transactions=[transaction.raw for transaction in transactions]
    )
    return SignedBatch(batch_id, message.SerializeToString())


def encode_batch_list(batches: Sequence[SignedBatch]) -> bytes:
    """The body of POST /batches."""
    return raw_pb2.RawBatchList(batches=[batch.raw for batch in batches]).SerializeToString()
