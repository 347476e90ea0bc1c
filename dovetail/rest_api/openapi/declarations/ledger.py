"""The declarations of the paths that submit batches and read the ledger.

The handlers are in ``handlers.batches`` and ``handlers.resources``, the schemas of the answers in ``openapi.schemas``.
``document`` replaces ``{name}`` by the limit of that name.
"""

from typing import Final

from dovetail.rest_api.answers.pieces import Json
from dovetail.rest_api.errors import Problem
from dovetail.rest_api.handlers.batches import get_batch_status, post_batch_status, post_batches
from dovetail.rest_api.handlers.resources import (
    get_batch,
    get_batches,
    get_block,
    get_blocks,
    get_state,
    get_state_at,
    get_transaction,
    get_transactions,
)
from dovetail.rest_api.openapi.declarations import examples, parameters
from dovetail.rest_api.openapi.declarations.endpoint import JSON, Answer, Body, Endpoint, Operation, get_only
from dovetail.rest_api.openapi.declarations.examples import listed, read
from dovetail.rest_api.openapi.declarations.parameters import ASKED, LEAVES, LIST, LISTED, SHOWN

_ORDER: Final = (
    "From the head to genesis; index 0 is the newest. Paging links name the head, so the list stays the same."
)
_IN_ORDER: Final = f"Committed items in the order of their blocks, and inside a block in its order. {_ORDER}"
_WAITED: Final = (Problem.INVALID_WAIT, *ASKED)
_INVALID: Final = examples.INVALID | {"link": examples.STATUS_LINK}


def _page(shape: str, path: str, item: object) -> tuple[Answer]:
    return (Answer(200, "The page.", shape, {"page": listed(path, item)}),)


def _one(shape: str, path: str, data: object, **links: Json) -> tuple[Answer]:
    return (Answer(200, "The resource.", shape, {"one": read(path, data)}, links=links),)


def _as_of(operation: str) -> Json:
    """The OpenAPI link from a block to a list read at that block as the head."""
    return {"operationId": operation, "parameters": {"head": "$response.body#/data/header_signature"}}


_GET_BATCHES: Final = Operation(
    get_batches,
    "Batches",
    "A page of batches",
    _IN_ORDER,
    _page("BatchList", "/batches", examples.BATCH),
    (parameters.ids("batchIds", examples.BATCH_ID), *LIST),
    problems=(Problem.INVALID_ID_QUERY, *LISTED),
)
_POST_BATCHES: Final = Operation(
    post_batches,
    "Batches",
    "Submit batches",
    "All batches of the list are accepted, or none. A batch that is pending or committed has no second effect; a batch"
    " that was INVALID is executed again. After a 503 the batches may have been accepted: submit them again, or ask for"
    " their status. The link names the first {status_ids_max} batches, the most that one request may name.",
    (
        Answer(200, "The wait is over, and not all batches are committed.", "StatusesWithLink", {"invalid": _INVALID}),
        Answer(
            201,
            "All batches are committed. The link leads to them.",
            "LinkOnly",
            {"committed": {"link": examples.link("/batches", ("id", examples.BATCH_ID))}},
        ),
        Answer(
            202,
            "The batches are accepted. The link leads to their status.",
            "LinkOnly",
            {"accepted": {"link": examples.STATUS_LINK}},
        ),
    ),
    (parameters.WAIT, parameters.CALLBACK),
    Body(
        "application/octet-stream",
        "A serialized BatchList (`protos/batch.proto`) of at most {body_bytes_max} bytes.",
        {"type": "string", "contentMediaType": "application/octet-stream"},
    ),
    (
        Problem.BATCHES_INVALID,
        Problem.NO_BATCHES,
        Problem.NOT_DECODABLE,
        Problem.NOT_OCTET_STREAM,
        Problem.TOO_LARGE,
        Problem.QUEUE_FULL,
        *_WAITED,
    ),
    # A write of the validator failed, for example because its disk is full.
    with_status=((503, Problem.UNKNOWN),),
)
_GET_BATCH_STATUS: Final = Operation(
    get_batch_status,
    "Batches",
    "The status of batches",
    "With `wait`, the answer comes when each batch is COMMITTED or INVALID, or when the time is over.",
    (
        Answer(
            200,
            "The status of each id.",
            "StatusesWithLink",
            {"committed": examples.COMMITTED | {"link": examples.STATUS_LINK}, "invalid": _INVALID},
        ),
    ),
    (parameters.STATUS_IDS, parameters.WAIT),
    problems=(Problem.INVALID_ID_QUERY, *_WAITED),
)
_POST_BATCH_STATUS: Final = Operation(
    post_batch_status,
    "Batches",
    "The status of many batches",
    "As GET, for the ids in the body, and without a link.",
    (Answer(200, "The status of each id.", "Statuses", {"pending": examples.PENDING}),),
    (parameters.WAIT,),
    Body(
        JSON,
        "Batch ids. A string without the form of an id has status UNKNOWN.",
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": "{status_ids_max}"},
        [examples.BATCH_ID],
    ),
    (Problem.BAD_STATUS_REQUEST, Problem.NOT_JSON, Problem.TOO_LARGE, *_WAITED),
)

