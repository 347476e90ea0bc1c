"""Every path of the API and what answers it: the table, and the handlers that read.

Handing in batches and asking for their status stands in ``batches``, the shapes in ``views``, the server in ``app``.
"""

from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError
from msgspec import Raw
from starlette.responses import Response

from ledger.addresses import ADDRESS_CHARACTERS
from ledger.errors import NotDecodable
from ledger.ids import is_id
from protos import client_batch_pb2, client_block_pb2, client_transaction_pb2, query_pb2, state_context_pb2
from rest_api import links, views
from rest_api.batches import get_batch_status, post_batch_status, post_batches, unknown_error
from rest_api.call import Call, MessageType, json_response
from rest_api.errors import ApiError, Problem
from rest_api.queries import NUMBER_MAX, Resource, head_name, list_request, number, shown, state_prefix

Handler = Callable[[Call], Awaitable[Response]]
ListResponse = query_pb2.ListResponse


class Endpoint(NamedTuple):
    """One path (``{name}`` stands for a part of it) and its handlers by method. HEAD and OPTIONS follow from them."""

    path: str
    handlers: Mapping[str, Handler]


def _installed_version() -> str:
    try:
        return version("dovetail")
    except PackageNotFoundError:
        return "unknown (not installed)"


_VERSION: Final = _installed_version()


async def get_root(call: Call) -> Response:
    """The service's name and version."""
    data = {"name": "Dovetail REST API", "version": _VERSION}
    return json_response({"data": data, "link": call.link()})


async def get_blocks(call: Call) -> Response:
    """A page of blocks, from the head to genesis."""
    return await _list(call, Resource.BLOCKS)


async def get_batches(call: Call) -> Response:
    """A page of batches, in the order of their blocks."""
    return await _list(call, Resource.BATCHES)


async def get_transactions(call: Call) -> Response:
    """A page of transactions, in the order of their blocks."""
    return await _list(call, Resource.TRANSACTIONS)


async def get_state(call: Call) -> Response:
    """A page of leaves in ascending address order, of those under ``address`` when it is given."""
    return await _list(call, Resource.STATE, state_prefix(call.query.first("address") or ""))


async def get_state_at(call: Call) -> Response:
    """The bytes of one leaf; for a shorter prefix a page of the leaves under it."""
    address = state_prefix(call.named("address"))
    if len(address) < ADDRESS_CHARACTERS:
        return await _list(call, Resource.STATE, address, found_required=True)
    question = query_pb2.ListRequest(resource=Resource.STATE, head=head_name(call.query), address=address, count=1)
    answer = await _ask_list(call, question)
    if not answer.items:
        raise ApiError(Problem.STATE_NOT_FOUND, f"no leaf at address {address} at block {answer.head_id}")
    try:
        entry = state_context_pb2.TpStateEntry.FromString(answer.items[0])
    except DecodeError:
        raise _not_readable("leaf") from None
    return json_response({"data": entry.data, "head": answer.head_id, "link": call.link()})


async def get_block(call: Call) -> Response:
    """One block, by its id or number."""
    named = call.named("block_id")
    index = None if is_id(named) else number(named)
    if is_id(named):
        asked = MessageType.CLIENT_BLOCK_GET_BY_ID_REQUEST
        question = client_block_pb2.ClientBlockGetByIdRequest(block_id=named).SerializeToString()
    elif index is not None and index <= NUMBER_MAX:
        asked = MessageType.CLIENT_BLOCK_GET_BY_NUM_REQUEST
        question = client_block_pb2.ClientBlockGetByNumRequest(block_num=index).SerializeToString()
    else:
        raise ApiError(
            Problem.BLOCK_NOT_FOUND,
            f"{shown(named)} can be no block id (128 lower-case hex characters) and no block number",
        )
    response = client_block_pb2.ClientBlockGetResponse
    answer = await call.ask(asked, question, MessageType.CLIENT_BLOCK_GET_RESPONSE, response)
    if answer.status in (response.NO_RESOURCE, response.INVALID_ID):
        raise ApiError(Problem.BLOCK_NOT_FOUND, f"there is no block {named if index is None else index}")
    if answer.status != response.OK:
        raise unknown_error(call, f"status {answer.status} to a question about block {named[:128]}")
    return _single(call, "block", lambda: views.block(answer.block))


async def get_batch(call: Call) -> Response:
    """One committed batch."""
    batch_id = _id(call.named("batch_id"), "batch", Problem.BATCH_NOT_FOUND)
    response = client_batch_pb2.ClientBatchGetResponse
    answer = await call.ask(
        MessageType.CLIENT_BATCH_GET_REQUEST,
        client_batch_pb2.ClientBatchGetRequest(batch_id=batch_id),
        MessageType.CLIENT_BATCH_GET_RESPONSE,
        response,
    )
    if answer.status in (response.NO_RESOURCE, response.INVALID_ID):
        raise ApiError(Problem.BATCH_NOT_FOUND, f"there is no committed batch {batch_id}")
    if answer.status != response.OK:
        raise unknown_error(call, f"status {answer.status} to a question about batch {batch_id}")
    return _single(call, "batch", lambda: views.batch(answer.batch))


