"""The examples of the documentation: resources signed with a public test key, and encoded by the handlers' views."""

from typing import Final

import msgspec

from dovetail.ledger.block import BlockHeader, encode_block, seal
from dovetail.ledger.building import build_batch, build_transaction
from dovetail.ledger.ids import NULL_BLOCK_ID, BatchId, StateRoot
from dovetail.ledger.signing import Signer
from dovetail.rest_api.answers import pieces, views
from dovetail.rest_api.answers.pieces import Json
from dovetail.rest_api.errors import Problem
from dovetail.rest_api.request import links
from protos import batch_pb2, block_pb2

BASE: Final = "http://127.0.0.1:8080"

# The intkey family's address of "apples", its CBOR for "set apples to 5", and the leaf that is stored then, in base64.
ADDRESS: Final = "1cf12668b6714d83dd8cf281d1c4d7154150a27b877f60f9063e9e754ac9321f93a028"
_PAYLOAD: Final = bytes.fromhex("a3644e616d65666170706c65736456657262637365746556616c756505")
LEAF_BYTES: Final = "oWZhcHBsZXMF"

_SIGNER: Final = Signer("5e" * 32)
_TRANSACTION: Final = build_transaction(
    _SIGNER,
    batcher_pubkey=_SIGNER.public_key,
    family_name="intkey",
    family_version="1.0",
    inputs=[ADDRESS],
    outputs=[ADDRESS],
    payload=_PAYLOAD,
    payload_encoding="application/cbor",
    nonce="d1f0c9",
)
_BATCH: Final = build_batch(_SIGNER, [_TRANSACTION])
_BLOCK: Final = seal(
    _SIGNER,
    BlockHeader(
        block_num=1,
        previous_block_id=seal(
            _SIGNER, BlockHeader(0, NULL_BLOCK_ID, _SIGNER.public_key, (), b"solo", StateRoot("0c" * 32)), []
        ).id,
        signer_pubkey=_SIGNER.public_key,
        batch_ids=(BatchId(_BATCH.id),),
        consensus=b"solo",
        state_root_hash=StateRoot("0d51e61f69e8e0ccd0e0bd83a4be0de2a0dc01b2b3fa1d23f4a1d3c58cfa3c16"),
    ),
    [_BATCH.raw],
)

TRANSACTION_ID: Final[str] = _TRANSACTION.id
BATCH_ID: Final[str] = _BATCH.id
BLOCK_ID: Final[str] = _BLOCK.id


def _plain(view: Json) -> object:
    """The view as a client decodes it, with base64 for binary values."""
    return msgspec.json.decode(b"".join(pieces.whole(view).pieces))


BATCH: Final = _plain(views.batch(batch_pb2.Batch.FromString(_BATCH.raw)))
TRANSACTION: Final = _plain(views.transaction(batch_pb2.Batch.FromString(_BATCH.raw).transactions[0]))
BLOCK: Final = _plain(
    views.block(block_pb2.Block.FromString(encode_block(_BLOCK.id, _BLOCK.header_bytes, _BLOCK.batches)))
)
LEAF: Final = {"address": ADDRESS, "data": LEAF_BYTES}


def link(path: str, *pairs: tuple[str, str]) -> str:
    return links.url(BASE, path, pairs)


def single(path: str, data: object) -> dict[str, object]:
    """An answer about the node."""
    return {"data": data, "link": link(path)}


def read(path: str, data: object) -> dict[str, object]:
    """An answer with a head: one resource of the ledger, or the families."""
    return {"data": data, "head": BLOCK_ID, "link": link(path)}


def listed(path: str, item: object, index: int = 0, total: int = 2) -> dict[str, object]:
    """An answer with a page of one item."""
    head = ("head", BLOCK_ID)
    paging: dict[str, object] = {"start_index": index, "total_count": total}
    if index + 1 < total:
        paging["next"] = link(path, head, ("count", "1"), ("min", str(index + 1)))
    return {"data": [item], "head": BLOCK_ID, "link": link(path, head, ("count", "1")), "paging": paging}


STATUS_LINK: Final = link("/batch_status", ("id", BATCH_ID))
COMMITTED: Final = {"data": {BATCH_ID: "COMMITTED"}}
PENDING: Final = {"data": {BATCH_ID: "PENDING"}, "details": {BATCH_ID: {"reason": "queued"}}}
INVALID: Final = {
    "data": {BATCH_ID: "INVALID"},
    "details": {
        BATCH_ID: {
            "reason": "invalid_transaction",
            "transaction_id": TRANSACTION_ID,
            "message": "the name 'apples' is set already",
            "extended_data": "",
        }
    },
}

MESSAGES: Final[dict[Problem, str]] = {
    Problem.UNKNOWN: "a bug in the REST API; its log holds request 5bd6d1a3c0f2",
    Problem.NOT_READY: "the validator has no genesis block yet",
    Problem.TIMED_OUT: "the validator gave no answer within 300 seconds",
    Problem.DISCONNECTED: "no connection to the validator at tcp://127.0.0.1:4004; the REST API reconnects by itself",
    Problem.INVALID_RESPONSE: "the validator's answer of 17 bytes is no ListResponse",
    Problem.BATCHES_INVALID: f"batch {BATCH_ID}: the signature does not match signer_pubkey",
    Problem.QUEUE_FULL: "20000 of 20000 batches are pending",
    Problem.NO_BATCHES: "the body is empty",
    Problem.NOT_DECODABLE: "the bytes are no BatchList (5 bytes)",
    Problem.TOO_LARGE: "the body has 9000000 bytes; at most 8388608 bytes are taken",
    Problem.NOT_OCTET_STREAM: "the content type is 'text/plain'; it must be application/octet-stream, and the body a"
    " serialized BatchList",
    Problem.NOT_JSON: "the content type is 'text/plain'; it must be application/json, and the body an array of batch"
    " ids",
    Problem.BAD_STATUS_REQUEST: "the body holds 0 ids; 1 to 1000 are allowed",
    Problem.HEAD_NOT_FOUND: "head names no block: 4711",
    Problem.INVALID_COUNT: "count is '0', not a positive integer",
    Problem.INVALID_PAGING: "min 7 names nothing in the list: it has 2 items",
    Problem.INVALID_WAIT: "wait is '-1': a negative number of seconds",
    Problem.INVALID_ADDRESS: "'1cf' (3 characters) is not an even number of lower-case hex characters, 0 to 70",
    Problem.INVALID_ID_QUERY: "the query parameter id is absent",
    Problem.BLOCK_NOT_FOUND: "there is no block 4711",
    Problem.BATCH_NOT_FOUND: "'apples' can be no batch id: it is not 128 lower-case hex characters",
    Problem.TRANSACTION_NOT_FOUND: f"there is no committed transaction {BATCH_ID}",
    Problem.STATE_NOT_FOUND: f"no leaf at address {ADDRESS} at block {BLOCK_ID}",
    Problem.BAD_REQUEST: "this is no HTTP/1.1 request, or its head has over 197536 bytes",
    Problem.PATH_NOT_FOUND: "there is no '/block'",
    Problem.METHOD_NOT_ALLOWED: "'DELETE' is not a method of '/blocks'; allowed: GET, HEAD, OPTIONS",
    Problem.REQUEST_TIMEOUT: "the request did not arrive whole within 60 seconds",
}
"""An example message for each problem."""
