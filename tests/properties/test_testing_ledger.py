"""The test kit's ledger and the validator give the same verdicts, reasons, messages, receipts and state."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.ledger.batch import VerifiedBatch, VerifiedTransaction
from dovetail.ledger.ids import BatchId
from dovetail.ledger.limits import Limits
from dovetail.ledger.receipt import encode_receipt
from dovetail.validator.core.execution.model import Applied, Rejected, Result
from dovetail.validator.core.journal.block_run import BlockRun
from dovetail.validator.processors.dispatch import dispatch
from dovetail.validator.processors.registry import TaskAnswered
from families.intkey.client import intkey_address
from families.intkey.handler import IntkeyHandler
from families.intkey.payload import ENCODINGS, VALUE_MAX, IntkeyPayload
from processor_sdk import TransactionHandler
from processor_sdk.testing import Ledger, UnsignedTransaction, Verdict
from tests.dovetail.validator.support import view_of
from tests.properties.serial import LIMITS, Network, OtherHandler, ScriptHandler
from tests.properties.test_serial_equivalence import blocks

Outcome = tuple[str, str, bytes, tuple[bytes, ...]]
"""Reason, message, extended data, receipts."""


def by_the_executor(
    handlers: Sequence[TransactionHandler[Any]], packed: bool, state: dict[str, bytes], batches: Sequence[VerifiedBatch]
) -> tuple[list[Outcome], dict[str, bytes]]:
    """Execute with the validator's code and one processor."""
    network = Network(lambda _: 0)
    network.connect(b"one", handlers, packed)
    execution = BlockRun(view_of(dict(state)), batches, LIMITS)
    while not execution.finished:
        dispatch(execution, network.processors, LIMITS.packed_transactions_max)
        for event in network.step() if not execution.finished else ():
            assert isinstance(event, TaskAnswered)
            execution.complete(event.task, event.outcomes, event.namespaces)
    after = {**state, **execution.changes}
    return [_outcome(result) for result in execution.results()], {
        name: data for name, data in after.items() if data is not None
    }


def _outcome(result: Result | None) -> Outcome:
    if isinstance(result, Applied):
        return "", "", b"", result.receipts
    assert isinstance(result, Rejected)
    return _rejected(result.reason, result.message, result.extended_data)


def _rejected(reason: str, message: str, extended_data: bytes) -> Outcome:
    # If several dependencies failed, the message names the first to fail. Which one is first depends on timing.
    return reason, "" if reason == "dependency_invalid" else message, extended_data, ()


def by_the_test_kit(ledger: Ledger, batches: Sequence[VerifiedBatch]) -> tuple[list[Outcome], dict[str, bytes]]:
    outcomes: list[Outcome] = []
    for batch in batches:
        result = ledger.apply([UnsignedTransaction(*transaction) for transaction in batch.transactions])
        assert result.verdict is not Verdict.PENDING
        if result:
            outcomes.append(("", "", b"", tuple(encode_receipt(receipt) for receipt in result.receipts)))
        else:
            outcomes.append(_rejected(result.reason, result.message, result.extended_data))
    return outcomes, dict(ledger.state)


@pytest.mark.parametrize("packed", [True, False])
@settings(max_examples=25, deadline=None)
@given(block=blocks())
def test_scripts(packed: bool, block: tuple[dict[str, bytes], list[VerifiedBatch]]) -> None:
    state, batches = block
    handlers = [ScriptHandler(), OtherHandler()]
    expected = by_the_executor(handlers, packed, state, batches)
    assert by_the_test_kit(Ledger(*handlers, state=state, limits=LIMITS), batches) == expected


NAMES = ("a", "b", "c")
payloads = st.builds(
    IntkeyPayload, st.sampled_from(("set", "inc", "dec")), st.sampled_from(NAMES), st.sampled_from((0, 1, 5, VALUE_MAX))
)


@st.composite
def intkey_batches(draw: st.DrawFn) -> list[VerifiedBatch]:
    """Intkey batches: every encoding, undecodable payloads, and addresses omitted or declared by a prefix."""
    made = Ledger(IntkeyHandler(), twice=False)
    batches = []
    for number in range(draw(st.integers(1, 6))):
        transactions = []
        for payload in draw(st.lists(payloads, min_size=1, max_size=3)):
            encoding = draw(st.sampled_from((*ENCODINGS, "", "text/plain")))
            data = ENCODINGS.get(encoding, ENCODINGS["application/cbor"]).encode(payload)
            address = intkey_address(payload.name)
            declared = draw(st.sampled_from(((address,), (address,), (address,), (address[:6],), ())))
            transactions.append(
                made.transaction(
                    draw(st.sampled_from((data, data, data, data[:-1]))),
                    encoding=encoding,
                    inputs=declared,
                    outputs=(address,) if draw(st.integers(0, 5)) else (),
                )
            )
        verified = tuple(VerifiedTransaction(*transaction) for transaction in transactions)
        batches.append(VerifiedBatch(BatchId(f"{number:0128x}"), verified, 0, b"", "", 0))
    return batches


@pytest.mark.parametrize("packed", [True, False])
@settings(max_examples=25, deadline=None)
@given(batches=intkey_batches())
def test_intkey(packed: bool, batches: list[VerifiedBatch]) -> None:
    expected = by_the_executor([IntkeyHandler()], packed, {}, batches)
    assert by_the_test_kit(Ledger(IntkeyHandler()), batches) == expected


@pytest.mark.parametrize("limits", [Limits(state_value_bytes_max=2), Limits(receipt_bytes_max=20)])
def test_sizes(limits: Limits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.properties.test_testing_ledger.LIMITS", limits)
    ledger = Ledger(IntkeyHandler(), limits=limits)
    transaction = ledger.transaction(IntkeyPayload("set", "a", 1))
    batch = VerifiedBatch(BatchId("0" * 128), (VerifiedTransaction(*transaction),), 0, b"", "", 0)
    outcomes, state = by_the_executor([IntkeyHandler()], True, {}, [batch])
    assert outcomes[0][0] == "invalid_transaction"
    assert by_the_test_kit(ledger, [batch]) == (outcomes, state)
