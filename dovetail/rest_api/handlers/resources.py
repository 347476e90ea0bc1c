"""The handlers that read the ledger: lists, and single resources by id, number or address.

``openapi.declarations.ledger`` gives each handler its path, ``answers.views`` makes the JSON, and ``request.queries``
checks the parameters.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message
from starlette.responses import Response

from dovetail.ledger.addresses import ADDRESS_CHARACTERS
from dovetail.ledger.errors import NotDecodable
from dovetail.ledger.ids import is_id
from dovetail.rest_api.answers import views
from dovetail.rest_api.answers.pieces import Json, json_answer, pop_all
from dovetail.rest_api.errors import ApiError, Problem, no_chain
from dovetail.rest_api.request import links
from dovetail.rest_api.request.call import Call
from dovetail.rest_api.request.queries import NUMBER_MAX, Resource, list_request, number, quoted, state_prefix
from protos import client_batch_pb2, client_block_pb2, client_transaction_pb2, query_pb2, state_context_pb2
from protos.validator_pb2 import Message as Envelope

ListResponse = query_pb2.ListResponse


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
    """A page of leaves in ascending order of addresses; with ``address``, of the leaves under that prefix."""
    return await _list(call, Resource.STATE, state_prefix(call.query.first("address") or ""))


async def get_state_at(call: Call) -> Response:
    """The bytes of the leaf at a full address; a page of leaves under a shorter prefix."""
    address = state_prefix(call.path_parameter("address"))
    if len(address) < ADDRESS_CHARACTERS:
        return await _list(call, Resource.STATE, address, found_required=True)
    # The parameters of a page are checked but have no effect: an address names one leaf.
    question = list_request(Resource.STATE, call.query, call.limits, address)
    question.ClearField("min")
    question.ClearField("max")
    question.count = 1
    answer = await _ask_list(call, question)
    if not answer.items:
        raise ApiError(Problem.STATE_NOT_FOUND, f"no leaf at address {address} at block {answer.head_id}")
    try:
        entry = state_context_pb2.TpStateEntry.FromString(answer.items[0])
    except DecodeError:
        raise _undecodable("leaf") from None
    return json_answer({"data": entry.data, "head": answer.head_id, "link": call.link()}, quota=call.answer_quota)


async def get_block(call: Call) -> Response:
    """One block, by its id or number."""
    name = call.path_parameter("block_id")
    index = None if is_id(name) else number(name)
    if is_id(name):
        asked = Envelope.CLIENT_BLOCK_GET_BY_ID_REQUEST
        question = client_block_pb2.ClientBlockGetByIdRequest(block_id=name).SerializeToString()
    elif index is not None and index <= NUMBER_MAX:
        asked = Envelope.CLIENT_BLOCK_GET_BY_NUM_REQUEST
        question = client_block_pb2.ClientBlockGetByNumRequest(block_num=index).SerializeToString()
    else:
        raise ApiError(
            Problem.BLOCK_NOT_FOUND,
            f"{quoted(name)} can be no block id (128 lower-case hex characters) and no block number",
        )
    return await _single(
        call,
        asked,
        question,
        Envelope.CLIENT_BLOCK_GET_RESPONSE,
        client_block_pb2.ClientBlockGetResponse,
        "block",
        lambda answer: views.block(answer.block),
        ApiError(Problem.BLOCK_NOT_FOUND, f"there is no block {name if index is None else index}"),
    )


async def get_batch(call: Call) -> Response:
    batch_id = _id(call.path_parameter("batch_id"), "batch", Problem.BATCH_NOT_FOUND)
    return await _single(
        call,
        Envelope.CLIENT_BATCH_GET_REQUEST,
        client_batch_pb2.ClientBatchGetRequest(batch_id=batch_id),
        Envelope.CLIENT_BATCH_GET_RESPONSE,
        client_batch_pb2.ClientBatchGetResponse,
        "batch",
        lambda answer: views.batch(answer.batch),
        ApiError(Problem.BATCH_NOT_FOUND, f"there is no committed batch {batch_id}"),
    )


async def get_transaction(call: Call) -> Response:
    transaction_id = _id(call.path_parameter("transaction_id"), "transaction", Problem.TRANSACTION_NOT_FOUND)
    return await _single(
        call,
        Envelope.CLIENT_TRANSACTION_GET_REQUEST,
        client_transaction_pb2.ClientTransactionGetRequest(transaction_id=transaction_id),
        Envelope.CLIENT_TRANSACTION_GET_RESPONSE,
        client_transaction_pb2.ClientTransactionGetResponse,
        "transaction",
        lambda answer: views.transaction(answer.transaction),
        ApiError(Problem.TRANSACTION_NOT_FOUND, f"there is no committed transaction {transaction_id}"),
    )


SingleT = TypeVar(
    "SingleT",
    client_block_pb2.ClientBlockGetResponse,
    client_batch_pb2.ClientBatchGetResponse,
    client_transaction_pb2.ClientTransactionGetResponse,
)


async def _single(
    call: Call,
    asked: Envelope.MessageType,
    question: bytes | Message,
    answered: Envelope.MessageType,
    response: type[SingleT],
    what: str,
    view: Callable[[SingleT], Json],
    not_found: ApiError,
) -> Response:
    """Ask for one resource and answer with its view. Raises ``not_found``, or ApiError 15 before genesis."""
    answer = await call.ask(asked, question, answered, response)
    if answer.status == response.NO_RESOURCE and not answer.head_id:
        raise no_chain()
    if answer.status in (response.NO_RESOURCE, response.INVALID_ID):
        raise not_found
    if answer.status != response.OK:
        message = f"the validator answered status {answer.status} to a question about one resource"
        raise call.unknown_error(answer.message or message)
    try:
        data = views.text(view(answer), answer.ByteSize())
    except (DecodeError, NotDecodable):
        raise _undecodable(what) from None
    return json_answer({"data": data, "head": answer.head_id, "link": call.link()}, quota=call.answer_quota)


async def _list(call: Call, resource: Resource, address: str = "", *, found_required: bool = False) -> Response:
    question = list_request(resource, call.query, call.limits, address)
    answer = await _ask_list(call, question)
    if found_required and not answer.total_count:
        raise ApiError(Problem.STATE_NOT_FOUND, f"no leaf under {address} at block {answer.head_id}")
    # A client that gave only ``max`` wants the page that ends there, so a page that is too large is cut at its start.
    from_end = bool(question.max) and not question.min
    head_id, start_index, total_count = answer.head_id, answer.start_index, answer.total_count
    raw_items = list(answer.items)
    # The page may be large, so each part is freed as soon as it is not needed.
    del answer
    if not from_end:
        raw_items.reverse()
    raw_count = len(raw_items)
    try:
        items = views.page(map(views.ITEMS[resource], pop_all(raw_items)), call.limits.page_bytes_max)
    except (DecodeError, NotDecodable):
        raise _undecodable("list") from None
    if from_end:
        start_index += raw_count - len(items)
        items.reverse()
    page_links = links.PageLinks(call.base, call.path, call.query, head_id)
    return json_answer(
        {
            "data": (item.text for item in items),
            "head": head_id,
            "link": page_links.this(),
            "paging": page_links.paging(start_index, total_count, len(items), items[-1].key if items else ""),
        },
        quota=call.answer_quota,
    )


_REFUSALS: Final[dict[int, tuple[Problem, str]]] = {
    ListResponse.NOT_READY: (Problem.NOT_READY, "the validator has no genesis block yet"),
    ListResponse.HEAD_NOT_FOUND: (Problem.HEAD_NOT_FOUND, "head names no block"),
    ListResponse.INVALID_PAGING: (Problem.INVALID_PAGING, "min or max names nothing in the list"),
    ListResponse.INVALID_ADDRESS: (Problem.INVALID_ADDRESS, "not a state address"),
}


async def _ask_list(call: Call, question: query_pb2.ListRequest) -> query_pb2.ListResponse:
    answer = await call.ask(Envelope.LIST_REQUEST, question, Envelope.LIST_RESPONSE, ListResponse)
    if answer.status == ListResponse.OK:
        return answer
    if answer.status == ListResponse.INTERNAL_ERROR and answer.message:
        raise call.unknown_error(answer.message)
    if answer.status not in _REFUSALS:
        message = f"the validator answered status {answer.status} to a question for a list: {answer.message}"
        raise call.unknown_error(message)
    problem, message = _REFUSALS[answer.status]
    raise ApiError(problem, answer.message or message)


def _id(text: str, what: str, problem: Problem) -> str:
    if not is_id(text):
        raise ApiError(problem, f"{quoted(text)} can be no {what} id: it is not 128 lower-case hex characters")
    return text


def _undecodable(what: str) -> ApiError:
    return ApiError(Problem.INVALID_RESPONSE, f"the validator's {what} holds a message that cannot be decoded")
