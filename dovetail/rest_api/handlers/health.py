"""What programs around a node ask: /healthz and /readyz, for whoever starts and balances processes, and /metrics.

A process that is alive but not ready wants traffic elsewhere, not a restart: so only /readyz looks at the validator.
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

_READY_TIMEOUT_S: Final = 3
_METRICS_TIMEOUT_S: Final = 2
_METRICS_MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


async def get_healthz(call: Call) -> Response:
    """This process answers: always 200."""
    # Asked often, by programs whose parameters mean nothing here: they are not repeated.
    return json_answer({"data": {"status": "alive"}, "link": links.url(call.base, call.path)})


async def get_readyz(call: Call) -> Response:
    """The validator answers and has a genesis block; raises ApiError 15, 17 or 18 otherwise.

    What keeps it from working as it should does not make it unready: it still answers whoever reads.
    """
    status = await ask_status(call, timeout_s=_READY_TIMEOUT_S)
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
    """This process's figures and, when the validator answers soon, the validator's."""
    try:
        theirs = await call.ask(
            Envelope.METRICS_REQUEST,
            node_pb2.MetricsRequest(),
            Envelope.METRICS_RESPONSE,
            node_pb2.MetricsResponse,
            timeout_s=_METRICS_TIMEOUT_S,
        )
        text = theirs.text
    except ApiError as error:
        log.info("metrics without the validator's", request_id=call.request_id, reason=error.message)
        text = b""
    return text_answer(Text([call.metrics.text(), text]), _METRICS_MEDIA_TYPE)
