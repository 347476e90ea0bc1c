"""The cost of a transaction in packed execution, in operations of the SDK and intkey. No clocks, no sockets."""

import hashlib
from collections import Counter
from typing import Any

import pytest

from dovetail.ledger import transaction
from dovetail.ledger.signing import Signer
from families.intkey.client import LEAF, intkey_address, intkey_transaction
from families.intkey.handler import IntkeyHandler
from processor_sdk import CborCodec, MigrationContext
from processor_sdk.apply import dispatch
from processor_sdk.apply.dispatch import Dispatcher
from processor_sdk.apply.progress import Progress
from protos import packed_pb2, processor_pb2

SIGNER = Signer("11" * 32)
UNITS = [1, 1, 3]
"""The numbers of transactions in a request."""

ONCE = {"decode_header", "AccessList", "Context", "sha512", "encode", "begin", "end"}
"""The operations that run once for each transaction with equal inputs and outputs."""


def request() -> bytes:
    """A request whose transactions each increase their own name."""
    message = packed_pb2.PackedProcessRequest(context_id="c")
    for transactions in UNITS:
        unit = message.units.add(batch_id="b")
        for _ in range(transactions):
            name = f"n{len(message.entries)}"
            unit.transactions.append(intkey_transaction(SIGNER, SIGNER.public_key, "inc", name, 1, name).raw)
            message.entries.add(address=intkey_address(name), data=LEAF.encode({name: 1}))
    return message.SerializeToString()


def no_link(*_: object) -> bytes:
    raise AssertionError("the validator was asked")


def test_each_thing_is_made_once_for_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    content = request()
    counts: Counter[str] = Counter()

    def counted(owner: object, name: str) -> Any:
        original = getattr(owner, name)

        def count(*arguments: Any) -> Any:
            counts[name] += 1
            return original(*arguments)

        monkeypatch.setattr(owner, name, count)
        return count

    for owner, name in (
        (transaction, "decode_header"),
        (dispatch, "AccessList"),
        (hashlib, "sha512"),
        (CborCodec, "decode"),
        (CborCodec, "encode"),
        (Progress, "begin"),
        (Progress, "end"),
        (Progress, "now"),
    ):
        counted(owner, name)
    dispatcher = Dispatcher([IntkeyHandler()], contexts=(counted(dispatch, "Context"), MigrationContext))

    answer = packed_pb2.PackedProcessResponse.FromString(dispatcher.packed(content, no_link))

    statuses = [[result.status for result in unit.results] for unit in answer.units]
    assert statuses == [[processor_pb2.TpProcessResponse.OK] * transactions for transactions in UNITS]
    # Two decodings for each transaction (payload and entry), and one clock reading more than transactions.
    assert counts == {**dict.fromkeys(ONCE, sum(UNITS)), "decode": 2 * sum(UNITS), "now": 1}
