"""The shapes of resources and answers, by name: JSON Schema 2020-12, as OpenAPI 3.1 has it.

What a member means is said once, here. ``views`` makes what these describe.
"""

from typing import Final

from rest_api.pieces import Json

_ID: Final = "[0-9a-f]{128}"


def ref(name: str) -> Json:
    """A reference to one of ``SCHEMAS``."""
    return {"$ref": f"#/components/schemas/{name}"}


def _object(members: Json, *optional: str, **more: object) -> Json:
    required = [name for name in members if name not in optional]
    return {"type": "object", "properties": members, "required": required, "additionalProperties": False, **more}


def _array(of: str) -> Json:
    return {"type": "array", "items": ref(of)}


def _text(description: str = "", **more: object) -> Json:
    return {"type": "string", **({"description": description} if description else {}), **more}


def _count(description: str = "") -> Json:
    return {"type": "integer", "minimum": 0, **({"description": description} if description else {})}


def _single(data: Json) -> Json:
    return _object({"data": data, "link": ref("Link")})


def _read(data: Json) -> Json:
    return _object({"data": data, "head": ref("Id"), "link": ref("Link")})


def _listed(of: str) -> Json:
    return _object({"data": _array(of), "head": ref("Id"), "link": ref("Link"), "paging": ref("Paging")})


def _counts(*names: str) -> Json:
    return _object({name: _count() for name in names})


_TOTALS: Final[Json] = {
    "timestamp": ref("Timestamp"),
    "blocks": _counts("committed", "rolledback", "claimed"),
    "batches": _counts("committed", "rolledback", "invalid"),
    "transactions": _counts("committed", "rolledback", "invalid"),
    "rollbacks": _count(),
}
_FRACTION: Final[Json] = {"type": "number", "minimum": 0, "maximum": 1}
_SETTINGS: Final[Json] = {
    "type": "object",
    "additionalProperties": {"type": ["integer", "string", "array"], "items": {"type": "string"}},
}
_STATUS_DATA: Final[Json] = {
    "type": "object",
    "description": "Each id that was asked about, in that order.",
    "additionalProperties": ref("BatchStatus"),
    "minProperties": 1,
}
_DETAILS: Final[Json] = {
    "type": "object",
    "description": "By batch id: why, where there is something to say. Absent when empty.",
    "additionalProperties": ref("StatusDetail"),
    "minProperties": 1,
}

