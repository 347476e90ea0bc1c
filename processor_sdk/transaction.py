"""A transaction as a handler gets it: verified by the validator, with a decoded payload. No state access."""

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import dovetail.ledger.transaction as ledger_transaction
from dovetail.ledger.errors import NotDecodable
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.transaction import TransactionHeader
from processor_sdk.codecs.codec import Codec
from processor_sdk.errors import InvalidTransaction

P = TypeVar("P")


class Transaction(NamedTuple, Generic[P]):
    """One transaction. ``id``: its header signature; ``header_bytes``: the signed bytes; ``payload_bytes``: as sent.

    ``payload``: decoded by the handler's codec; the bytes themselves if the handler declares no encodings.
    """

    id: TransactionId
    header: TransactionHeader
    header_bytes: bytes
    payload_bytes: bytes
    payload: P


def with_payload(transaction: ledger_transaction.Transaction, encodings: Mapping[str, Codec[Any]]) -> Transaction[Any]:
    """``transaction`` with its payload decoded by the codec of its payload_encoding. Raises InvalidTransaction.

    The first codec decodes payloads without an encoding, as 1.x clients send them. Without ``encodings`` every payload
    stays bytes, whatever its encoding.
    """
    id_, header, header_bytes, payload = transaction
    if not encodings:
        return Transaction(id_, header, header_bytes, payload, payload)
    encoding = header.payload_encoding or next(iter(encodings))
    codec = encodings.get(encoding)
    if codec is None:
        known = ", ".join(encodings)
        raise InvalidTransaction(
            f"payload_encoding is {encoding[:80]!r}; {header.family_name} {header.family_version} knows {known}"
        )
    try:
        return Transaction(id_, header, header_bytes, payload, codec.decode(payload))
    except (NotDecodable, ValueError) as error:
        raise InvalidTransaction(f"the payload ({encoding}) does not fit: {error}") from None
