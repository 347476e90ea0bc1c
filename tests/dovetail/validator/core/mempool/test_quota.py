"""Shares of the pending queue: of families that nobody served, and the room for kept batches."""

from collections.abc import Callable

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import SETTINGS, FamilyVersion
from dovetail.validator.core.mempool.queue import Pending, PendingQueue
from tests.dovetail.validator.support import make_batch, make_transaction

SERVED, FIRST, SECOND = (FamilyVersion(name, "1.0") for name in ("served", "first", "second"))
LIMITS = Limits(pending_batches_max=100, pending_transactions_max=200, served_families_remembered=2)
ROOM = 10


def nobody(family: FamilyVersion) -> bool:
    """No family has a processor."""
    return False


def batch_of(name: object, *families: FamilyVersion) -> VerifiedBatch:
    """A batch with a transaction of each family."""
    held = [make_transaction((name, number), family=family) for number, family in enumerate(families)]
    return make_batch(name, *held)


def queue_with(count: int, *families: FamilyVersion) -> PendingQueue:
    queue = PendingQueue(LIMITS)
    queue.quota.serve(SERVED, nobody)
    for number in range(count):
        queue.add(number, batch_of(number, *families))
    return queue


def test_unserved_families_share_a_part_of_each_limit() -> None:
    queue = queue_with(ROOM - 1, FIRST)
    assert queue.quota.unserved_refusal([batch_of("fits", SECOND)]) is None
    refusal = queue.quota.unserved_refusal([batch_of("a", FIRST), batch_of("b", SECOND)])
    assert refusal is not None
    assert "'first 1.0'" in refusal
    assert "9 of at most 10 batches (10 % of 100), 2 more do not fit" in refusal
    many = batch_of("many", *[SECOND] * 12)
    refusal = queue.quota.unserved_refusal([many])
    assert refusal is not None
    assert "9 of at most 20 transactions (10 % of 200), 12 more do not fit" in refusal


def test_served_families_and_settings_are_not_counted() -> None:
    queue = queue_with(0)
    for number in range(3 * ROOM):
        queue.add(number, batch_of(number, SERVED, SETTINGS))
    assert queue.quota.unserved_refusal([batch_of("a", SERVED), batch_of("b", SETTINGS)]) is None
    for number in range(ROOM):
        # One unserved family in a batch suffices: the batch waits for it.
        mixed = batch_of(("mixed", number), SERVED, FIRST)
        assert queue.quota.unserved_refusal([mixed]) is None
        queue.add(1_000 + number, mixed)
    assert queue.quota.unserved_refusal([batch_of("more", SERVED, FIRST)]) is not None
    # A full share of the unserved is no concern of the others.
    assert queue.quota.unserved_refusal([batch_of("a", SERVED)]) is None


def test_a_share_is_free_again_when_batches_leave_or_their_families_are_served() -> None:
    queue = queue_with(ROOM, FIRST, SECOND)
    more = [batch_of("more", SECOND)]
    assert queue.quota.serve(FIRST, nobody)
    assert not queue.quota.serve(FIRST, nobody)
    assert queue.quota.unserved_refusal(more) is not None, "they still hold a transaction of the second"
    assert queue.quota.serve(SECOND, nobody)
    assert queue.quota.unserved_refusal(more) is None
    queue = queue_with(ROOM, FIRST)
    entry = queue.get(batch_of(0, FIRST).id)
    assert entry is not None
    queue.remove(entry)
    assert queue.quota.unserved_refusal(more) is None
    queue.add(99, more[0])
    assert queue.quota.unserved_refusal([batch_of("another", FIRST)]) is not None


def test_the_families_served_last_are_remembered() -> None:
    queue = queue_with(0)
    for family in (FIRST, SERVED, SECOND):
        queue.quota.serve(family, nobody)
    assert queue.quota.served == [SERVED, SECOND]
    for number in range(ROOM):
        queue.add(number, batch_of(number, FIRST))
    assert queue.quota.unserved_refusal([batch_of("more", FIRST)]) is not None
    # What was counted leaves the count, whatever is served meanwhile.
    for entry in list(queue):
        queue.remove(entry)
    assert queue.quota.unserved_refusal([batch_of(number, FIRST) for number in range(ROOM)]) is None


def test_a_family_with_a_processor_is_never_forgotten() -> None:
    queue = queue_with(0)
    for number in range(10):
        queue.quota.serve(FamilyVersion("passing", str(number)), SERVED.__eq__)
    assert queue.quota.served == [SERVED, FamilyVersion("passing", "9")]
    queue.quota.serve(FIRST, lambda family: True)
    assert len(queue.quota.served) == 3


def test_kept_batches_use_their_own_room_alone() -> None:
    queue = PendingQueue(Limits(pending_batches_max=200))
    kept = [batch_of(("kept", number), SETTINGS) for number in range(3)]
    assert queue.quota.keeps(kept[:2])
    assert not queue.quota.keeps(kept)
    for number, batch in enumerate(kept[:2]):
        queue.add(number, batch, kept=True)
    assert not queue.quota.keeps(kept[2:])
    assert queue.quota.transactions == 2
    assert queue.quota.data_bytes == sum(len(batch.raw) for batch in kept[:2])
    # The rest of the queue has all its room.
    others = [make_batch(number, signer=str(number)) for number in range(200)]
    assert queue.quota.refusal(others) is None
    assert queue.quota.share_refusal([make_batch(number) for number in range(180)]) is None
    for entry in list(queue):
        queue.remove(entry)
    assert queue.quota.keeps(kept[:2])
    assert (queue.quota.transactions, queue.quota.data_bytes) == (0, 0)


def test_kept_batches_are_bounded_in_transactions_and_bytes() -> None:
    queue = PendingQueue(Limits(pending_transactions_max=200, pending_bytes_max=100_000))
    assert queue.quota.keeps([batch_of("a", SETTINGS, SETTINGS)])
    assert not queue.quota.keeps([batch_of("a", SETTINGS, SETTINGS, SETTINGS)])
    large = make_batch("large", make_transaction("large", family=SETTINGS, payload=bytes(1_000)))
    assert not queue.quota.keeps([large])
    assert queue.quota.may_keep(200, 1_000)
    assert not queue.quota.may_keep(201, 1_000)
    assert not queue.quota.may_keep(200, 1_001)


def test_batches_that_wait_use_a_part_of_each_limit() -> None:
    queue = PendingQueue(Limits(pending_batches_max=4, pending_transactions_max=10))
    parks: list[Callable[[Pending], None]] = [
        lambda entry: queue.park_for_processor(entry, SERVED),
        lambda entry: queue.park_for_activation(entry, SERVED, "later"),
        lambda entry: queue.park_for_dependency(entry, TransactionId("never"), 10),
    ]
    new = [make_batch("new")]
    for number, park in enumerate(parks):
        entry = queue.add(number, batch_of(number, SERVED, SERVED))
        assert queue.pop_ready() is entry
        assert queue.quota.waiting_refusal(new) is None
        park(entry)
        park(entry)
        refusal = queue.quota.waiting_refusal([*new, make_batch("another")])
        assert refusal is not None
        assert "holds 1 batches that wait" in refusal
        assert "at most 2 (50 % of 4); 2 more" in refusal
        assert "holds 2 transactions" in (queue.quota.waiting_refusal([batch_of("many", *[SERVED] * 4)]) or "")
        assert queue.quota.waiting_refusal([]) is None
        if number:
            queue.remove(entry)
        else:
            queue.put_back(entry)
        assert queue.quota.waiting_refusal([*new, make_batch("another")]) is None
        for left in list(queue):
            queue.remove(left)