LEDGER: Final = (
    Endpoint("/batches", {"GET": _GET_BATCHES, "POST": _POST_BATCHES}),
    get_only(
        "/batches/{batch_id}",
        get_batch,
        "Batches",
        "One batch",
        "A committed batch, with its transactions.",
        _one("OneBatch", f"/batches/{examples.BATCH_ID}", examples.BATCH),
        (parameters.BATCH_ID, *SHOWN),
        (Problem.BATCH_NOT_FOUND, *ASKED),
    ),
    Endpoint("/batch_status", {"GET": _GET_BATCH_STATUS, "POST": _POST_BATCH_STATUS}),
    get_only(
        "/state",
        get_state,
        "State",
        "A page of leaves",
        "In ascending address order, as of the head or of an older block.",
        _page("LeafList", "/state", examples.LEAF),
        (parameters.PREFIX, *LEAVES),
        (Problem.INVALID_ADDRESS, *LISTED),
    ),
    get_only(
        "/state/{address}",
        get_state_at,
        "State",
        "One leaf, or the leaves under a prefix",
        "With 70 characters, the leaf's bytes; with fewer, a page of the leaves whose addresses begin with them.",
        (
            Answer(
                200,
                "The leaf's bytes, or the page.",
                "OneLeafOrList",
                {
                    "leaf": {
                        "data": examples.LEAF_BYTES,
                        "head": examples.BLOCK_ID,
                        "link": examples.link(f"/state/{examples.ADDRESS}"),
                    },
                    "prefix": listed(f"/state/{examples.ADDRESS[:6]}", examples.LEAF),
                },
            ),
        ),
        (parameters.ADDRESS, *LEAVES),
        (Problem.INVALID_ADDRESS, Problem.STATE_NOT_FOUND, *LISTED),
    ),
    get_only(
        "/blocks",
        get_blocks,
        "Blocks",
        "A page of blocks",
        _ORDER,
        _page("BlockList", "/blocks", examples.BLOCK),
        (parameters.ids("blockIds", examples.BLOCK_ID), *LIST),
        (Problem.INVALID_ID_QUERY, *LISTED),
    ),
    get_only(
        "/blocks/{block_id}",
        get_block,
        "Blocks",
        "One block",
        "A block by its id or number, with its batches.",
        _one("OneBlock", "/blocks/1", examples.BLOCK, chain=_as_of("get_blocks"), state=_as_of("get_state")),
        (parameters.BLOCK, *SHOWN),
        (Problem.BLOCK_NOT_FOUND, *ASKED),
    ),
    get_only(
        "/transactions",
        get_transactions,
        "Transactions",
        "A page of transactions",
        _IN_ORDER,
        _page("TransactionList", "/transactions", examples.TRANSACTION),
        (parameters.ids("transactionIds", examples.TRANSACTION_ID), *LIST),
        (Problem.INVALID_ID_QUERY, *LISTED),
    ),
    get_only(
        "/transactions/{transaction_id}",
        get_transaction,
        "Transactions",
        "One transaction",
        "A committed transaction.",
        _one("OneTransaction", f"/transactions/{examples.TRANSACTION_ID}", examples.TRANSACTION),
        (parameters.TRANSACTION_ID, *SHOWN),
        (Problem.TRANSACTION_NOT_FOUND, *ASKED),
    ),
)
"""The ledger's part of the table of routes."""
