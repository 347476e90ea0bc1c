"""Handing in batches and asking what became of them: POST /batches, GET and POST /batch_status.

The body travels on as it came: whether it is good is the validator's to say. Nothing is kept here.
"""

import asyncio
from typing import Final, NoReturn

import msgspec
from starlette.responses import Response

from dovetail.ledger.ids import is_id
from dovetail.rest_api.answers import views
from dovetail.rest_api.answers.pieces import json_answer
from dovetail.rest_api.answers.views import ClientBatchStatus
from dovetail.rest_api.errors import ApiError, Problem
from dovetail.rest_api.request import links
from dovetail.rest_api.request.call import Call
from protos import client_batch_submit_pb2
from protos.validator_pb2 import Message as Envelope

SubmitRequest = client_batch_submit_pb2.ClientBatchSubmitRequest
Submitted = client_batch_submit_pb2.ClientBatchSubmitResponse
StatusRequest = client_batch_submit_pb2.ClientBatchStatusRequest
StatusResponse = client_batch_submit_pb2.ClientBatchStatusResponse

_WAITS: Final = SubmitRequest(waits=True).SerializeToString()
"""In front of a body, as fields may be: what is no BatchList stays none."""

_SMALL_BYTES_MAX: Final = 64 * 1024
"""A larger body is not copied for it: its batches are many, or long on their way."""

_INVALID = {
    "no_batches": Problem.NO_BATCHES,
    "not_decodable": Problem.NOT_DECODABLE,
    "batch_not_decodable": Problem.NOT_DECODABLE,
    "transaction_not_decodable": Problem.NOT_DECODABLE,
    "too_large": Problem.TOO_LARGE,
}


async def post_batches(call: Call) -> Response:
    """Accept all batches of a BatchList or none: 202, or with ``wait`` 201 (all committed) or 200 (how they stand).

    The link names the first ``limits.status_ids_max`` batches: one with more could not be followed.
    """
    if call.media_type != "application/octet-stream":
        raise ApiError(
            Problem.NOT_OCTET_STREAM, _wrong_type(call.media_type, "application/octet-stream", "a serialized BatchList")
        )
    wait_s = call.wait_s()
    body = await call.body()
    if not body:
        raise ApiError(Problem.NO_BATCHES, "the body is empty")
    if wait_s and len(body) <= min(_SMALL_BYTES_MAX, call.limits.body_bytes_max - len(_WAITS)):
        body = _WAITS + body
    answer = await call.ask(
        Envelope.CLIENT_BATCH_SUBMIT_REQUEST, body, Envelope.CLIENT_BATCH_SUBMIT_RESPONSE, Submitted
    )
    # A wait may be long, and the validator has it.
    del body
    if answer.status != Submitted.OK:
        _refuse(call, answer)
    ids = list(dict.fromkeys(answer.batch_ids))
    if not ids:
        raise ApiError(Problem.INVALID_RESPONSE, "the validator accepted the batches without naming their ids")
    # No question may name more.
    named = [("id", ",".join(ids[: call.limits.status_ids_max]))]
    if not wait_s:
        return json_answer({"link": links.url(call.base, "/batch_status", named)}, 202)
    if not answer.committed:
        told = await _statuses(call, ids, wait_s)
        if any(batch_id not in told or told[batch_id].status != ClientBatchStatus.COMMITTED for batch_id in ids):
            return json_answer(views.statuses(ids, told) | {"link": links.url(call.base, "/batch_status", named)})
    return json_answer({"link": links.url(call.base, "/batches", named)}, 201)


async def get_batch_status(call: Call) -> Response:
    """How the batches named in the query stand; with ``wait`` once each is COMMITTED or INVALID."""
    ids = call.query.ids(call.limits.status_ids_max)
    if ids is None:
        raise ApiError(Problem.INVALID_ID_QUERY, "the query parameter id is absent")
    wait_s = call.wait_s()
    told = await _statuses(call, ids, wait_s)
    return json_answer(views.statuses(ids, told) | {"link": call.link()})


