"""A second implementation of the rules of a submitted batch list.

The module reads a list and names each broken rule. Rules that depend on state, the chain or a family do not belong
here. This module must not import the project's packages.
"""

import hashlib
import re
from collections.abc import Iterator

from tests.system.independent import client, secp256k1
from tests.system.independent.protobuf_wire import WireError

_ID = re.compile(r"[0-9a-f]{128}")


def broken_rules(batch_list: bytes) -> set[str]:
    """The RULE_ texts of ``client`` that the list breaks. Raises WireError if the bytes are no list."""
    return {rule for batch in client.read_batch_list(batch_list) for rule in _of_batch(batch)}


def _of_batch(batch: client.Batch) -> Iterator[str]:
    try:
        header = batch.header
    except WireError:
        yield client.RULE_BATCH_HEADER
        return
    yield from _of_signature(header.signer_pubkey, batch.header_bytes, batch.id, client.RULE_BATCH_SIGNATURE)
    ids = [transaction.id for transaction in batch.transactions]
    if not ids:
        yield client.RULE_EMPTY_BATCH
    if len(set(ids)) != len(ids):
        yield client.RULE_DUPLICATE
    if list(header.transaction_ids) != ids:
        yield client.RULE_TRANSACTION_IDS
    for transaction in batch.transactions:
        yield from _of_transaction(transaction, header.signer_pubkey)


def _of_transaction(transaction: client.Transaction, batch_signer: str) -> Iterator[str]:
    try:
        header = transaction.header
    except WireError:
        yield client.RULE_TRANSACTION_HEADER
        return
    yield from _of_signature(
        header.signer_pubkey, transaction.header_bytes, transaction.id, client.RULE_TRANSACTION_SIGNATURE
    )
    if header.batcher_pubkey != batch_signer:
        yield client.RULE_BATCHER_KEY
    if header.payload_sha512 != hashlib.sha512(transaction.payload).hexdigest():
        yield client.RULE_PAYLOAD_HASH


def _of_signature(public_key: str, message: bytes, signature: str, rule: str) -> Iterator[str]:
    if secp256k1.decode_public_key(public_key) is None:
        yield client.RULE_KEY_FORM
    elif not _ID.fullmatch(signature):
        yield client.RULE_ID_FORM
    elif not secp256k1.verify(public_key, message, signature, require_low_s=False):
        yield rule
    elif not secp256k1.verify(public_key, message, signature):
        yield client.RULE_LOW_S
