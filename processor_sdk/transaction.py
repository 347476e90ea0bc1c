"""A transaction as a handler sees it: verified by the validator, its payload decoded. No state, no verdict but one."""

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
    """One transaction: ``id`` is its header signature, ``header_bytes`` what was signed, ``payload_bytes`` as sent.

    ``payload`` is what the handler's codec made of these bytes; the bytes themselves where it declares no encodings.
    """

    id: TransactionId
    header: TransactionHeader
    header_bytes: bytes
    payload_bytes: bytes
    payload: P


def with_payload(transaction: ledger_transaction.Transaction, encodings: Mapping[str, Codec[Any]]) -> Transaction[Any]:
    """``transaction`` with the payload that its payload_encoding says. Raises InvalidTransaction.

    One that names no encoding, as clients of the 1.x line do, is decoded by the first. Without ``encodings`` every
    payload is bytes, whatever its encoding is called.
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
