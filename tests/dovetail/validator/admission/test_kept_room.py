"""Room is kept for changes of settings by authorized keys: whatever floods the node, they are accepted."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dovetail.ledger.batch import VerifiedBatch, verify_batch
from dovetail.ledger.building import SignedBatch, build_batch, build_transaction
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import AUTHORIZED_KEYS, SETTINGS, FamilyVersion, encode_setting, setting_address
from dovetail.ledger.signing import Signer
from dovetail.validator.admission.submission import Submissions
from dovetail.validator.admission.verifier import Verified
from dovetail.validator.core.journal.model import InvalidBatch
from dovetail.validator.core.mempool.queue import PendingQueue
from dovetail.validator.store import StorageFailed, Store
from dovetail.validator.transport.gateway import Request
from protos import raw_pb2
from protos.client_batch_submit_pb2 import ClientBatchSubmitResponse
from tests.dovetail.validator.support import LIMITS, commit, make_batch, open_store

HOLDER, STRANGER = Signer("21" * 32), Signer("22" * 32)
INTKEY, OTHER = FamilyVersion("intkey", "1.0"), FamilyVersion("other", "1.0")
SMALL = replace(LIMITS, pending_batches_max=100, pending_share_percent_max=50)
OK, FULL = ClientBatchSubmitResponse.OK, ClientBatchSubmitResponse.QUEUE_FULL


def signed(nonce: object, signer: Signer = HOLDER, *families: FamilyVersion) -> SignedBatch:
    """A batch with a transaction of each family; by default, one that changes settings."""
    return build_batch(
        signer,
        [
            build_transaction(
                signer,
                batcher_pubkey=signer.public_key,
                family_name=family.name,
                family_version=family.version,
                inputs=(),
                outputs=(),
                payload=b"",
                payload_encoding="",
                nonce=str(nonce),
            )
            for family in families or (SETTINGS,)
        ],
    )


def nobody(family: FamilyVersion) -> bool:
    """No family has a processor."""
    return False


class Door:
    """Submissions over a real store and queue. ``verified`` ends the verification of the lists that wait for it."""

    def __init__(self, store: Store, limits: Limits = SMALL) -> None:
        self.store = store
        self.queue = PendingQueue(limits)
        self.queue.quota.serve(INTKEY, nobody)
        self.queue.quota.serve(OTHER, nobody)
        self.answers: list[ClientBatchSubmitResponse] = []
        self.waiting: list[tuple[list[bytes], Callable[[Verified], None]]] = []
        pool: Any = self
        self.submissions = Submissions(
            store,
            self.queue,
            pool,
            limits,
            lambda _, answer: self.answers.append(answer),
            lambda batches: [batch for batch in batches if self.waits(batch)],
        )
        self.waits: Callable[[VerifiedBatch], bool] = lambda batch: False
        self.submissions.open = True

    def verify(self, raw_batches: list[bytes], on_verified: Callable[[Verified], None]) -> None:
        self.waiting.append((raw_batches, on_verified))

    def verified(self) -> ClientBatchSubmitResponse:
        """The answer to the list that waits."""
        ((raw_batches, on_verified),) = self.waiting
        self.waiting.clear()
        on_verified([verify_batch(raw) for raw in raw_batches])
        self.submissions.accept_checked()
        return self.answers[0]

    def send(self, *batches: bytes, identity: bytes = b"client") -> ClientBatchSubmitResponse | None:
        """The answer; None while the list waits for its verification."""
        self.answers.clear()
        content = raw_pb2.RawBatchList(batches=batches).SerializeToString()
        self.submissions.submit(Request(identity, 100, "c", content))
        self.submissions.accept_checked()
        return self.answers[0] if self.answers else None

    def sent(self, batch: SignedBatch) -> int | None:
        answer = self.send(batch.raw)
        return None if answer is None else answer.status

    def fill(self, count: int, signer: str = "somebody") -> None:
        for number in range(count):
            self.queue.add(number, make_batch((signer, number), signer=signer))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path)
    keys = f"{STRANGER.public_key[:-1]}0, {HOLDER.public_key}"
    commit(made, [make_batch("genesis")], {setting_address(AUTHORIZED_KEYS): encode_setting({AUTHORIZED_KEYS: keys})})
    yield made
    made.close()


def full_queue(door: Door) -> None:
    door.fill(SMALL.pending_batches_max)


def full_quota(door: Door) -> None:
    door.fill(50, HOLDER.public_key)


def full_verifiers(door: Door) -> None:
    door.submissions._checking_bytes = SMALL.pending_bytes_max


def full_connection(door: Door) -> None:
    door.submissions._checking_bytes_of[b"client"] = SMALL.connection_checking_bytes_max


FLOODS = [full_queue, full_quota, full_verifiers, full_connection]


@pytest.mark.parametrize("flood", FLOODS)
def test_a_change_of_settings_gets_in(store: Store, flood: Callable[[Door], None]) -> None:
    door = Door(store)
    flood(door)
    batch = signed("a")
    held = len(door.queue)
    assert door.sent(batch) == OK
    assert len(door.queue) == held + 1
    assert [raw for _, raw in store.pending()] == [batch.raw]


@pytest.mark.parametrize("flood", [full_queue, full_quota])
def test_the_room_is_bounded(store: Store, flood: Callable[[Door], None]) -> None:
    door = Door(store)
    flood(door)
    batch = signed("a")
    assert door.sent(batch) == OK
    # One percent of the queue is one batch, which is free again when the batch is settled.
    assert door.sent(signed("b")) == FULL
    entry = door.queue.get(batch.id)
    assert entry is not None
    door.queue.remove(entry)
    assert door.sent(signed("b")) == OK


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize(
    "batch",
    [
        signed("a", STRANGER),
        signed("a", HOLDER, INTKEY),
        signed("a", HOLDER, SETTINGS, INTKEY),
        signed("a", HOLDER, FamilyVersion("sawtooth_settings", "9.9")),
    ],
    ids=["another key", "another family", "another family beside", "another version"],
)
def test_nothing_else_gets_in(store: Store, flood: Callable[[Door], None], batch: SignedBatch) -> None:
    door = Door(store)
    flood(door)
    if flood is full_quota and batch.id == signed("a", STRANGER).id:
        assert door.sent(batch) is None, "the quota of another key is no reason"
    else:
        assert door.sent(batch) == FULL
    assert not list(store.pending())


def test_a_list_that_was_being_verified_when_the_queue_filled_gets_in(store: Store) -> None:
    door = Door(store)
    for batch, status in ((signed("a"), OK), (signed("b", STRANGER), FULL)):
        assert door.sent(batch) is None
        full_queue(door)
        assert door.verified().status == status
        door = Door(store)


def test_forged_and_copied_signatures_use_no_room(store: Store) -> None:
    door = Door(store)
    full_queue(door)
    batch = signed("a")
    forged = raw_pb2.RawBatch.FromString(batch.raw)
    forged.header_signature = signed("b").id
    assert door.send(forged.SerializeToString()) is not None
    assert door.answers[0].status == FULL
    # Everybody can send an INVALID batch of the key again, so its signature says nothing.
    store.reject([InvalidBatch(batch.id, "invalid_transaction", "no")], [])
    assert door.sent(batch) == FULL
    assert door.sent(signed("b")) == OK


def test_lists_beyond_the_room_are_not_verified_here(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(store, replace(SMALL, pending_batches_max=200))
    door.fill(200)
    checked: list[bytes] = []
    monkeypatch.setattr("dovetail.validator.admission.submission.checked_batch", checked.append)
    for batches in ([signed(n) for n in range(3)], [signed("junk")] * 3, [signed("a", STRANGER)]):
        answer = door.send(*(batch.raw for batch in batches))
        assert answer is not None
        assert answer.status == FULL
    assert checked == []


def test_the_keys_are_those_of_the_newest_block(store: Store) -> None:
    door = Door(store)
    full_queue(door)
    at = setting_address(AUTHORIZED_KEYS)
    for keys, status in ((STRANGER.public_key, FULL), ("", FULL), (HOLDER.public_key, OK)):
        commit(store, [make_batch(keys)], {at: encode_setting({AUTHORIZED_KEYS: keys})})
        assert door.sent(signed("a")) == status


@pytest.mark.parametrize("damaged", [b"\xff", None])
def test_without_the_setting_no_room_is_kept(store: Store, damaged: bytes | None) -> None:
    commit(store, [make_batch("next")], {setting_address(AUTHORIZED_KEYS): damaged})
    door = Door(store)
    full_queue(door)
    assert door.sent(signed("a")) == FULL


def test_a_damaged_state_is_no_reason_to_end(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(store)
    full_queue(door)

    def fails(number: int) -> bytes:
        raise StorageFailed("damaged")

    monkeypatch.setattr(store, "node", fails)
    assert door.sent(signed("a")) == FULL


def test_families_that_nobody_served_are_refused_beyond_their_share(store: Store) -> None:
    door = Door(store)
    unserved = FamilyVersion("unserved", "1")
    statuses = []
    for number in range(11):
        assert door.sent(signed(number, STRANGER, INTKEY, unserved)) is None
        statuses.append(door.verified().status)
    assert statuses == [OK] * 10 + [FULL]
    assert "no processor of 'unserved 1' is known here" in door.answers[0].message
    assert "10 of at most 10 batches (10 % of 100), 1 more" in door.answers[0].message
    # The queue itself is not full.
    assert door.submissions.refused_when_full == 0
    assert door.sent(signed("other", STRANGER, INTKEY)) is None
    assert door.verified().status == OK
    door.queue.quota.serve(unserved, nobody)
    assert door.sent(signed(10, STRANGER, unserved)) is None
    assert door.verified().status == OK


def test_batches_that_wait_leave_room_for_batches_that_can_run(store: Store) -> None:
    door = Door(store)
    for number in range(50):
        entry = door.queue.add(number, make_batch(("waits", number), signer=str(number)))
        assert door.queue.pop_ready() is entry
        door.queue.park_for_processor(entry, INTKEY)
    door.waits = lambda batch: batch.transactions[0].family == OTHER
    for family, status in ((OTHER, FULL), (INTKEY, OK), (SETTINGS, OK)):
        assert door.sent(signed("a", HOLDER, family)) is None
        assert door.verified().status == status
        if status == FULL:
            assert "holds 50 batches that wait for a processor, an activation or a dependency, at most 50" in (
                door.answers[0].message
            )
    # Changes of settings have their own room, too, if they would wait.
    door.waits = lambda batch: True
    assert door.sent(signed("b")) is None
    assert door.verified().status == OK
    door.queue.wake(INTKEY)
    door.waits = lambda batch: batch.transactions[0].family == OTHER
    assert door.sent(signed("a", HOLDER, OTHER)) is None
    assert door.verified().status == OK


def test_a_store_that_cannot_say_what_waits_is_told(store: Store) -> None:
    door = Door(store, replace(SMALL, pending_waiting_percent_max=1))

    def fails(batch: VerifiedBatch) -> bool:
        raise StorageFailed("damaged")

    door.waits = fails
    assert door.send(signed("a", HOLDER, INTKEY).raw, signed("b", HOLDER, INTKEY).raw) is None
    assert door.verified().status == ClientBatchSubmitResponse.INTERNAL_ERROR