SCHEMAS: Final[dict[str, Json]] = {
    "Id": _text("A header signature: 128 lower-case hex characters.", pattern=f"^{_ID}$"),
    "PublicKey": _text("A compressed secp256k1 point in lower-case hex.", pattern="^0[23][0-9a-f]{64}$"),
    "Address": _text("A leaf's address: 70 lower-case hex characters.", pattern="^[0-9a-f]{70}$"),
    "AddressOrPrefix": _text("An address, or a prefix of addresses.", pattern="^([0-9a-f]{2}){0,35}$"),
    "Binary": _text("Bytes in standard base64 with padding.", contentEncoding="base64"),
    "Link": _text("A URL as the client sees it, rebuilt from forwarding headers.", format="uri"),
    "Timestamp": _text("A time of day in UTC (RFC 3339).", format="date-time"),
    "TransactionHeader": _object(
        {
            "batcher_pubkey": ref("PublicKey"),
            "dependencies": {**_array("Id"), "description": "Transactions that must be applied before this one."},
            "family_name": _text(),
            "family_version": _text(),
            "inputs": {**_array("AddressOrPrefix"), "description": "What the processor may read."},
            "nonce": _text("Makes otherwise identical transactions differ."),
            "outputs": {**_array("AddressOrPrefix"), "description": "What the processor may write."},
            "payload_encoding": _text(),
            "payload_sha512": _text(pattern=f"^{_ID}$"),
            "signer_pubkey": ref("PublicKey"),
        }
    ),
    "Transaction": _object(
        {"header": ref("TransactionHeader"), "header_signature": ref("Id"), "payload": ref("Binary")},
        description="header_signature is the transaction's id. Only its family knows what the payload means.",
    ),
    "Batch": _object(
        {
            "header": _object({"signer_pubkey": ref("PublicKey"), "transaction_ids": _array("Id")}),
            "header_signature": ref("Id"),
            "transactions": _array("Transaction"),
        },
        description="header_signature is the batch's id. All of its transactions are committed, or none.",
    ),
    "Block": _object(
        {
            "header": _object(
                {
                    "batch_ids": _array("Id"),
                    "block_num": _count("0 for the genesis block."),
                    "consensus": ref("Binary"),
                    "previous_block_id": _text("Sixteen zeros in the genesis block.", pattern=f"^({_ID}|0{{16}})$"),
                    "signer_pubkey": ref("PublicKey"),
                    "state_root_hash": _text(pattern="^[0-9a-f]{64}$"),
                }
            ),
            "header_signature": ref("Id"),
            "batches": _array("Batch"),
        },
        description="header_signature is the block's id.",
    ),
    "Leaf": _object({"address": ref("Address"), "data": ref("Binary")}),
    "Paging": _object(
        {
            "start_index": _count("Of the first item returned; 0 is the first of the whole list."),
            "total_count": _count(),
            "previous": ref("Link"),
            "next": ref("Link"),
        },
        "previous",
        "next",
        description="previous and next are absent at the ends of the list.",
    ),
    "BlockList": _listed("Block"),
    "BatchList": _listed("Batch"),
    "TransactionList": _listed("Transaction"),
    "LeafList": _listed("Leaf"),
    "OneBlock": _read(ref("Block")),
    "OneBatch": _read(ref("Batch")),
    "OneTransaction": _read(ref("Transaction")),
    "OneLeafOrList": {"oneOf": [_read(ref("Binary")), ref("LeafList")]},
    "BatchStatus": {"type": "string", "enum": ["COMMITTED", "INVALID", "PENDING", "UNKNOWN"]},
    "StatusDetail": _object(
        {
            "reason": _text(
                "INVALID: invalid_transaction, family_not_permitted, dependency_invalid, dependency_missing, … PENDING:"
                " queued, executing, waiting_for_processor, waiting_for_dependency. UNKNOWN: not_an_id."
            ),
            "family_name": _text("The family that is waited for, or is not permitted."),
            "family_version": _text(),
            "dependency": _text("The transaction that is waited for."),
            "transaction_id": ref("Id"),
            "message": _text(
                "INVALID: what the processor, or the rule, said of that transaction. PENDING: how it was tried in vain."
            ),
            "extended_data": ref("Binary"),
        },
        "reason",
        "family_name",
        "family_version",
        "dependency",
        "transaction_id",
        "message",
        "extended_data",
    ),
    "LinkOnly": _object({"link": ref("Link")}),
    "StatusesWithLink": _object({"data": _STATUS_DATA, "details": _DETAILS, "link": ref("Link")}, "details"),
    "Statuses": _object({"data": _STATUS_DATA, "details": _DETAILS}, "details"),
    "Root": _single(
        _object(
            {
                "name": _text(),
                "version": _text(),
                "links": {"type": "object", "additionalProperties": ref("Link")},
            }
        )
    ),
    "Document": {"type": "object", "required": ["openapi", "info", "servers", "paths", "components"]},
    "Alive": _single(_object({"status": {"const": "alive"}})),
    "Ready": _single(
        _object({"status": {"const": "ready"}, "head_id": ref("Id"), "head_num": _count(), "pending_batches": _count()})
    ),
    "Totals": _object(_TOTALS),
    "ValidatorStats": _single(
        {
            "type": "object",
            "description": "Totals since the validator started, and the same under each family_name:family_version;"
            " families beyond limits.family_labels_max share `other:`.",
            "properties": _TOTALS,
            "required": list(_TOTALS),
            "additionalProperties": ref("Totals"),
        }
    ),
    "GossipStats": _single(
        _object(
            {
                "timestamp": ref("Timestamp"),
                "peer_count": _count(),
                "packets": _counts("received", "sent", "dropped", "duplicate"),
                "bytes": _counts("received", "sent", "dropped"),
                "messages_handled": _count(),
            }
        )
    ),
    "Configuration": _single(
        {
            "type": "object",
            "description": "By the tables of a configuration file. No secret, no path.",
            "properties": {
                "max_transactions_per_block": _count(),
                "min_transactions_per_block": _count(),
                "rest_api": _SETTINGS,
                "limits": _SETTINGS,
            },
            "required": ["max_transactions_per_block", "min_transactions_per_block", "rest_api", "limits"],
            "additionalProperties": _SETTINGS,
        }
    ),
    "System": _single(
        _object(
            {
                "local_time": ref("Timestamp"),
                "percent_cpu": _FRACTION,
                "percent_memory": _FRACTION,
                "network_rx": _count("Bytes since the validator started."),
                "network_tx": _count("Bytes since the validator started."),
            }
        )
    ),
    "Error": _object(
        {
            "error": _object(
                {
                    "code": {"type": "integer"},
                    "title": _text(),
                    "message": _text("What was wrong with this very request."),
                }
            )
        }
    ),
}
