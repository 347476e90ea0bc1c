"""The handlers that submit batches and read their status: POST /batches, GET and POST /batch_status.

The validator alone parses the body of POST /batches. Nothing is stored here.
"""

import asyncio
from typing import Final

import msgspec
from starlette.responses import Response

from dovetail.ledger.ids import is_id
from dovetail.ledger.status_details import DetailRoom
from dovetail.rest_api.answers import views
from dovetail.rest_api.answers.pieces import json_answer
from dovetail.rest_api.answers.views import ClientBatchStatus
from dovetail.rest_api.errors import ApiError, Problem
from dovetail.rest_api.request import links
from dovetail.rest_api.request.call import Call
from protos import client_batch_submit_pb2
from protos.validator_pb2 import Message as Envelope

Submitted = client_batch_submit_pb2.ClientBatchSubmitResponse
StatusRequest = client_batch_submit_pb2.ClientBatchStatusRequest
StatusResponse = client_batch_submit_pb2.ClientBatchStatusResponse

_INVALID = {
    "no_batches": Problem.NO_BATCHES,
    "not_decodable": Problem.NOT_DECODABLE,
    "batch_not_decodable": Problem.NOT_DECODABLE,
    "transaction_not_decodable": Problem.NOT_DECODABLE,
    "too_large": Problem.TOO_LARGE,
}

_BYTES_BASE: Final = 64 * 1024
_ID_BYTES: Final = 256
"""What a POST /batch_status may use for one id, with its quotes and white space, above ``_BYTES_BASE``."""


async def post_batches(call: Call) -> Response:
    """Submit a BatchList, all or nothing.

    Answers 202. With ``wait``, answers 201 if all batches are committed, else 200 with their statuses. The link
    names the first ``limits.status_ids_max`` batches, the most that GET /batch_status accepts.
    """
    if call.media_type != "application/octet-stream":
        raise ApiError(
            Problem.NOT_OCTET_STREAM, _wrong_type(call.media_type, "application/octet-stream", "a serialized BatchList")
        )
    wait_s = call.wait_s()
    body = await call.body(call.limits.body_bytes_max)
    if not body:
        raise ApiError(Problem.NO_BATCHES, "the body is empty")
    answer = await call.ask(
        Envelope.CLIENT_BATCH_SUBMIT_REQUEST, body, Envelope.CLIENT_BATCH_SUBMIT_RESPONSE, Submitted
    )
    # The wait may be long and does not need the body.
    del body
    if answer.status != Submitted.OK:
        raise _refusal(call, answer)
    ids = list(dict.fromkeys(answer.batch_ids))
    if not ids:
        raise ApiError(Problem.INVALID_RESPONSE, "the validator accepted the batches without naming their ids")
    named = [("id", ",".join(ids[: call.limits.status_ids_max]))]
    if not wait_s:
        return json_answer({"link": links.url(call.base, "/batch_status", named)}, 202)
    found = await _statuses(call, ids, wait_s)
    if any(batch_id not in found or found[batch_id].status != ClientBatchStatus.COMMITTED for batch_id in ids):
        return json_answer(views.statuses(ids, found) | {"link": links.url(call.base, "/batch_status", named)})
    return json_answer({"link": links.url(call.base, "/batches", named)}, 201)


async def get_batch_status(call: Call) -> Response:
    """The statuses of the batches in the query; with ``wait``, once each is COMMITTED or INVALID."""
    ids = call.query.ids(call.limits.status_ids_max)
    if ids is None:
        raise ApiError(Problem.INVALID_ID_QUERY, "the query parameter id is absent")
    wait_s = call.wait_s()
    return json_answer(views.statuses(ids, await _statuses(call, ids, wait_s)) | {"link": call.link()})


async def post_batch_status(call: Call) -> Response:
    """The statuses of the batches that a JSON array names. The answer has no link."""
    if call.media_type != "application/json":
        raise ApiError(Problem.NOT_JSON, _wrong_type(call.media_type, "application/json", "an array of batch ids"))
    wait_s = call.wait_s()
    # Decoding is one step of the event loop.
    bytes_max = min(call.limits.body_bytes_max, _BYTES_BASE + call.limits.status_ids_max * _ID_BYTES)
    ids = _decode_ids(await call.body(bytes_max), call.limits.status_ids_max)
    return json_answer(views.statuses(ids, await _statuses(call, ids, wait_s)))


async def _statuses(call: Call, ids: list[str], wait_s: int) -> dict[str, ClientBatchStatus]:
    """Ask the validator for the statuses by id; a wait ends early if the client disconnects."""
    asking = _ask_statuses(call, ids, wait_s)
    return await (call.unless_disconnected(asking) if wait_s else asking)


async def _ask_statuses(call: Call, ids: list[str], wait_s: int) -> dict[str, ClientBatchStatus]:
    """The status of each id; strings that do not have the form of an id are not sent.

    More than ``limits.status_ids_max`` ids need several requests, one after the other, within ``wait_s`` seconds.
    """
    room = DetailRoom(call.limits.page_bytes_max)
    found = {batch_id: views.not_an_id() for batch_id in ids if not is_id(batch_id)}
    askable = [batch_id for batch_id in ids if batch_id not in found]
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
            message = f"the validator answered status {answer.status} to a question about {len(part)} batches"
            raise call.unknown_error(answer.message or message)
        found |= {status.batch_id: room.fit(status) for status in answer.batch_statuses}
    return found


def _refusal(call: Call, answer: Submitted) -> ApiError:
    message = answer.message or answer.reason or f"status {answer.status} and no reason"
    if answer.status == Submitted.INVALID_BATCH:
        return ApiError(_INVALID.get(answer.reason, Problem.BATCHES_INVALID), message)
    if answer.status == Submitted.QUEUE_FULL:
        return ApiError(Problem.QUEUE_FULL, message)
    if answer.reason == "not_ready":
        return ApiError(Problem.NOT_READY, message)
    if answer.reason == "storage_failed":
        return ApiError(Problem.UNKNOWN, message, status=503)
    return call.unknown_error(f"the validator answered {message}")


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
