"""Transactions: decoding, and the rules on declared families, dependencies and addresses.

``batch`` verifies signatures and hashes, and ``building`` signs. This module needs no curve library, so processors can
use it.
"""

from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from dovetail.ledger.addresses import is_prefix
from dovetail.ledger.errors import NotDecodable, RefusedBatch
from dovetail.ledger.ids import TransactionId, is_id
from protos import transaction_pb2

FAMILY_CHARACTERS_MAX: Final = 256
"""The most characters of a family's name and of its version. Neither may be empty."""

DECLARED_ADDRESSES_MAX: Final = 20_000
"""The most inputs and outputs that the transactions of a batch may declare together."""


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
    """A decoded transaction. ``id``: the header signature; ``payload``: bytes that the family defines."""

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
    # This runs for every transaction. Positional arguments and slices of repeated fields save a third of the time.
    return TransactionHeader(
        header.batcher_pubkey,
        tuple(map(TransactionId, header.dependencies[:])),
        header.family_name,
        header.family_version,
        tuple(header.inputs[:]),
        header.nonce,
        tuple(header.outputs[:]),
        header.payload_encoding,
        header.payload_sha512,
        header.signer_pubkey,
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


def check_declarations(where: str, header: TransactionHeader) -> None:
    """Check the form of family, dependencies, inputs and outputs. Raises RefusedBatch, which names ``where``."""
    for name, value in (("family_name", header.family_name), ("family_version", header.family_version)):
        if not 0 < len(value) <= FAMILY_CHARACTERS_MAX:
            raise RefusedBatch(
                "family_malformed",
                f"{where}: its {name} has {len(value)} characters, allowed are 1 to {FAMILY_CHARACTERS_MAX}",
            )
    for dependency in header.dependencies:
        if not is_id(dependency):
            raise RefusedBatch(
                "dependency_malformed",
                f"{where}: its dependency {dependency[:140]!r} is not an id of 128 lower-case hex characters",
            )
    for entry in (*header.inputs, *header.outputs):
        if not is_prefix(entry):
            raise RefusedBatch(
                "address_malformed",
                f"{where}: declared address {entry[:80]!r} is not an even number of lower-case hex characters, 0 to 70",
            )


def check_declared(batch_id: str, declared: int) -> None:
    """Raises RefusedBatch if the transactions of a batch declare too many inputs and outputs together."""
    if declared > DECLARED_ADDRESSES_MAX:
        raise RefusedBatch(
            "too_many_addresses",
            f"batch {batch_id} declares {declared} inputs and outputs, at most {DECLARED_ADDRESSES_MAX} are allowed",
        )
