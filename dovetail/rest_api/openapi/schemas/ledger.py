"""All schemas by name: those of the ledger, and those of ``schemas.node`` (JSON Schema 2020-12, as in OpenAPI 3.1).

``answers.views`` makes the objects that are described here.
"""

from typing import Final

from dovetail.rest_api.answers.pieces import Json
from dovetail.rest_api.openapi.schemas.node import NODE
from dovetail.rest_api.openapi.schemas.shapes import array, count, listed, read, record, ref, single, text

_ID: Final = "[0-9a-f]{128}"

_STATUS_DATA: Final[Json] = {
    "type": "object",
    "description": "The status of each requested id, in the order of the request.",
    "additionalProperties": ref("BatchStatus"),
    "minProperties": 1,
}
_DETAILS: Final[Json] = {
    "type": "object",
    "description": "The reasons by batch id. Absent if there are none.",
    "additionalProperties": ref("StatusDetail"),
    "minProperties": 1,
}

SCHEMAS: Final[dict[str, Json]] = {
    "Id": text("A header signature: 128 lower-case hex characters.", pattern=f"^{_ID}$"),
    "PublicKey": text("A compressed secp256k1 point in lower-case hex.", pattern="^0[23][0-9a-f]{64}$"),
    "Address": text("A leaf's address: 70 lower-case hex characters.", pattern="^[0-9a-f]{70}$"),
    "AddressOrPrefix": text("An address, or a prefix of addresses.", pattern="^([0-9a-f]{2}){0,35}$"),
    "Binary": text("Bytes in standard base64 with padding.", contentEncoding="base64"),
    "Link": text("A URL as the client sees it, rebuilt from forwarding headers.", format="uri"),
    "Timestamp": text("A time of day in UTC (RFC 3339).", format="date-time"),
    "TransactionHeader": record(
        {
            "batcher_pubkey": ref("PublicKey"),
            "dependencies": {**array("Id"), "description": "Transactions that must be applied before this one."},
            "family_name": text(),
            "family_version": text(),
            "inputs": {**array("AddressOrPrefix"), "description": "What the processor may read."},
            "nonce": text("Makes otherwise identical transactions differ."),
            "outputs": {**array("AddressOrPrefix"), "description": "What the processor may write."},
            "payload_encoding": text(),
            "payload_sha512": text(pattern=f"^{_ID}$"),
            "signer_pubkey": ref("PublicKey"),
        }
    ),
    "Transaction": record(
        {"header": ref("TransactionHeader"), "header_signature": ref("Id"), "payload": ref("Binary")},
        description="header_signature is the transaction's id. Only its family knows what the payload means.",
    ),
    "Batch": record(
        {
            "header": record({"signer_pubkey": ref("PublicKey"), "transaction_ids": array("Id")}),
            "header_signature": ref("Id"),
            "transactions": array("Transaction"),
        },
        description="header_signature is the batch's id. All of its transactions are committed, or none.",
    ),
    "Block": record(
        {
            "header": record(
                {
                    "batch_ids": array("Id"),
                    "block_num": count("0 for the genesis block."),
                    "consensus": ref("Binary"),
                    "previous_block_id": text("Sixteen zeros in the genesis block.", pattern=f"^({_ID}|0{{16}})$"),
                    "signer_pubkey": ref("PublicKey"),
                    "state_root_hash": text(pattern="^[0-9a-f]{64}$"),
                }
            ),
            "header_signature": ref("Id"),
            "batches": array("Batch"),
        },
        description="header_signature is the block's id.",
    ),
    "Leaf": record({"address": ref("Address"), "data": ref("Binary")}),
    "Paging": record(
        {
            "start_index": count("The index of the first returned item; 0 is the first of the whole list."),
            "total_count": count(),
            "previous": ref("Link"),
            "next": ref("Link"),
        },
        "previous",
        "next",
        description="previous and next are absent at the ends of the list.",
    ),
    "BlockList": listed("Block"),
    "BatchList": listed("Batch"),
    "TransactionList": listed("Transaction"),
    "LeafList": listed("Leaf"),
    "OneBlock": read(ref("Block")),
    "OneBatch": read(ref("Batch")),
    "OneTransaction": read(ref("Transaction")),
    "OneLeafOrList": {"oneOf": [read(ref("Binary")), ref("LeafList")]},
    "BatchStatus": {"type": "string", "enum": ["COMMITTED", "INVALID", "PENDING", "UNKNOWN"]},
    "StatusDetail": record(
        {
            "reason": text(
                "INVALID: invalid_transaction, family_not_permitted, dependency_invalid, dependency_missing, … PENDING:"
                " queued, executing, waiting_for_processor, waiting_for_dependency, waiting_for_activation. UNKNOWN:"
                " not_an_id."
            ),
            "family_name": text("The family that the batch waits for, or that is not permitted."),
            "family_version": text(),
            "dependency": text("The transaction that the batch waits for."),
            "transaction_id": ref("Id"),
            "message": text(
                "INVALID: the processor's message about that transaction, or the broken rule. PENDING: why an attempt"
                " failed."
            ),
            "extended_data": ref("Binary"),
            "omitted_bytes": {
                "type": "integer",
                "minimum": 1,
                "description": "Bytes of message and extended_data that are left out. Ask for this batch alone; if they"
                " are still left out, the validator no longer keeps them.",
            },
        },
        "reason",
        "family_name",
        "family_version",
        "dependency",
        "transaction_id",
        "message",
        "extended_data",
        "omitted_bytes",
    ),
    "LinkOnly": record({"link": ref("Link")}),
    "StatusesWithLink": record({"data": _STATUS_DATA, "details": _DETAILS, "link": ref("Link")}, "details"),
    "Statuses": record({"data": _STATUS_DATA, "details": _DETAILS}, "details"),
    "Root": single(
        record({"name": text(), "version": text(), "links": {"type": "object", "additionalProperties": ref("Link")}})
    ),
    "Document": {"type": "object", "required": ["openapi", "info", "servers", "paths", "components"]},
    **NODE,
    "Error": record(
        {
            "error": record(
                {"code": {"type": "integer"}, "title": text(), "message": text("What is wrong with this request.")}
            )
        }
    ),
}