async def post_batch_status(call: Call) -> Response:
    """The same for the ids of a JSON array in the body; without a link."""
    if call.media_type != "application/json":
        raise ApiError(Problem.NOT_JSON, _wrong_type(call.media_type, "application/json", "an array of batch ids"))
    wait_s = call.wait_s()
    ids = _decode_ids(await call.body(), call.limits.status_ids_max)
    told = await _statuses(call, ids, wait_s)
    return json_answer(views.statuses(ids, told))


async def _statuses(call: Call, ids: list[str], wait_s: int) -> dict[str, ClientBatchStatus]:
    asking = _ask_statuses(call, ids, wait_s)
    return await (call.unless_gone(asking) if wait_s else asking)


async def _ask_statuses(call: Call, ids: list[str], wait_s: int) -> dict[str, ClientBatchStatus]:
    """What the validator says of each id; strings that can be no id are not sent.

    A list of batches may hold more ids than one question: then one is asked after the other, in the time that is left.
    """
    told = {batch_id: views.not_an_id() for batch_id in ids if not is_id(batch_id)}
    askable = [batch_id for batch_id in ids if batch_id not in told]
    clock = asyncio.get_running_loop().time
    end = clock() + wait_s
    for start in range(0, len(askable), call.limits.status_ids_max):
        part = askable[start : start + call.limits.status_ids_max]
        left_s = wait_s if start == 0 else max(0, round(end - clock()))
        answer = await call.ask(
            Envelope.CLIENT_BATCH_STATUS_REQUEST,
            StatusRequest(batch_ids=part, wait=left_s > 0, timeout=left_s),
            Envelope.CLIENT_BATCH_STATUS_RESPONSE,
            StatusResponse,
            wait_s=left_s,
        )
        if answer.status not in (StatusResponse.OK, StatusResponse.NO_RESOURCE):
            if answer.message:
                raise said_why(call, answer.message)
            raise unknown_error(call, f"status {answer.status} to a question about {len(part)} batches")
        told |= {status.batch_id: status for status in answer.batch_statuses}
    return told


def unknown_error(call: Call, answered: str) -> ApiError:
    """Code 10 for an answer that nothing in this request accounts for."""
    return ApiError(Problem.UNKNOWN, f"the validator answered {answered} (request {call.request_id})")


def said_why(call: Call, message: str) -> ApiError:
    """Code 10 of a validator that cannot answer, in its own words."""
    return ApiError(Problem.UNKNOWN, f"{message} (request {call.request_id})")


def _refuse(call: Call, answer: Submitted) -> NoReturn:
    if answer.status == Submitted.INVALID_BATCH:
        raise ApiError(_INVALID.get(answer.reason, Problem.BATCHES_INVALID), _said(answer))
    if answer.status == Submitted.QUEUE_FULL:
        raise ApiError(Problem.QUEUE_FULL, _said(answer))
    if answer.reason == "not_ready":
        raise ApiError(Problem.NOT_READY, _said(answer))
    if answer.reason == "storage_failed":
        raise ApiError(Problem.UNKNOWN, _said(answer), status=503)
    raise unknown_error(call, _said(answer))


def _said(answer: Submitted) -> str:
    return answer.message or answer.reason or f"status {answer.status} and no reason"


def _wrong_type(found: str, wanted: str, content: str) -> str:
    return f"the content type is {found[:100]!r}; it must be {wanted}, and the body {content}"


def _decode_ids(body: bytes, ids_max: int) -> list[str]:
    try:
        ids = msgspec.json.decode(body, type=list[str])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ApiError(Problem.BAD_STATUS_REQUEST, f"the body is no JSON array of id strings: {error}") from None
    if not 1 <= len(ids) <= ids_max:
        raise ApiError(Problem.BAD_STATUS_REQUEST, f"the body holds {len(ids)} ids; 1 to {ids_max} are allowed")
    return list(dict.fromkeys(ids))
