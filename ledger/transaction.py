"""Transactions: decoding a header once.

Verification of a transaction happens with the batch it travels in (``ledger.batch``), signing in ``ledger.building``:
who only processes transactions needs no curve library.
"""

from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from ledger.errors import NotDecodable
from ledger.ids import TransactionId
from protos import transaction_pb2

FAMILY_CHARACTERS_MAX: Final = 256
"""Most characters of a family's name, and of its version. None is no family."""


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
