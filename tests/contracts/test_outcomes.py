"""The validator, the test kit and the rehearsal judge an apply alike: the same receipt, or the same refusal.

The handler bypasses the SDK's own checks, as a processor in another language may.
"""

from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dovetail.ledger.batch import VerifiedBatch, VerifiedTransaction
from dovetail.ledger.ids import BatchId
from dovetail.ledger.limits import Limits
from dovetail.ledger.receipt import Event, encode_event, encode_receipt
from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.transaction import decode_transaction
from dovetail.rehearsal.differences import outcome_of
from dovetail.rehearsal.history import Before, PastTransaction
from dovetail.validator.core.execution.model import Applied, Rejected
from dovetail.validator.core.journal.block_run import BlockRun
from dovetail.validator.processors.dispatch import dispatch
from dovetail.validator.processors.registry import TaskAnswered
from processor_sdk import Context, Transaction, TransactionHandler
from processor_sdk.apply.dispatch import Dispatcher
from processor_sdk.testing import Ledger, UnsignedTransaction
from tests.dovetail.validator.support import view_of
from tests.properties.serial import Network

FAMILY = FamilyVersion("careless", "1.0")
NAMESPACE, ELSEWHERE = "aaaaaa", "bbbbbb"
ADDRESSES = tuple(f"{namespace}{number:064x}" for namespace in (NAMESPACE, ELSEWHERE) for number in range(2))
MALFORMED = (ADDRESSES[0][:68], ADDRESSES[0].upper(), ADDRESSES[0] + "00", "")
STATE = {ADDRESSES[0]: b"held"}


class Effects(NamedTuple):
    """Everything that an apply produces: writes, events and receipt data."""

    changes: dict[str, bytes | None]
    events: tuple[Event, ...] = ()
    data: tuple[bytes, ...] = ()


class Careless(TransactionHandler[bytes]):
    """Produces ``effects`` without the SDK's checks."""

    family_name, family_version = FAMILY
    namespaces = (NAMESPACE,)

    def __init__(self, effects: Effects) -> None:
        self.effects = effects

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        context.changes.update(self.effects.changes)
        context.events.extend(map(encode_event, self.effects.events))
        context.receipt_data.extend(self.effects.data)


def by_the_validator(handler: TransactionHandler[Any], transaction: UnsignedTransaction, limits: Limits) -> bytes | str:
    network = Network(lambda _: 0)
    network.connect(b"one", [handler], True)
    batch = VerifiedBatch(BatchId("0" * 128), (VerifiedTransaction(*transaction),), 0, b"", "", 0)
    execution = BlockRun(view_of(dict(STATE)), [batch], limits)
    dispatch(execution, network.processors, limits.packed_transactions_max)
    for event in network.step():
        assert isinstance(event, TaskAnswered)
        execution.complete(event.task, event.outcomes, event.namespaces)
    [result] = execution.results()
    if isinstance(result, Applied):
        return result.receipts[0]
    assert isinstance(result, Rejected)
    assert result.reason == "invalid_transaction"
    return result.message


def by_the_test_kit(ledger: Ledger, transaction: UnsignedTransaction) -> bytes | str:
    result = ledger.apply(transaction)
    if result:
        return encode_receipt(result.receipts[0])
    assert result.reason == "invalid_transaction"
    return result.message


def by_the_rehearsal(handler: TransactionHandler[Any], transaction: UnsignedTransaction, limits: Limits) -> bytes | str:
    before = Before(view_of(dict(STATE)))
    past = PastTransaction(1, BatchId("0" * 128), decode_transaction(transaction.raw), b"")
    result = Dispatcher([handler]).run_apply((FAMILY.name, FAMILY.version), past.transaction, before)
    outcome = outcome_of(past, result, before, handler.namespaces, limits)
    assert outcome.kind in (None, "invalid")
    return outcome.refusal or outcome.receipt


EFFECTS = st.builds(
    Effects,
    st.dictionaries(
        st.sampled_from((*ADDRESSES, *ADDRESSES, *MALFORMED)), st.none() | st.binary(max_size=5), max_size=3
    ),
    st.lists(st.builds(Event, st.text("ab", max_size=3), st.just((("key", "value"),))), max_size=2).map(tuple),
    st.lists(st.binary(max_size=9), max_size=2).map(tuple),
)
OUTPUTS = st.lists(st.sampled_from((*ADDRESSES, NAMESPACE, ELSEWHERE, ADDRESSES[0][:68])), unique=True).map(tuple)
LIMITS = st.builds(Limits, state_value_bytes_max=st.integers(0, 5), receipt_bytes_max=st.integers(130, 330))
ONE, TWO, ABROAD, _ = ADDRESSES
AMPLE = Limits()


@settings(max_examples=200, deadline=None)
@given(EFFECTS, OUTPUTS, LIMITS)
@example(Effects({ONE: b"v", TWO: None}), (NAMESPACE,), AMPLE)
@example(Effects({ABROAD: b"v"}), (ABROAD,), AMPLE)
@example(Effects({TWO: None}), (ONE,), AMPLE)
@example(Effects({MALFORMED[0]: b"v"}), (MALFORMED[0],), AMPLE)
@example(Effects({ONE: b"value"}), (ONE,), Limits(state_value_bytes_max=4))
@example(Effects({}, (Event("told"),), (b"data",)), (), Limits(receipt_bytes_max=140))
def test_all_three_keep_the_same_and_refuse_the_same_with_the_same_words(
    effects: Effects, outputs: tuple[str, ...], limits: Limits
) -> None:
    handler = Careless(effects)
    ledger = Ledger(handler, state=STATE, limits=limits, twice=False)
    transaction = ledger.transaction(b"", inputs=(), outputs=outputs)
    expected = by_the_validator(handler, transaction, limits)
    assert by_the_test_kit(ledger, transaction) == expected
    assert by_the_rehearsal(handler, transaction, limits) == expected
