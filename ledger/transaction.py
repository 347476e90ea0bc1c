"""Transactions: decoding a header once, and building signed transactions.

Verification of a transaction happens with the batch it travels in (``ledger.batch``). No families, no execution.
"""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from google.protobuf.message import DecodeError

from ledger.errors import NotDecodable
from ledger.ids import TransactionId
from ledger.signing import Signer
from protos import transaction_pb2


class TransactionHeader(NamedTuple):
    """The signed part of a transaction (seed specification, TransactionHeader)."""

    batcher_pubkey: str
    dependencies: tuple[TransactionId, ...]
    family_name: str
    family_version: str
    inputs: tuple[str, ...]
    nonce: str
    outputs: tuple[str, ...]
    payload_encoding: str
    payload_sha512: str
    signer_pubkey: str


class Transaction(NamedTuple):
    """One transaction as a handler or a reader sees it: ``id`` is the header signature, ``payload`` opaque bytes."""

    id: TransactionId
    header: TransactionHeader
    header_bytes: bytes
    payload: bytes


def decode_header(header_bytes: bytes) -> TransactionHeader:
    """The fields of a serialized TransactionHeader. Raises NotDecodable."""
    try:
        header = transaction_pb2.TransactionHeader.FromString(header_bytes)
    except DecodeError:
        raise NotDecodable("the header is no TransactionHeader") from None
    return TransactionHeader(
        batcher_pubkey=header.batcher_pubkey,
        dependencies=tuple(map(TransactionId, header.dependencies)),
        family_name=header.family_name,
        family_version=header.family_version,
        inputs=tuple(header.inputs),
        nonce=header.nonce,
        outputs=tuple(header.outputs),
        payload_encoding=header.payload_encoding,
        payload_sha512=header.payload_sha512,
        signer_pubkey=header.signer_pubkey,
    )


def decode_transaction(raw: bytes) -> Transaction:
    """One serialized Transaction, header included. Raises NotDecodable."""
    try:
        message = transaction_pb2.Transaction.FromString(raw)
    except DecodeError:
        raise NotDecodable("the bytes are no Transaction") from None
    header_bytes = message.header
    return Transaction(
        TransactionId(message.header_signature), decode_header(header_bytes), header_bytes, message.payload
    )


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
    """Sign one transaction. ``nonce`` makes otherwise identical transactions differ: give each its own."""
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
