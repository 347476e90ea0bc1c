"""The pending queue: ready batches by arrival, waits and back-offs, the batches held, and batches that do not fit."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.ids import BatchId, TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.mempool.queue import INJECTED, Pending, PendingQueue, Reason
from tests.dovetail.validator.support import make_batch, make_id, make_transaction

FAMILIES = [FamilyVersion("intkey", "1.0"), FamilyVersion("intkey", "2.0"), FamilyVersion("other", "1.0")]
NAMES = count()
DEPENDENCIES = [TransactionId(make_id("transaction", name)) for name in "xyz"]


def popped(queue: PendingQueue) -> Pending:
    entry = queue.pop_ready()
    assert entry is not None
    return entry


def filled(*names: str) -> PendingQueue:
    queue = PendingQueue(Limits())
    for arrival, name in enumerate(names):
        queue.add(arrival, make_batch(name))
    return queue


def refused(queue: PendingQueue, batches: Sequence[VerifiedBatch]) -> str | None:
    """Why batches do not fit: the queue is full, or their signer exceeds its share."""
    share = queue.quota.share_refusal(batches)
    return queue.quota.refusal(batches) or (share.message if share else None)


def order(queue: PendingQueue) -> list[int]:
    """The arrival numbers of ready batches, in the order in which the queue returns them."""
    taken = []
    while (entry := queue.pop_ready()) is not None:
        taken.append(entry.arrival)
    return taken


def test_batches_come_out_in_order_of_arrival_however_they_went_in() -> None:
    queue = PendingQueue(Limits())
    for arrival in (5, 1, 9, 3):
        queue.add(arrival, make_batch(arrival))
    assert order(queue) == [1, 3, 5, 9]
    assert not queue.has_ready
    assert len(queue) == 4


def test_what_is_put_back_keeps_its_place() -> None:
    queue = filled("a", "b", "c")
    first, second = popped(queue), popped(queue)
    assert (first.reason, second.reason) == (Reason.EXECUTING, Reason.EXECUTING)
    queue.put_back(second)
    queue.put_back(first)
    assert first.reason is Reason.QUEUED
    assert order(queue) == [0, 1, 2]


def test_what_waits_for_a_processor_wakes_with_its_family_alone() -> None:
    queue = filled("a", "b", "c")
    for family in (FAMILIES[0], FAMILIES[1]):
        queue.park_for_processor(popped(queue), family)
    entry = queue.get(make_batch("a").id)
    assert entry is not None
    assert (entry.reason, entry.family) == (Reason.WAITING_FOR_PROCESSOR, FAMILIES[0])
    queue.wake(FAMILIES[2])
    queue.wake(FAMILIES[0])
    queue.wake(FAMILIES[0])
    assert (entry.reason, entry.family) == (Reason.QUEUED, None)
    assert order(queue) == [0, 2]


def test_a_wait_for_dependencies_is_timed_from_its_first() -> None:
    queue = filled("a", "b")
    entry = popped(queue)
    queue.park_for_dependency(entry, DEPENDENCIES[0], 100)
    assert (entry.reason, entry.dependency, entry.due_ms) == (Reason.WAITING_FOR_DEPENDENCY, DEPENDENCIES[0], 100)
    queue.wake(DEPENDENCIES[0])
    assert popped(queue) is entry
    queue.park_for_dependency(entry, DEPENDENCIES[1], 900)
    assert entry.due_ms == 100
    assert queue.tick(99) == []
    assert queue.tick(100) == queue.tick(100) == [entry]
    queue.remove(entry)
    assert queue.tick(200) == []
    assert order(queue) == [1]


def test_a_back_off_ends_with_its_time() -> None:
    queue = filled("a", "b")
    entry = popped(queue)
    queue.back_off(entry, 50)
    assert entry.reason is Reason.QUEUED
    assert queue.tick(49) == []
    assert popped(queue).arrival == 1
    assert not queue.has_ready
    assert queue.tick(50) == []
    assert order(queue) == [0]
    assert queue.tick(1_000) == []
    assert not queue.has_ready


def test_new_permissions_wake_whatever_waits() -> None:
    queue = filled("a", "b", "c", "d")
    queue.park_for_processor(popped(queue), FAMILIES[0])
    queue.park_for_dependency(popped(queue), DEPENDENCIES[0], 10)
    queue.park_for_activation(popped(queue), FAMILIES[0], "later")
    queue.back_off(popped(queue), 10)
    # Of the batches of this family, only the first wakes. The third waits for a block, not for a processor.
    queue.wake(FAMILIES[0])
    assert popped(queue).arrival == 0
    queue.wake_all()
    woken = [popped(queue), popped(queue)]
    assert [entry.arrival for entry in woken] == [1, 2]
    assert not queue.has_ready
    assert [entry.activation for entry in woken] == ["", ""]


def test_what_is_injected_comes_first_and_alone() -> None:
    queue = filled("a")
    queue.inject(make_batch("injected"))
    first = popped(queue)
    assert (first.batch.id, first.arrival, first.alone) == (make_batch("injected").id, INJECTED, True)
    assert not popped(queue).alone


def test_what_is_removed_leaves_nothing_behind() -> None:
    queue = filled("a", "b", "c", "d", "e")
    executing, parked, waiting, later = popped(queue), popped(queue), popped(queue), popped(queue)
    queue.park_for_processor(parked, FAMILIES[0])
    queue.park_for_activation(later, FAMILIES[0], "later")
    queue.back_off(waiting, 10)
    ready = queue.get(make_batch("e").id)
    assert ready is not None
    for entry in (executing, parked, waiting, later, ready):
        assert queue.holder(entry.batch.transactions[0].id) is entry
        queue.remove(entry)
        assert queue.holder(entry.batch.transactions[0].id) is None
        assert queue.get(entry.batch.id) is None
    queue.wake(FAMILIES[0])
    assert queue.tick(1_000) == []
    assert not queue.has_ready
    assert len(queue) == 0
    # A batch that was found INVALID may be submitted again.
    queue.add(9, make_batch("d"))
    assert order(queue) == [9]


def test_a_batch_that_comes_again_has_its_new_place() -> None:
    queue = filled("a", "b")
    first = queue.get(make_batch("a").id)
    assert first is not None
    queue.remove(first)
    queue.add(2, make_batch("a"))
    assert order(queue) == [1, 2]


def test_a_transaction_is_held_as_long_as_any_batch_holds_it() -> None:
    shared = make_transaction("shared")
    queue = PendingQueue(Limits())
    for arrival in range(2):
        queue.add(arrival, make_batch(arrival, shared))
    first, second = popped(queue), popped(queue)
    assert queue.holder(shared.id) in (first, second)
    queue.park_for_dependency(first, DEPENDENCIES[0], 10)
    assert queue.holder(shared.id) is second
    queue.park_for_dependency(second, DEPENDENCIES[0], 10)
    assert queue.holder(shared.id) in (first, second)
    queue.remove(first)
    assert queue.holder(shared.id) is second
    queue.remove(second)
    assert queue.holder(shared.id) is None


def test_of_those_that_let_a_batch_go_first_one_at_a_time_has_its_turn() -> None:
    shared = make_transaction("shared")
    queue = PendingQueue(Limits())
    for arrival in range(5):
        queue.add(arrival, make_batch(arrival, shared))
    first, *behind = (popped(queue) for _ in range(5))
    for entry in behind:
        queue.park_for_dependency(entry, shared.id, 10)
    queue.remove(first)
    assert order(queue) == [1]
    queue.wake_refused(shared.id, never_ran=True)
    assert not queue.has_ready
    # The batch lets another batch go first once more. The end of that other batch wakes the next one.
    queue.park_for_dependency(behind[0], shared.id, 10)
    assert not queue.has_ready
    queue.wake_refused(shared.id, never_ran=False)
    assert order(queue) == [2]
    # The batch waits for a processor, so the next batch is ready at once.
    queue.park_for_processor(behind[1], FAMILIES[0])
    assert order(queue) == [3]
    queue.remove(behind[2])
    assert order(queue) == [4]
    queue.back_off(behind[3], 10)
    assert order(queue) == [1]


def test_who_went_first_and_was_put_off_keeps_nobody_behind_it() -> None:
    shared = make_transaction("shared")
    queue = PendingQueue(Limits())
    for arrival in range(2):
        queue.add(arrival, make_batch(arrival, shared))
    first, behind = popped(queue), popped(queue)
    queue.park_for_dependency(behind, shared.id, 10)
    queue.park_for_processor(first, FAMILIES[0])
    assert order(queue) == [1]


def test_whoever_holds_a_transaction_is_found_at_the_first_look_however_many_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = make_transaction("shared")
    queue = PendingQueue(Limits())
    for arrival in range(300):
        queue.add(arrival, make_batch(arrival, make_transaction(("asks", arrival), dependencies=[shared.id]), shared))
    entries = [popped(queue) for _ in range(300)]
    for entry in entries:
        queue.park_for_dependency(entry, shared.id, 10)
    queue.put_back(entries[150])
    looked: list[BatchId] = []

    class Counted(dict[BatchId, Pending]):
        def __getitem__(self, batch_id: BatchId) -> Pending:
            looked.append(batch_id)
            return super().__getitem__(batch_id)

    monkeypatch.setattr(queue, "_entries", Counted(queue._entries))
    assert queue.holder(shared.id) is entries[150]
    assert looked == [entries[150].batch.id]
    assert queue.holds(shared.id)
    assert len(looked) == 1


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(pending_batches_max=3), "holds 2 of at most 3 batches, 2 more do not fit"),
        (Limits(pending_transactions_max=6), "holds 3 of at most 6 transactions, 4 more do not fit"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_values(limits: Limits, said: str) -> None:
    queue = PendingQueue(limits)
    queue.add(0, make_batch("a", make_transaction("a0"), make_transaction("a1")))
    queue.add(1, make_batch("b"))
    more = [make_batch("c"), make_batch("d", *(make_transaction(f"d{number}") for number in range(3)))]
    refusal = queue.quota.refusal(more)
    assert refusal is not None
    assert said in refusal
    assert queue.quota.refusal(more[:1]) is None
    assert queue.quota.refusal([]) is None
    assert queue.quota.is_full() is None
    queue.remove(popped(queue))
    assert queue.quota.refusal(more) is None


def test_bytes_are_bounded_to_the_byte() -> None:
    batch, other = make_batch("a", signer="a"), make_batch("b", signer="b")
    size = len(batch.raw) + len(other.raw)
    for most, fits in ((size, True), (size - 1, False)):
        queue = PendingQueue(replace(Limits(), pending_bytes_max=most, pending_share_percent_max=100))
        queue.add(0, batch)
        assert (queue.quota.refusal([other]) is None) is fits
        assert queue.quota.is_full() is None
    declaring = make_transaction("all", inputs=["1c"] * 30, outputs=["1d"] * 20, dependencies=[DEPENDENCIES[0]] * 10)
    heavy = make_batch("heavy", declaring)
    for most, fits in ((size := len(heavy.raw) + 60 * 200, True), (size - 1, False)):
        queue = PendingQueue(replace(Limits(), pending_bytes_max=most, pending_share_percent_max=100))
        assert (queue.quota.refusal([heavy]) is None) is fits
        assert (queue.quota.share_refusal([heavy]) is None) is fits
    queue.add(0, heavy)
    assert queue.quota.data_bytes == size
    queue.remove(popped(queue))
    assert queue.quota.data_bytes == 0
    for limits in (Limits(pending_batches_max=1), Limits(pending_transactions_max=1), Limits(pending_bytes_max=1)):
        queue = PendingQueue(limits)
        assert queue.quota.is_full() is None
        queue.add(0, batch)
        assert queue.quota.is_full() is not None


def fill(queue: PendingQueue, *signers: str) -> Counter[str]:
    """The keys add batches in turn, until no batch of any key fits. Returns how many batches each key holds."""
    held: Counter[str] = Counter({entry.batch.signer: 0 for entry in queue})
    for entry in queue:
        held[entry.batch.signer] += 1
    while True:
        before = held.total()
        for signer in signers:
            batch = make_batch((signer, next(NAMES)), signer=signer)
            if refused(queue, [batch]) is None:
                queue.add(held.total(), batch)
                held[signer] += 1
        if held.total() == before:
            return held


def test_one_key_leaves_room_for_others_and_many_share_alike() -> None:
    assert fill(PendingQueue(Limits(pending_batches_max=1_000)), "a") == {"a": 900}
    both = fill(PendingQueue(Limits(pending_batches_max=1_000)), "a", "b")
    assert abs(both["a"] - both["b"]) <= 1
    assert both.total() >= 900
    assert fill(PendingQueue(Limits(pending_batches_max=1_000, pending_share_percent_max=100)), "a") == {"a": 1_000}


def test_who_comes_late_finds_room_and_comes_to_hold_as_much() -> None:
    queue = PendingQueue(Limits(pending_batches_max=1_000))
    assert fill(queue, "early") == {"early": 900}
    assert fill(queue, "early", "late") == {"early": 900, "late": 90}
    # The room of settled batches goes to the key with fewer batches, until both keys hold equally many.
    for _ in range(900):
        queue.remove(popped(queue))
        held = fill(queue, "early", "late")
        assert held.total() > 900
    assert abs(held["early"] - held["late"]) < 10


def test_a_key_that_holds_its_share_is_told_so_whatever_it_sends() -> None:
    queue = PendingQueue(Limits(pending_batches_max=20))
    fill(queue, "a" * 66)
    others = [make_batch("other", signer="b" * 66)]
    refusal = queue.quota.share_refusal([*others, make_batch("one more", signer="a" * 66)])
    assert refusal == queue.quota.claims_refusal({"b" * 66: 1, "a" * 66: 1})
    assert refusal is not None
    assert not refusal.for_ever
    assert (
        "holds 18 batches of the key aaaaaaaaaaaaaaaa…, at most 18 while it holds 0 of others; 1 more"
        in refusal.message
    )
    assert queue.quota.share_refusal(others) is queue.quota.claims_refusal({"b" * 66: 1}) is None
    assert queue.quota.refusal([]) is queue.quota.is_full() is None


def test_a_list_that_can_never_fit_is_told_so() -> None:
    queue = PendingQueue(Limits(pending_batches_max=20))
    for count_, for_ever in ((18, None), (19, True)):
        refusal = queue.quota.share_refusal([make_batch((count_, number), signer="a") for number in range(count_)])
        assert (refusal and refusal.for_ever) is for_ever
        claimed = queue.quota.claims_refusal({"a": count_})
        assert claimed == refusal
    assert refusal is not None
    assert refusal.message == "19 batches of the key a… can never be pending, at most 18 can"
    # Two keys together may hold more batches than one key.
    assert queue.quota.claims_refusal({"a": 18, "b": 2}) is None
    said = queue.quota.claims_refusal({"a": 11, "b": 11})
    assert isinstance(said, str)
    assert "22 more do not fit" in said


def test_what_left_before_its_turn_leaves_no_trace() -> None:
    queue = PendingQueue(Limits())
    queue.add(0, make_batch("older"))
    for number in range(10_000):
        queue.remove(queue.add(1 + number, make_batch(("refused", number))))
    assert len(queue._ready) < 2_000
    assert order(queue) == [0]


def test_what_may_be_dropped_is_what_waits_or_is_ready() -> None:
    queue = filled("a", "b", "c", "d", "e", "f")
    queue.inject(make_batch("injected"))
    queue.put_back(popped(queue))
    injected, executing = popped(queue), popped(queue)
    queue.park_for_processor(popped(queue), FAMILIES[0])
    queue.park_for_dependency(popped(queue), DEPENDENCIES[0], 10)
    queue.park_for_activation(popped(queue), FAMILIES[0], "later")
    queue.back_off(popped(queue), 10)
    assert [entry.arrival for entry in queue.droppable()] == [1, 2, 3, 4, 5]
    assert injected.arrival == INJECTED
    queue.put_back(executing)
    assert [entry.arrival for entry in queue.droppable()] == [0, 1, 2, 3, 4, 5]


def test_what_was_dropped_is_not_put_back() -> None:
    queue = filled("a")
    dropped = popped(queue)
    queue.remove(dropped)
    queue.put_back(dropped)
    assert not queue.has_ready
    again = queue.add(7, make_batch("a"))
    queue.back_off(popped(queue), 10)
    queue.put_back(dropped)
    assert queue.is_backing_off
    assert queue.tick(10) == []
    assert popped(queue) is again
