"""The handlers of /healthz, /readyz and /metrics, which supervisors, load balancers and monitoring ask.

Only /readyz depends on the validator: a process without a validator needs no restart, but its traffic should go
elsewhere.
"""

from typing import Final

import structlog
from starlette.responses import Response

from dovetail.rest_api.answers.pieces import Text, json_answer, text_answer
from dovetail.rest_api.errors import ApiError, no_chain
from dovetail.rest_api.handlers.node_status import NodeStatus, ask_status
from dovetail.rest_api.request import links
from dovetail.rest_api.request.call import Call
from protos import node_pb2
from protos.validator_pb2 import Message as Envelope

log = structlog.get_logger(__name__)

READY_TIMEOUT_S: Final = 3
METRICS_TIMEOUT_S: Final = 2
_METRICS_MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


async def get_healthz(call: Call) -> Response:
    """Report that this process is alive: always 200."""
    # The link does not repeat parameters, which have no meaning here.
    return json_answer({"data": {"status": "alive"}, "link": links.url(call.base, call.path)})


async def get_readyz(call: Call) -> Response:
    """Report that the validator answers and has a genesis block. Raises ApiError 15, 17 or 18 otherwise.

    A node with conditions is still ready, because it answers reading clients.
    """
    status = await ask_status(call, timeout_s=READY_TIMEOUT_S)
    if status.status == NodeStatus.NOT_READY:
        raise no_chain()
    data = {
        "status": "degraded" if status.conditions else "ready",
        "head_id": status.head_id,
        "head_num": status.head_num,
        "pending_batches": status.pending_batches,
        "conditions": [
            {"condition": held.condition, "seconds": held.seconds, "message": held.message}
            for held in status.conditions
        ],
        "warnings": list(status.warnings),
    }
    return json_answer({"data": data, "link": links.url(call.base, call.path)})


async def get_metrics(call: Call) -> Response:
    """The metrics of this process and, if the validator answers in time, those of the validator."""
    try:
        answer = await call.ask(
            Envelope.METRICS_REQUEST,
            node_pb2.MetricsRequest(),
            Envelope.METRICS_RESPONSE,
            node_pb2.MetricsResponse,
            timeout_s=METRICS_TIMEOUT_S,
        )
        text = answer.text
    except ApiError as error:
        log.info("metrics without the validator's", request_id=call.request_id, reason=error.message)
        text = b""
    return text_answer(Text([call.metrics.text(), text]), _METRICS_MEDIA_TYPE)
