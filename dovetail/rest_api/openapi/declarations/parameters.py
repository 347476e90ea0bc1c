"""The parameters that declarations share, and the problems that several operations have.

``request.queries`` checks the parameters that are described here. ``document`` replaces ``{name}`` by the limit of that
name.
"""

from typing import Final

from dovetail.rest_api.answers.pieces import Json
from dovetail.rest_api.errors import Problem
from dovetail.rest_api.openapi.declarations import examples
from dovetail.rest_api.openapi.declarations.endpoint import Parameter
from dovetail.rest_api.openapi.schemas import shapes

_ID: Final = "[0-9a-f]{128}"
_NUMBER: Final = "[0-9]+"


def _text(**more: object) -> Json:
    return {"type": "string", **more}


def _query(name: str, description: str, schema: Json, /, **example: object) -> Parameter:
    return Parameter(name, "query", description, schema, example)


def _reserved(name: str, description: str) -> Parameter:
    return Parameter(
        name, "query", f"Reserved: accepted, and without effect. {description}", _text(), {}, reserved=True
    )


HEAD: Final = _query(
    "head",
    "The id or number of the block at which the ledger is read. The answer's head is that block's id.",
    _text(pattern=f"^({_ID}|{_NUMBER})$"),
    number="0",
)
COUNT: Final = _query(
    "count",
    "The number of items of a page: {page_items_default} by default, {page_items_max} at most; fewer if the page would"
    " exceed {page_bytes_max} bytes.",
    {"type": "integer", "minimum": 1},
    one=1,
)
_ITEM: Final = f"^({_ID}|{_NUMBER})$"
_LEAF: Final = f"^([0-9a-f]{{70}}|{_NUMBER})$"
_MIN: Final = "The first item, by index or {}, inclusive."
_MAX: Final = "The last item, by index or {}, inclusive. Without min: the page that ends with this item."
MIN: Final = _query("min", _MIN.format("id"), _text(pattern=_ITEM))
MAX: Final = _query("max", _MAX.format("id"), _text(pattern=_ITEM))
MIN_LEAF: Final = _query("min", _MIN.format("address"), _text(pattern=_LEAF))._replace(key="minLeaf")
MAX_LEAF: Final = _query("max", _MAX.format("address"), _text(pattern=_LEAF))._replace(key="maxLeaf")
_IDS: Final = _text(pattern="[^,]")


def ids(key: str, example: str) -> Parameter:
    """The parameter that filters a list of blocks, batches or transactions by id."""
    text = (
        "Only these items, in this order: at most {status_ids_max} ids, separated by commas. Unknown ids are left out."
    )
    return _query("id", text, _IDS, one=example)._replace(key=key)


STATUS_IDS: Final = _query(
    "id",
    "Batch ids, separated by commas, at most {status_ids_max}. Use POST for more than 15.",
    _IDS,
    one=examples.BATCH_ID,
)._replace(required=True, key="statusIds")
PREFIX: Final = _query(
    "address",
    "Only leaves whose address begins with this prefix.",
    shapes.ref("AddressOrPrefix"),
    namespace=examples.ADDRESS[:6],
)._replace(key="prefix")
WAIT: Final = _query(
    "wait",
    "Seconds to wait until every batch is committed or invalid. Absent, `false` or 0: no wait. Empty, or any other"
    " text: a little less than the API's own timeout of {timeout_s} seconds.",
    _text(**{"not": {"pattern": "^-[0-9]*[1-9][0-9]*$"}}),
    seconds="1",
    none="false",
)
SORT: Final = _reserved("sort", "The field to sort by; a leading minus reverses the order.")
FIELDS: Final = _reserved("fields", "Fields to include, separated by commas.")
OMIT: Final = _reserved("omit", "Fields to leave out, separated by commas.")
CALLBACK: Final = _reserved("callback", "A URL to call.")

BATCH_ID: Final = Parameter(
    "batch_id", "path", "A batch id.", shapes.ref("Id"), {"committed": examples.BATCH_ID}, required=True
)
TRANSACTION_ID: Final = Parameter(
    "transaction_id",
    "path",
    "A transaction id.",
    shapes.ref("Id"),
    {"committed": examples.TRANSACTION_ID},
    required=True,
)
BLOCK: Final = Parameter(
    "block_id",
    "path",
    "A block id, or a block number.",
    _text(pattern=f"^({_ID}|{_NUMBER})$"),
    {"genesis": "0", "id": examples.BLOCK_ID},
    required=True,
)
ADDRESS: Final = Parameter(
    "address",
    "path",
    "A leaf's address, or a prefix of leaves.",
    _text(pattern="^([0-9a-f]{2}){1,35}$"),
    {"leaf": examples.ADDRESS, "prefix": examples.ADDRESS[:6]},
    required=True,
)

SHOWN: Final = (FIELDS, OMIT)
LIST: Final = (HEAD, COUNT, MIN, MAX, SORT, *SHOWN)
LEAVES: Final = (HEAD, COUNT, MIN_LEAF, MAX_LEAF, SORT, *SHOWN)

ALWAYS: Final = (Problem.BAD_REQUEST, Problem.REQUEST_TIMEOUT, Problem.UNKNOWN)
"""The problems of every operation: no valid request, an incomplete request, a bug."""
ASKED: Final = (Problem.NOT_READY, Problem.TIMED_OUT, Problem.DISCONNECTED, Problem.INVALID_RESPONSE)
"""The problems of every operation that asks the validator."""
LISTED: Final = (Problem.HEAD_NOT_FOUND, Problem.INVALID_COUNT, Problem.INVALID_PAGING, *ASKED)
"""The problems of every operation that reads a list."""
