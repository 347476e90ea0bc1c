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
                "status": {"enum": ["ready", "degraded"], "description": "degraded: there are conditions."},
                "head_id": ref("Id"),
                "head_num": count(),
                "pending_batches": count(),
                "conditions": array("Condition"),
                "warnings": texts("A sentence for each problem that will stop work unless an operator acts."),
            }
        )
    ),
    "Condition": record(
        {
            "condition": {
                "enum": [
                    "queue_full",
                    "storage_failed",
                    "store_damaged",
                    "no_block",
                    "processor_missing",
                    "processor_stuck",
                    "processors_differ",
                ],
                "description": "What keeps the node from working as it should.",
            },
            "seconds": {"type": "number", "minimum": 0, "description": "For how long."},
            "message": text("A sentence that says what to do."),
        }
    ),
    "FamilyStatus": record(
        {
            "family_name": text(),
            "family_version": text(),
            "permission": {
                "type": "string",
                "enum": ["permitted", "waiting", "ended", "not_permitted"],
                "description": "For the next block. waiting: until from_block. not_permitted: the setting does not name"
                " the family.",
            },
            "from_block": count("The first block that may contain the family. Absent: any block."),
            "until_block": count("The last block that may contain the family. Absent: no last block."),
            "migrates": {
                **texts("The prefixes whose state is migrated before the first transaction of the family."),
                "items": {"type": "string", "pattern": "^([0-9a-f]{2}){3,35}$"},
            },
            "migration": {
                "type": "string",
                "enum": ["none", "due", "done", "refused"],
                "description": "Whether a block contains the migration. refused: tried again when a processor of"
                " this version connects.",
            },
            "migration_message": text("Why the migration was refused."),
            "processors": count("The number of processors that serve the family."),
            "migrating_processors": count("The number of these processors that can migrate."),
            "pending": {
                "type": "object",
                "description": "The pending batches with a transaction of the family, by reason. They are counted at"
                " most 4 times in half a second; other requests get the last counts.",
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
                    "description": "Whether the setting exists; without the setting every family is permitted.",
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
            "description": "The tables of a configuration file, without secrets and paths.",
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
            "connection_id": text(
                "Identifies the connection while it lasts; empty for the node's own processor.",
                pattern="^([0-9a-f]{2})*$",
            ),
            "in_process": {
                "type": "boolean",
                "description": "Whether this is the node's own processor, which runs in the validator's process.",
            },
            "state": {
                "type": "string",
                "enum": ["takes_work", "draining", "silent", "stuck"],
                "description": "draining: it has unregistered and finishes its tasks. silent: it answers no pings, and"
                " its tasks went to other processors. stuck: so did a task that it did not answer in time.",
            },
            "families": {
                "type": "array",
                "items": record(
                    {
                        "family_name": text(),
                        "family_version": text(),
                        "build_id": text("Identifies the build of the processor; empty if the processor sent none."),
                        "migrates": {"type": "boolean", "description": "Whether it can migrate state to this version."},
                        "namespaces": texts("The prefixes under which the family may write."),
                        "idle": {
                            "type": "boolean",
                            "description": "Whether the processor gets no task of this family, because the node judges"
                            " the family itself. Such a processor is not needed.",
                        },
                    }
                ),
            },
            "packed_version": count("The version of packed execution; 0: the protocol of the 1.x line."),
            "max_occupancy": count("The number of transactions that the processor accepts at once."),
            "in_flight": counts("tasks", "transactions"),
            "done": count("The number of transactions applied since the processor connected."),
            "invalid": count("The number of transactions that the processor refused."),
            "internal_errors": count("The number of transactions without a verdict."),
            "apply_ms": record(
                {name: {"type": "number", "minimum": 0} for name in ("p50", "p95", "p99")},
                description="Percentiles of the milliseconds per transaction over the last 1000 tasks, including"
                " transport and waiting. Absent before the first task.",
            ),
            "connected_s": {"type": "number", "minimum": 0, "description": "Seconds since the processor connected."},
            "last_heard_s": {"type": "number", "minimum": 0, "description": "Seconds since its last message."},
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
