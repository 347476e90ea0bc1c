"""Views: the validator's messages as JSON objects (seed specification, Resources; API.md).

Member names and their order are the contract with clients. Binary values stay bytes, which the encoder writes as
standard base64. Lists of transactions and batches are iterators that can be read once (see ``pieces``). A view raises
DecodeError or NotDecodable for an undecodable message, also while its iterators are read.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from dovetail.ledger.block import decode_block_header
from dovetail.ledger.transaction import decode_header
from dovetail.rest_api.answers.pieces import PIECE_BYTES, Json, Text, pieces, whole
from protos import batch_pb2, block_pb2, client_batch_submit_pb2, query_pb2, state_context_pb2, transaction_pb2

ClientBatchStatus = client_batch_submit_pb2.ClientBatchStatus


def transaction(message: transaction_pb2.Transaction) -> Json:
    """A transaction with its decoded header."""
    header = decode_header(message.header)
    return {
        "header": {
            "batcher_pubkey": header.batcher_pubkey,
            "dependencies": header.dependencies,
            "family_name": header.family_name,
            "family_version": header.family_version,
            "inputs": header.inputs,
            "nonce": header.nonce,
            "outputs": header.outputs,
            "payload_encoding": header.payload_encoding,
            "payload_sha512": header.payload_sha512,
            "signer_pubkey": header.signer_pubkey,
        },
        "header_signature": message.header_signature,
        "payload": message.payload,
    }


def batch(message: batch_pb2.Batch) -> Json:
    header = batch_pb2.BatchHeader.FromString(message.header)
    return {
        "header": {"signer_pubkey": header.signer_pubkey, "transaction_ids": list(header.transaction_ids)},
        "header_signature": message.header_signature,
        "transactions": map(transaction, message.transactions),
    }


def block(message: block_pb2.Block) -> Json:
    header = decode_block_header(message.header)
    return {
        "header": {
            "batch_ids": header.batch_ids,
            "block_num": header.block_num,
            "consensus": header.consensus,
            "previous_block_id": header.previous_block_id,
            "signer_pubkey": header.signer_pubkey,
            "state_root_hash": header.state_root_hash,
        },
        "header_signature": message.header_signature,
        "batches": map(batch, message.batches),
    }


def leaf(message: state_context_pb2.TpStateEntry) -> Json:
    return {"address": message.address, "data": message.data}


def text(view: Json, message_bytes: int) -> Text:
    """Encode a view: in one piece, which is faster, if its message is small."""
    return whole(view) if message_bytes <= PIECE_BYTES else pieces(view)


class Item(NamedTuple):
    """One item of a list: its id or address, which ``min`` and ``max`` may name, and its JSON."""

    key: str
    text: Text


def _block_item(raw: bytes) -> Item:
    message = block_pb2.Block.FromString(raw)
    return Item(message.header_signature, text(block(message), len(raw)))


def _batch_item(raw: bytes) -> Item:
    message = batch_pb2.Batch.FromString(raw)
    return Item(message.header_signature, text(batch(message), len(raw)))


def _transaction_item(raw: bytes) -> Item:
    message = transaction_pb2.Transaction.FromString(raw)
    return Item(message.header_signature, text(transaction(message), len(raw)))


def _leaf_item(raw: bytes) -> Item:
    message = state_context_pb2.TpStateEntry.FromString(raw)
    return Item(message.address, whole(leaf(message)))


ITEMS: Final[dict[int, Callable[[bytes], Item]]] = {
    query_pb2.ListRequest.BLOCKS: _block_item,
    query_pb2.ListRequest.BATCHES: _batch_item,
    query_pb2.ListRequest.TRANSACTIONS: _transaction_item,
    query_pb2.ListRequest.STATE: _leaf_item,
}
"""For each resource of a ListRequest, the function that decodes one of its ``items``."""


def page(items: Iterable[Item], bytes_max: int) -> list[Item]:
    """The leading items whose JSON fits into ``bytes_max``; at least one item."""
    kept: list[Item] = []
    size = 0
    for item in items:
        size += item.text.size() + 1
        if kept and size > bytes_max:
            break
        kept.append(item)
    return kept


def statuses(ids: Iterable[str], found: dict[str, ClientBatchStatus]) -> Json:
    """``data`` and, unless all are empty, ``details`` of a status answer.

    ``found`` holds the validator's answer for each batch id; an id without an entry is UNKNOWN.
    """
    data: dict[str, str] = {}
    details: dict[str, Json] = {}
    for batch_id in ids:
        status = found.get(batch_id, ClientBatchStatus())
        data[batch_id] = _WORDS.get(status.status, "UNKNOWN")
        if detail := _details(status):
            details[batch_id] = detail
    return {"data": data, "details": details} if details else {"data": data}


def not_an_id() -> ClientBatchStatus:
    """The status of a string that does not have the form of a batch id."""
    return ClientBatchStatus(status=ClientBatchStatus.UNKNOWN, reason="not_an_id")


_WORDS: Final[dict[int, str]] = {
    ClientBatchStatus.COMMITTED: "COMMITTED",
    ClientBatchStatus.INVALID: "INVALID",
    ClientBatchStatus.PENDING: "PENDING",
}


def _details(status: ClientBatchStatus) -> Json:
    detail: Json = {"reason": status.reason} if status.reason else {}
    # Execution of a batch ends at its first invalid transaction.
    for invalid in list(status.invalid_transactions)[:1]:
        detail["transaction_id"] = invalid.transaction_id
        detail["message"] = invalid.message
        detail["extended_data"] = invalid.extended_data
    for name in ("family_name", "family_version", "dependency", "message"):
        value = getattr(status, name)
        if value:
            detail[name] = value
    if status.omitted_bytes:
        detail["omitted_bytes"] = status.omitted_bytes
    return detail
