"""Answers of a fake validator about its node, and the client that reads them."""

from protos.node_pb2 import MetricsResponse, ProcessorsResponse
from tests.dovetail.rest_api.support import Api, NodeStatus, Type

# The validator's clock, not this machine's.
TIME = "2001-02-03T04:05:06.789Z"


TOTALS = {
    "blocks_committed": 7,
    "blocks_claimed": 6,
    "batches_committed": 5,
    "batches_invalid": 4,
    "transactions_committed": 3,
    "transactions_invalid": 2,
}


SHAPE = {
    "blocks": {"committed": 7, "rolledback": 0, "claimed": 6},
    "batches": {"committed": 5, "rolledback": 0, "invalid": 4},
    "transactions": {"committed": 3, "rolledback": 0, "invalid": 2},
    "rollbacks": 0,
}


STATUS = NodeStatus(
    status="OK",
    head_id="f" * 128,
    head_num=9,
    pending_batches=8,
    totals=TOTALS,
    families=[{"family_name": "intkey", "family_version": "1.0", "totals": TOTALS}],
    config=[
        {"key": "limits.block_transactions_max", "number": 5000},
        {"key": "limits.zero", "number": 0},
        {"key": "validator.bind", "text": "tcp://127.0.0.1:4004"},
        {"key": "validator.version", "text": "0.1.0"},
    ],
    timestamp=TIME,
    system={"percent_cpu": 0.25, "percent_memory": 0.5, "network_rx": 10, "network_tx": 11},
)


ASKING = ["/stats/validator", "/stats/gossip", "/status/config", "/status/processors", "/status/system"]


def set_status(api: Api, status: NodeStatus = STATUS) -> None:
    api.validator.answer(Type.NODE_STATUS_REQUEST, Type.NODE_STATUS_RESPONSE, status)
    api.validator.answer(Type.METRICS_REQUEST, Type.METRICS_RESPONSE, MetricsResponse())
    api.validator.answer(Type.PROCESSORS_REQUEST, Type.PROCESSORS_RESPONSE, ProcessorsResponse())


async def data(api: Api, path: str) -> dict[str, object]:
    """``data`` of an answer whose other members are checked."""
    response = await api.http.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["data", "link"]
    assert response.json()["link"] == f"http://node:8080{path}"
    found: dict[str, object] = response.json()["data"]
    return found
