"""Which pending batches a node proposes, and where the others wait."""

from dataclasses import replace

import pytest

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.journal.proposing import Candidate, choose
from dovetail.validator.core.journal.rules import Body
from dovetail.validator.core.mempool.queue import PendingQueue, Reason
from tests.dovetail.validator.support import LIMITS, address, make_batch, make_id, make_transaction, view_of

OTHER = FamilyVersion("other", "1.0")


def batch(number: int, family: tuple[str, str] = ("intkey", "1.0"), depends_on: str = "") -> VerifiedBatch:
    place = [address(number)]
    dependencies = [depends_on] if depends_on else []
    transaction = make_transaction(number, inputs=place, outputs=place, family=family, dependencies=dependencies)
    return make_batch(number, transaction)


class Chosen:
    """The result of choosing once from a queue that holds these batches, in this order."""

    def __init__(self, *batches: VerifiedBatch, limits: Limits = LIMITS, committed: tuple[str, ...] = ()) -> None:
        self.queue = PendingQueue(limits)
        self._limits = limits
        self._committed = committed
        for arrival, one in enumerate(batches):
            self.queue.add(arrival, one)

    def choose(self) -> Candidate:
        body = Body(1, None, self._committed.__contains__, lambda transaction_id: False)
        return choose(self.queue, body, view_of({}), lambda family: family != OTHER, self._limits, 5_000, None)

    def reason(self, one: VerifiedBatch) -> Reason:
        entry = self.queue.get(one.id)
        assert entry is not None
        return entry.reason


def test_batches_are_chosen_in_order_of_arrival() -> None:
    batches = [batch(number) for number in (3, 1, 2)]
    chosen = Chosen(*batches)
    candidate = chosen.choose()
    assert [entry.batch for entry in candidate.entries] == batches
    assert candidate.run.batches == batches
    assert candidate.started_ms == 5_000
    assert {chosen.reason(one) for one in batches} == {Reason.EXECUTING}


@pytest.mark.parametrize(
    "limits",
    [
        replace(LIMITS, block_transactions_max=2),
        replace(LIMITS, block_addresses_max=4),
        replace(LIMITS, block_bytes_max=sum(len(batch(number).raw) for number in (1, 2))),
    ],
)
def test_a_block_takes_what_fits_and_leaves_the_rest_ready(limits: Limits) -> None:
    batches = [batch(number) for number in (1, 2, 3)]
    chosen = Chosen(*batches, limits=limits)
    assert [entry.batch for entry in chosen.choose().entries] == batches[:2]
    assert chosen.reason(batches[2]) is Reason.QUEUED


def test_what_must_wait_is_parked_and_holds_up_nobody() -> None:
    unserved = batch(1, family=("other", "1.0"))
    dependent = batch(2, depends_on=make_id("transaction", "missing"))
    ready = batch(3)
    chosen = Chosen(unserved, dependent, ready)
    assert [entry.batch for entry in chosen.choose().entries] == [ready]
    assert chosen.reason(unserved) is Reason.WAITING_FOR_PROCESSOR
    assert chosen.reason(dependent) is Reason.WAITING_FOR_DEPENDENCY
    entry = chosen.queue.get(dependent.id)
    assert entry is not None
    assert entry.due_ms == 5_000 + LIMITS.dependency_wait_ms


def test_what_the_rules_refuse_keeps_its_place_and_does_not_run() -> None:
    again, ready = batch(1), batch(2)
    committed = TransactionId(again.transactions[0].id)
    candidate = Chosen(again, ready, committed=(committed,)).choose()
    assert [entry.batch for entry in candidate.entries] == [again, ready]
    assert [candidate.run.refused[index].reason for index in candidate.run.refused] == ["duplicate_transaction"]
    assert candidate.run.transactions_left == 1
