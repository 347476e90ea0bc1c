"""The declarations of the paths about the node itself: totals, configuration, processors, families, health, metrics.

The handlers are in ``handlers.node_status``, ``handlers.families`` and ``handlers.health``.
"""

from typing import Final

from dovetail.rest_api.handlers.families import get_status_families
from dovetail.rest_api.handlers.health import get_healthz, get_metrics, get_readyz
from dovetail.rest_api.handlers.node_status import (
    NO_GOSSIP,
    get_stats_gossip,
    get_stats_validator,
    get_status_config,
    get_status_processors,
    get_status_system,
)
from dovetail.rest_api.openapi.declarations.endpoint import Answer, Endpoint, Handler, get_only
from dovetail.rest_api.openapi.declarations.examples import BLOCK_ID, read, single
from dovetail.rest_api.openapi.declarations.parameters import ASKED, SHOWN

_TIME: Final = "2026-01-31T09:15:00.250Z"
_TOTALS: Final = {
    "timestamp": _TIME,
    "blocks": {"committed": 1, "rolledback": 0, "claimed": 1},
    "batches": {"committed": 1, "rolledback": 0, "invalid": 0},
    "transactions": {"committed": 1, "rolledback": 0, "invalid": 0},
    "rollbacks": 0,
}
_CONFIG: Final = {
    "max_transactions_per_block": 5000,
    "min_transactions_per_block": 1,
    "validator": {"bind": "tcp://127.0.0.1:4004"},
    "rest_api": {"bind": "127.0.0.1:8080", "timeout_s": 300, "trusted_proxies": ["127.0.0.1", "::1"]},
    "limits": {"block_transactions_max": 5000, "pending_batches_max": 20000},
}
_SYSTEM: Final = {
    "local_time": _TIME,
    "percent_cpu": 0.125,
    "percent_memory": 0.5,
    "network_rx": 20480,
    "network_tx": 10240,
}

_PROCESSOR: Final = {
    "connection_id": "5f1c0e7a9b",
    "in_process": False,
    "state": "takes_work",
    "families": [
        {
            "family_name": "intkey",
            "family_version": "1.0",
            "build_id": "sha256:9f86d081884c",
            "migrates": False,
            "namespaces": ["1cf126"],
            "idle": False,
        }
    ],
    "packed_version": 2,
    "max_occupancy": 512,
    "in_flight": {"tasks": 2, "transactions": 312},
    "done": 48210,
    "invalid": 17,
    "internal_errors": 0,
    "apply_ms": {"p50": 0.031, "p95": 0.044, "p99": 0.12},
    "connected_s": 3600.5,
    "last_heard_s": 0.012,
}
_FAMILIES: Final = {
    "head_num": 1,
    "restricted": True,
    "timestamp": _TIME,
    "families": [
        {
            "family_name": "intkey",
            "family_version": "1.0",
            "permission": "permitted",
            "until_block": 99,
            "migrates": [],
            "migration": "none",
            "processors": 2,
            "migrating_processors": 0,
            "pending": {"queued": 4},
        },
        {
            "family_name": "intkey",
            "family_version": "2.0",
            "permission": "waiting",
            "from_block": 100,
            "migrates": ["1cf126"],
            "migration": "due",
            "processors": 1,
            "migrating_processors": 1,
            "pending": {"waiting_for_activation": 1},
        },
    ],
}


def _asks(handler: Handler, path: str, summary: str, description: str, schema: str, example: object) -> Endpoint:
    """A path whose answer the validator gives from its present status."""
    answer = Answer(200, "As of now.", schema, {"now": example})
    return get_only(path, handler, "Node", summary, description, (answer,), SHOWN, ASKED)


NODE: Final = (
    _asks(
        get_stats_validator,
        "/stats/validator",
        "What the validator has processed",
        "Totals since the validator started, of all families and by `family_name:family_version`. Families beyond the"
        " limit share `other:`. Nothing is ever rolled back.",
        "ValidatorStats",
        single("/stats/validator", {**_TOTALS, "intkey:1.0": _TOTALS}),
    ),
    _asks(
        get_stats_gossip,
        "/stats/gossip",
        "Traffic with peers",
        "A node without peers reports zeros.",
        "GossipStats",
        single("/stats/gossip", {"timestamp": _TIME, **NO_GOSSIP}),
    ),
    _asks(
        get_status_config,
        "/status/config",
        "The running configuration",
        "The limits of a block, then the tables of the configuration, without secrets and paths.",
        "Configuration",
        single("/status/config", _CONFIG),
    ),
    _asks(
        get_status_system,
        "/status/system",
        "The machine that the validator runs on",
        "Load and memory in use as fractions from 0 to 1.",
        "System",
        single("/status/system", _SYSTEM),
    ),
    _asks(
        get_status_processors,
        "/status/processors",
        "The connected processors",
        "The processors in the order in which they connected, with their work. A processor that has unregistered is"
        " listed until it has finished its tasks.",
        "Processors",
        single("/status/processors", [_PROCESSOR]),
    ),
    _asks(
        get_status_families,
        "/status/families",
        "Permissions and processors of the families",
        "Every family that the setting sawtooth.validator.transaction_families names, a processor serves or a pending"
        " batch needs, 1000 at most.",
        "Families",
        read("/status/families", _FAMILIES),
    ),
    get_only(
        "/healthz",
        get_healthz,
        "Node",
        "Whether this process is alive",
        "The process is alive if it answers, with or without a validator.",
        (Answer(200, "The process is alive.", "Alive", {"alive": single("/healthz", {"status": "alive"})}),),
    ),
    get_only(
        "/readyz",
        get_readyz,
        "Node",
        "Whether the node is ready",
        "The validator answers within 3 seconds and has a genesis block.",
        (
            Answer(
                200,
                "The node is ready.",
                "Ready",
                {
                    "ready": single(
                        "/readyz",
                        {
                            "status": "ready",
                            "head_id": BLOCK_ID,
                            "head_num": 1,
                            "pending_batches": 0,
                            "conditions": [],
                            "warnings": [],
                        },
                    )
                },
            ),
        ),
        (),
        ASKED,
    ),
    get_only(
        "/metrics",
        get_metrics,
        "Node",
        "Metrics of both processes",
        "In Prometheus' text format 0.0.4. The validator's metrics are included if it answers within 2 seconds.",
        (
            Answer(
                200,
                "The metrics.",
                examples={
                    "some": "# HELP dovetail_rest_validator_connected 1 with a connection to the validator.\n"
                    "# TYPE dovetail_rest_validator_connected gauge\n"
                    "dovetail_rest_validator_connected 1.0\n"
                },
                media_type="text/plain",
            ),
        ),
    ),
)
"""The node's part of the table of routes."""
