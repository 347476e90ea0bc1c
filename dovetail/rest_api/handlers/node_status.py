"""The handlers of /stats/validator, /stats/gossip, /status/config, /status/processors and /status/system.

The validator counts and measures; only the JSON is made here (API.md, Statistics and status). Each handler asks the
validator, so that none answers with numbers while the validator is unreachable.
"""

from collections.abc import Iterable
from typing import Final

from starlette.responses import Response

from dovetail.rest_api.answers.pieces import Json, json_answer
from dovetail.rest_api.config import POSITIVE_KEYS
from dovetail.rest_api.errors import ApiError, Problem
from dovetail.rest_api.request.call import Call
from protos import node_pb2
from protos.validator_pb2 import Message as Envelope

NodeStatus = node_pb2.NodeStatusResponse

_OWN_LIMITS: Final = (
    "body_bytes_max",
    "message_bytes_max",
    "page_bytes_max",
    "page_items_default",
    "page_items_max",
    "status_ids_max",
    "status_wait_s_max",
)
"""The limits that the REST API checks itself. Its configuration may differ from the validator's."""

NO_GOSSIP: Final[Json] = {
    "peer_count": 0,
    "packets": {"received": 0, "sent": 0, "dropped": 0, "duplicate": 0},
    "bytes": {"received": 0, "sent": 0, "dropped": 0},
    "messages_handled": 0,
}

_STATES: Final = {
    node_pb2.ProcessorStatus.TAKES_WORK: "takes_work",
    node_pb2.ProcessorStatus.DRAINING: "draining",
    node_pb2.ProcessorStatus.SILENT: "silent",
    node_pb2.ProcessorStatus.STUCK: "stuck",
}


async def get_stats_validator(call: Call) -> Response:
    """Totals since the validator started: of all families together, and of each family."""
    status = await ask_status(call)
    families: dict[str, node_pb2.Totals] = {}
    for family in status.families:
        # Names and versions may hold colons, so two families may have the same key; then their totals are added.
        key = f"{family.family_name}:{family.family_version}"
        families[key] = _sum(families[key], family.totals) if key in families else family.totals
    data = _totals(status.timestamp, status.totals)
    data |= {key: _totals(status.timestamp, totals) for key, totals in families.items()}
    return json_answer({"data": data, "link": call.link()})


async def get_stats_gossip(call: Call) -> Response:
    """Totals of the traffic with peers; always zeros, because this validator has no peers."""
    status = await ask_status(call)
    return json_answer({"data": {"timestamp": status.timestamp, **NO_GOSSIP}, "link": call.link()})


async def get_status_config(call: Call) -> Response:
    """The configuration of the validator and this API. Raises ApiError 20 if the validator's answer has no limits."""
    tables = _tables((await ask_status(call)).config)
    limits = tables.pop("limits", {})
    if "block_transactions_max" not in limits:
        raise ApiError(Problem.INVALID_RESPONSE, "the validator's configuration lacks limits.block_transactions_max")
    data: Json = {
        "max_transactions_per_block": limits["block_transactions_max"],
        "min_transactions_per_block": 1,
        **tables,
        "rest_api": {
            "bind": call.config.bind,
            "trusted_proxies": call.config.trusted_proxies,
            **{name: getattr(call.config, name) for name in POSITIVE_KEYS},
            **{name: getattr(call.limits, name) for name in _OWN_LIMITS},
        },
        "limits": limits,
    }
    return json_answer({"data": data, "link": call.link()})


async def get_status_processors(call: Call) -> Response:
    """The node's own processor and the connected ones, also before genesis."""
    answer = await call.ask(
        Envelope.PROCESSORS_REQUEST,
        node_pb2.ProcessorsRequest(),
        Envelope.PROCESSORS_RESPONSE,
        node_pb2.ProcessorsResponse,
    )
    return json_answer({"data": [_processor(status) for status in answer.processors], "link": call.link()})


async def get_status_system(call: Call) -> Response:
    """The validator's machine: load as fractions from 0 to 1, network traffic in bytes since the validator started."""
    status = await ask_status(call)
    system = status.system
    data = {
        "local_time": status.timestamp,
        "percent_cpu": system.percent_cpu,
        "percent_memory": system.percent_memory,
        "network_rx": system.network_rx,
        "network_tx": system.network_tx,
    }
    return json_answer({"data": data, "link": call.link()})


async def ask_status(call: Call, *, timeout_s: float | None = None) -> NodeStatus:
    """The validator's own status, also before genesis. Raises as ``Call.ask``, and ApiError 20 for an error."""
    answer = await call.ask(
        Envelope.NODE_STATUS_REQUEST,
        node_pb2.NodeStatusRequest(),
        Envelope.NODE_STATUS_RESPONSE,
        NodeStatus,
        timeout_s=timeout_s,
    )
    if answer.status not in (NodeStatus.OK, NodeStatus.NOT_READY):
        raise ApiError(Problem.INVALID_RESPONSE, f"the validator answered status {answer.status} about itself")
    return answer


def _processor(status: node_pb2.ProcessorStatus) -> Json:
    if status.state not in _STATES:
        raise ApiError(Problem.INVALID_RESPONSE, f"the validator answered state {status.state} of a processor")
    shown: Json = {
        "connection_id": status.connection_id,
        "in_process": status.in_process,
        "state": _STATES[status.state],
        "families": [
            {
                "family_name": family.family_name,
                "family_version": family.family_version,
                "build_id": family.build_id,
                "migrates": family.migrates,
                "namespaces": list(family.namespaces),
                "idle": family.idle,
            }
            for family in status.families
        ],
        "packed_version": status.packed_version,
        "max_occupancy": status.max_occupancy,
        "in_flight": {"tasks": status.in_flight_tasks, "transactions": status.in_flight_transactions},
        "done": status.done,
        "invalid": status.invalid,
        "internal_errors": status.internal_errors,
    }
    if status.HasField("apply_ms_p50"):
        shown["apply_ms"] = {"p50": status.apply_ms_p50, "p95": status.apply_ms_p95, "p99": status.apply_ms_p99}
    return shown | {"connected_s": status.connected_s, "last_heard_s": status.last_heard_s}


def _sum(one: node_pb2.Totals, other: node_pb2.Totals) -> node_pb2.Totals:
    names = [field.name for field in node_pb2.Totals.DESCRIPTOR.fields]
    return node_pb2.Totals(**{name: getattr(one, name) + getattr(other, name) for name in names})


def _totals(timestamp: str, totals: node_pb2.Totals) -> Json:
    # The only writer of a chain never rolls back.
    return {
        "timestamp": timestamp,
        "blocks": {"committed": totals.blocks_committed, "rolledback": 0, "claimed": totals.blocks_claimed},
        "batches": {"committed": totals.batches_committed, "rolledback": 0, "invalid": totals.batches_invalid},
        "transactions": {
            "committed": totals.transactions_committed,
            "rolledback": 0,
            "invalid": totals.transactions_invalid,
        },
        "rollbacks": 0,
    }


def _tables(entries: Iterable[node_pb2.ConfigEntry]) -> dict[str, Json]:
    """The entries grouped as the tables of a configuration file."""
    tables: dict[str, Json] = {"validator": {}}
    for entry in entries:
        table, _, key = entry.key.rpartition(".")
        tables.setdefault(table, {})[key] = entry.number if entry.HasField("number") else entry.text
    return tables
