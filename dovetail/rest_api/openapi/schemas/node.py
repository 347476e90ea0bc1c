"""The schemas of answers about the node, by name.

``handlers.node_status``, ``handlers.families`` and ``handlers.health`` make the objects that are described here.
"""

from typing import Final

from dovetail.rest_api.answers.pieces import Json
from dovetail.rest_api.openapi.schemas.shapes import array, count, counts, read, record, ref, single, text, texts

_TOTALS: Final[Json] = {
    "timestamp": ref("Timestamp"),
    "blocks": counts("committed", "rolledback", "claimed"),
    "batches": counts("committed", "rolledback", "invalid"),
    "transactions": counts("committed", "rolledback", "invalid"),
    "rollbacks": count(),
}
_FRACTION: Final[Json] = {"type": "number", "minimum": 0, "maximum": 1}
_SETTINGS: Final[Json] = {
    "type": "object",
    "additionalProperties": {"type": ["integer", "string", "array"], "items": {"type": "string"}},
}

NODE: Final[dict[str, Json]] = {
    "Alive": single(record({"status": {"const": "alive"}})),
    "Ready": single(
        record(
            {
                "status": {"enum": ["ready", "degraded"], "description": "degraded: some of the conditions hold."},
                "head_id": ref("Id"),
                "head_num": count(),
                "pending_batches": count(),
                "conditions": array("Condition"),
                "warnings": texts("What somebody has to do something about before it stalls work, a sentence each."),
            }
        )
    ),
    "Condition": record(
        {
            "condition": {
                "enum": ["queue_full", "storage_failed", "store_damaged", "no_block", "processor_missing"],
                "description": "What keeps the node from working as it should.",
            },
            "seconds": {"type": "number", "minimum": 0, "description": "For how long."},
            "message": text("What to do, a sentence."),
        }
    ),
    "FamilyStatus": record(
        {
            "family_name": text(),
            "family_version": text(),
            "permission": {
                "type": "string",
                "enum": ["permitted", "waiting", "ended", "not_permitted"],
                "description": "For the next block. waiting: for from_block. not_permitted: the setting does not name"
                " it.",
            },
            "from_block": count("The first block that may hold it. Absent: any."),
            "until_block": count("The last block that may hold it. Absent: there is no last."),
            "migrates": {
                **texts("The prefixes whose state is migrated before its first transaction."),
                "items": {"type": "string", "pattern": "^([0-9a-f]{2}){3,35}$"},
            },
            "migration": {
                "type": "string",
                "enum": ["none", "due", "done", "refused"],
                "description": "Whether a block holds the migration already. refused: tried again when a processor of"
                " this version connects.",
            },
            "migration_message": text("Why it was refused."),
            "processors": count("Those that take its work."),
            "migrating_processors": count("Those among them that migrate."),
            "pending": {
                "type": "object",
                "description": "Pending batches that hold a transaction of it, by reason; counted at most 4 times in"
                " half a second, so that more questions get the last counts.",
                "additionalProperties": {"type": "integer", "minimum": 1},
            },
        },
        "from_block",
        "until_block",
        "migration_message",
    ),
    "Families": read(
        record(
            {
                "head_num": count(),
                "restricted": {
                    "type": "boolean",
                    "description": "Whether the setting is there; without it every family is permitted.",
                },
                "timestamp": ref("Timestamp"),
                "families": array("FamilyStatus"),
            }
        )
    ),
    "Totals": record(_TOTALS),
    "ValidatorStats": single(
        {
            "type": "object",
            "description": "Totals since the validator started, and the same under each family_name:family_version;"
            " families beyond limits.family_labels_max share `other:`.",
            "properties": _TOTALS,
            "required": list(_TOTALS),
            "additionalProperties": ref("Totals"),
        }
    ),
    "GossipStats": single(
        record(
            {
                "timestamp": ref("Timestamp"),
                "peer_count": count(),
                "packets": counts("received", "sent", "dropped", "duplicate"),
                "bytes": counts("received", "sent", "dropped"),
                "messages_handled": count(),
            }
        )
    ),
    "Configuration": single(
        {
            "type": "object",
            "description": "By the tables of a configuration file. No secret, no path.",
            "properties": {
                "max_transactions_per_block": count(),
                "min_transactions_per_block": count(),
                "rest_api": _SETTINGS,
                "limits": _SETTINGS,
            },
            "required": ["max_transactions_per_block", "min_transactions_per_block", "rest_api", "limits"],
            "additionalProperties": _SETTINGS,
        }
    ),
    "Processors": single(array("Processor")),
    "Processor": record(
        {
            "connection_id": text("Tells connections apart while they last.", pattern="^([0-9a-f]{2})*$"),
            "state": {
                "type": "string",
                "enum": ["takes_work", "draining", "silent"],
                "description": "draining: it unregistered and finishes what it holds. silent: it answers no pings, its"
                " work went to others.",
            },
            "families": {
                "type": "array",
                "items": record(
                    {
                        "family_name": text(),
                        "family_version": text(),
                        "build_id": text("By which its operator tells builds apart; empty where it sent none."),
                        "migrates": {"type": "boolean", "description": "Whether it can migrate state to this version."},
                        "namespaces": texts("Prefixes that it may write under."),
                    }
                ),
            },
            "packed_version": count("Of packed execution; 0: the conversation of the 1.x line."),
            "max_occupancy": count("Transactions that it takes at once."),
            "in_flight": counts("tasks", "transactions"),
            "done": count("Transactions that it applied since it connected."),
            "invalid": count("Transactions that it refused."),
            "internal_errors": count("Transactions that it gave no verdict on."),
            "apply_ms": record(
                {name: {"type": "number", "minimum": 0} for name in ("p50", "p95", "p99")},
                description="Percentiles of the milliseconds that a transaction took, over its newest 1000 tasks; what"
                " travels and waits counts. Absent before the first.",
            ),
            "connected_s": {"type": "number", "minimum": 0, "description": "Seconds since it connected."},
            "last_heard_s": {"type": "number", "minimum": 0, "description": "Seconds since it was last heard."},
        },
        "apply_ms",
    ),
    "System": single(
        record(
            {
                "local_time": ref("Timestamp"),
                "percent_cpu": _FRACTION,
                "percent_memory": _FRACTION,
                "network_rx": count("Bytes since the validator started."),
                "network_tx": count("Bytes since the validator started."),
            }
        )
    ),
}
