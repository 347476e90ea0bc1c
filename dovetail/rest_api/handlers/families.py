"""The handler of /status/families: each family's permission, migration, processors and pending batches.

The validator has the values; only their JSON is made here.
"""

from typing import Final

from starlette.responses import Response

from dovetail.rest_api.answers.pieces import Json, json_answer
from dovetail.rest_api.errors import ApiError, Problem, no_chain
from dovetail.rest_api.request.call import Call
from protos import node_pb2
from protos.validator_pb2 import Message as Envelope

_Status = node_pb2.NodeStatusResponse.Status
_Family = node_pb2.FamilyStatus
_PERMISSIONS: Final[dict[int, str]] = {
    _Family.PERMITTED: "permitted",
    _Family.WAITING: "waiting",
    _Family.ENDED: "ended",
    _Family.NOT_PERMITTED: "not_permitted",
}
_MIGRATIONS: Final[dict[int, str]] = {
    _Family.NONE: "none",
    _Family.DUE: "due",
    _Family.DONE: "done",
    _Family.REFUSED: "refused",
}


async def get_status_families(call: Call) -> Response:
    """Every family in the validator's answer. Raises as ``Call.ask``, and ApiError 15 before genesis."""
    answer = await call.ask(
        Envelope.FAMILIES_REQUEST, node_pb2.FamiliesRequest(), Envelope.FAMILIES_RESPONSE, node_pb2.FamiliesResponse
    )
    if answer.status == _Status.NOT_READY:
        raise no_chain()
    if answer.status != _Status.OK:
        raise ApiError(Problem.INVALID_RESPONSE, f"the validator answered status {answer.status} about its families")
    data = {
        "head_num": answer.head_num,
        "restricted": answer.restricted,
        "timestamp": answer.timestamp,
        "families": [_family(family) for family in answer.families],
    }
    return json_answer({"data": data, "head": answer.head_id, "link": call.link()})


def _family(family: node_pb2.FamilyStatus) -> Json:
    if family.permission not in _PERMISSIONS or family.migration not in _MIGRATIONS:
        raise ApiError(
            Problem.INVALID_RESPONSE,
            f"the validator answered permission {family.permission}, migration {family.migration} of a family",
        )
    view: Json = {
        "family_name": family.family_name,
        "family_version": family.family_version,
        "permission": _PERMISSIONS[family.permission],
    }
    for name in ("from_block", "until_block"):
        if family.HasField(name):
            view[name] = getattr(family, name)
    view |= {"migrates": list(family.migrates), "migration": _MIGRATIONS[family.migration]}
    if family.migration_message:
        view["migration_message"] = family.migration_message
    return view | {
        "processors": family.processors,
        "migrating_processors": family.migrating_processors,
        "pending": {entry.reason: entry.batches for entry in family.pending},
    }