async def get_transaction(call: Call) -> Response:
    """One committed transaction."""
    transaction_id = _id(call.named("transaction_id"), "transaction", Problem.TRANSACTION_NOT_FOUND)
    response = client_transaction_pb2.ClientTransactionGetResponse
    answer = await call.ask(
        MessageType.CLIENT_TRANSACTION_GET_REQUEST,
        client_transaction_pb2.ClientTransactionGetRequest(transaction_id=transaction_id),
        MessageType.CLIENT_TRANSACTION_GET_RESPONSE,
        response,
    )
    if answer.status in (response.NO_RESOURCE, response.INVALID_ID):
        raise ApiError(Problem.TRANSACTION_NOT_FOUND, f"there is no committed transaction {transaction_id}")
    if answer.status != response.OK:
        raise unknown_error(call, f"status {answer.status} to a question about transaction {transaction_id}")
    return _single(call, "transaction", lambda: views.transaction(answer.transaction))


ENDPOINTS: Final = (
    Endpoint("/", {"GET": get_root}),
    Endpoint("/batches", {"GET": get_batches, "POST": post_batches}),
    Endpoint("/batches/{batch_id}", {"GET": get_batch}),
    Endpoint("/batch_status", {"GET": get_batch_status, "POST": post_batch_status}),
    Endpoint("/state", {"GET": get_state}),
    Endpoint("/state/{address}", {"GET": get_state_at}),
    Endpoint("/blocks", {"GET": get_blocks}),
    Endpoint("/blocks/{block_id}", {"GET": get_block}),
    Endpoint("/transactions", {"GET": get_transactions}),
    Endpoint("/transactions/{transaction_id}", {"GET": get_transaction}),
)


async def _list(call: Call, resource: Resource, address: str = "", *, found_required: bool = False) -> Response:
    question = list_request(resource, call.query, call.limits, address)
    answer = await _ask_list(call, question)
    if found_required and not answer.total_count:
        raise ApiError(Problem.STATE_NOT_FOUND, f"no leaf under {address} at block {answer.head_id}")
    # A page that was asked for by its end keeps its end where it must be cut.
    from_end = bool(question.max) and not question.min
    raw_items = list(reversed(answer.items)) if from_end else list(answer.items)
    try:
        items = views.page(map(views.ITEMS[resource], raw_items), call.limits.page_bytes_max)
    except (DecodeError, NotDecodable):
        raise _not_readable("list") from None
    start_index = answer.start_index
    if from_end:
        start_index += len(raw_items) - len(items)
        items.reverse()
    page_links = links.PageLinks(call.base, call.path, call.query, answer.head_id)
    return json_response(
        {
            "data": [Raw(item.text) for item in items],
            "head": answer.head_id,
            "link": page_links.this(),
            "paging": page_links.paging(start_index, answer.total_count, len(items), items[-1].key if items else ""),
        }
    )


_REFUSALS: Final[dict[int, tuple[Problem, str]]] = {
    ListResponse.NOT_READY: (Problem.NOT_READY, "the validator has no genesis block yet"),
    ListResponse.HEAD_NOT_FOUND: (Problem.HEAD_NOT_FOUND, "head names no block"),
    ListResponse.INVALID_PAGING: (Problem.INVALID_PAGING, "min or max names nothing in the list"),
    ListResponse.INVALID_ADDRESS: (Problem.INVALID_ADDRESS, "not a state address"),
}


async def _ask_list(call: Call, question: query_pb2.ListRequest) -> query_pb2.ListResponse:
    answer = await call.ask(MessageType.LIST_REQUEST, question, MessageType.LIST_RESPONSE, ListResponse)
    if answer.status == ListResponse.OK:
        return answer
    if answer.status not in _REFUSALS:
        raise unknown_error(call, f"status {answer.status} to a question for a list: {answer.message}")
    problem, message = _REFUSALS[answer.status]
    raise ApiError(problem, answer.message or message)


def _id(text: str, what: str, problem: Problem) -> str:
    if not is_id(text):
        raise ApiError(problem, f"{shown(text)} can be no {what} id: it is not 128 lower-case hex characters")
    return text


def _single(call: Call, what: str, view: Callable[[], views.Json]) -> Response:
    try:
        data = view()
    except (DecodeError, NotDecodable):
        raise _not_readable(what) from None
    return json_response({"data": data, "link": call.link()})


def _not_readable(what: str) -> ApiError:
    return ApiError(Problem.INVALID_RESPONSE, f"the validator's {what} holds a message that cannot be decoded")
