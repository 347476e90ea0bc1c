"""Whether this process lives and whether it can serve: /healthz and /readyz, for whoever starts and balances processes.

A process that is alive but not ready wants traffic elsewhere, not a restart: so only /readyz looks at the validator.
"""

from typing import Final

from starlette.responses import Response

from protos.node_pb2 import NodeStatusResponse
from rest_api.call import Call, json_response
from rest_api.errors import ApiError, Problem
from rest_api.node_status import ask_status

_READY_TIMEOUT_S: Final = 3


async def get_healthz(call: Call) -> Response:
    """This process answers: always 200."""
    return json_response({"data": {"status": "alive"}, "link": call.link()})


async def get_readyz(call: Call) -> Response:
    """The validator answers and has a genesis block; raises ApiError 15, 17 or 18 otherwise."""
    status = await ask_status(call, timeout_s=_READY_TIMEOUT_S)
    if status.status == NodeStatusResponse.NOT_READY:
        raise ApiError(Problem.NOT_READY, "the validator has no genesis block yet")
    data = {
        "status": "ready",
        "head_id": status.head_id,
        "head_num": status.head_num,
        "pending_batches": status.pending_batches,
    }
    return json_response({"data": data, "link": call.link()})
