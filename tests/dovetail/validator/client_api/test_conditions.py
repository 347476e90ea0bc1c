"""The conditions that keep a node from working: when each begins and ends, its message, and where it is shown."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from dovetail.ledger.ids import BatchId, TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.blocks.production import Work
from dovetail.validator.client_api.conditions import Kind
from dovetail.validator.processors.comparing import Difference, Side
from dovetail.validator.store import StorageDamaged, StorageFailed, Store
from tests.dovetail.validator.client_api.test_clients import Bench
from tests.dovetail.validator.processors_support import FAMILY, OTHER, make_task
from tests.dovetail.validator.processors_support import Bench as Processed
from tests.dovetail.validator.support import LIMITS, commit, make_batch, make_transaction, open_store

SMALL = replace(
    LIMITS, pending_batches_max=3, pending_share_percent_max=100, no_block_ms_max=2_000, processor_missing_ms_max=1_000
)


class Conditioned(Bench):
    """Clients of a store, with a clock and a production that the test controls."""

    def __init__(self, store: Store, limits: Limits = SMALL, *, now_ms: float = 0.0) -> None:
        self.now_ms = now_ms
        self.made = Work(0, False)
        super().__init__(store, limits, work=lambda: self.made, clock_ms=lambda: self.now_ms)

    def tick(self, pass_ms: int = 0) -> list[str]:
        """Advance the clock. Returns the conditions that hold then."""
        self.now_ms += pass_ms
        self.clients.conditions.tick()
        return [held.kind for held in self.clients.conditions.held]

    def message(self) -> str:
        (held,) = self.clients.conditions.held
        return held.message

    def add(self, name: str, **more: Any) -> None:
        self.queue.add(len(self.queue), make_batch(name, make_transaction(name, **more)))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path)
    commit(store, [make_batch("genesis")])
    yield store
    store.close()


def test_a_node_that_works_has_none(store: Store) -> None:
    bench = Conditioned(store)
    assert bench.tick() == []
    bench.add("one")
    assert bench.tick() == []
    assert list(bench.clients.node_status.status().conditions) == []


def test_what_was_before_the_start_is_no_time_without_a_block(store: Store) -> None:
    """The clock may start at any value, and a restored batch may be executing at the first tick."""
    bench = Conditioned(store, now_ms=41_849_000.0)
    bench.made = Work(0, True)
    assert bench.tick(500) == []
    assert bench.tick(1_400) == []
    assert bench.tick(100) == [Kind.NO_BLOCK]
    assert "for 2 s" in bench.message()


def test_a_full_queue_is_one_and_ends_some_time_after_its_last_refusal(store: Store) -> None:
    bench = Conditioned(store, replace(SMALL, no_block_ms_max=1_000_000))
    for name in "abc":
        bench.add(name)
    assert bench.tick() == [Kind.QUEUE_FULL]
    assert "3 of at most 3 are pending" in bench.message()
    taken = bench.queue.pop_ready()
    assert taken is not None
    bench.queue.remove(taken)
    assert bench.tick(1) == []
    # A list of two batches does not fit. Its refusal must be reported, though one batch would fit.
    assert bench.submitted(make_batch("d"), make_batch("e")).reason == "queue_full"
    assert bench.tick(1) == [Kind.QUEUE_FULL]
    assert bench.tick(9_000) == [Kind.QUEUE_FULL]
    assert bench.tick(2_000) == []


def test_work_without_progress_is_one(store: Store) -> None:
    bench = Conditioned(store)
    bench.made = Work(settled=5, executes=True)
    assert bench.tick() == []
    assert bench.tick(1_999) == []
    bench.made = Work(settled=6, executes=True)
    assert bench.tick(1) == []
    assert bench.tick(1_999) == []
    assert bench.tick(1) == [Kind.NO_BLOCK]
    assert "no batch was settled for 2 s" in bench.message()
    assert bench.message().endswith(
        "No processor holds any: the status of one (dovetail batch status) says how it was tried in vain"
    )
    assert bench.tick(60_000) == [Kind.NO_BLOCK]
    bench.made = Work(settled=7, executes=False)
    assert bench.tick(1) == []
    # Idle time is no condition, however long it lasts.
    assert bench.tick(60_000) == []
    bench.add("ready")
    assert bench.tick(1) == []
    assert bench.tick(2_000) == [Kind.NO_BLOCK]


def test_who_holds_the_work_longest_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Conditioned(store)
    processors = Processed()
    monkeypatch.setattr(bench.processors, "longest_held", processors.processors.longest_held)
    for identity, family in ((b"idle", FAMILY), (b"\0slow", OTHER), (b"later", FAMILY)):
        processors.register(identity, family)
    for number, family in ((1, OTHER), (2, FAMILY)):
        processors.start(make_task(number)._replace(route=family))
        processors.now_ms += 10_900
    bench.made = Work(0, True)
    assert bench.tick() == []
    assert bench.tick(2_000) == [Kind.NO_BLOCK]
    assert bench.message().endswith(
        "The processor with the connection 00736c6f77 has held 1 transactions of 'other 2.0' for 21 s (dovetail"
        " processors): see what its log says, and start it again if it hangs"
    )


def test_a_batch_that_only_backs_off_counts_as_work(store: Store) -> None:
    bench = Conditioned(store)
    bench.add("fails")
    entry = bench.queue.pop_ready()
    assert entry is not None
    bench.queue.back_off(entry, 10**9)
    assert bench.tick() == []
    assert bench.tick(2_000) == [Kind.NO_BLOCK]


def test_batches_that_wait_for_a_processor_are_one_after_a_while(store: Store) -> None:
    bench = Conditioned(store, replace(SMALL, pending_batches_max=100))
    families = [FamilyVersion(name, "1.0") for name in ("a", "b", "c", "d\n", "e" * 1_000)]
    for number, family in enumerate(families):
        for copy in range(5 - number):
            bench.add(f"{number} {copy}", family=family)
            entry = bench.queue.pop_ready()
            assert entry is not None
            bench.queue.park_for_processor(entry, family)

    def settle(some: list[FamilyVersion]) -> None:
        for entry in list(bench.queue):
            if entry.family in some:
                bench.queue.remove(entry)

    assert bench.tick() == []
    assert bench.tick(999) == []
    assert bench.tick(1) == [Kind.PROCESSOR_MISSING]
    assert "15 batches wait for a processor of 'a 1.0', 'b 1.0', 'c 1.0' and 2 other families" in bench.message()
    settle(families[:3])
    assert bench.tick(1) == [Kind.PROCESSOR_MISSING]
    assert "\n" not in bench.message()
    assert "'d\\n 1.0'" in bench.message()
    assert len(bench.message()) < 400
    settle(families[3:])
    assert bench.tick(1) == []


def test_a_processor_that_comes_and_goes_and_settles_nothing_ends_neither_wait(store: Store) -> None:
    """The processor holds its batch for a second, dies while applying the batch, and is gone for another second."""
    bench = Conditioned(store)
    bench.add("poison", family=FAMILY)
    seen = []
    for _ in range(4):
        entry = bench.queue.pop_ready()
        assert entry is not None
        bench.made = Work(0, True)
        seen.append([bench.tick(500), bench.tick(500)])
        bench.made = Work(0, False)
        bench.queue.park_for_processor(entry, FAMILY)
        seen.append([bench.tick(500), bench.tick(500)])
        bench.queue.wake(FAMILY)
    none: list[str] = []
    both: list[str] = [Kind.NO_BLOCK, Kind.PROCESSOR_MISSING]
    assert seen[:2] == [[none, none], [none, none]]
    assert seen[2] == [none, [Kind.NO_BLOCK]]
    # A condition lasts until the processor settles a batch.
    assert seen[3:] == [[both, both]] * 5
    bench.made = Work(1, True)
    assert bench.tick(1) == [Kind.PROCESSOR_MISSING]
    (left,) = bench.queue
    bench.queue.remove(left)
    assert bench.tick(1) == []


def test_a_processor_that_came_is_not_missing_for_ever(store: Store) -> None:
    """Once the processor has the waiting batch, the condition ends.

    A batch that is not settled is another condition.
    """
    bench = Conditioned(store, replace(SMALL, no_block_ms_max=1_000_000))
    bench.add("slow", family=FAMILY)
    entry = bench.queue.pop_ready()
    assert entry is not None
    bench.queue.park_for_processor(entry, FAMILY)
    assert bench.tick() == []
    assert bench.tick(1_000) == [Kind.PROCESSOR_MISSING]
    bench.queue.wake(FAMILY)
    assert bench.tick(10_000) == [Kind.PROCESSOR_MISSING]
    assert bench.tick(1) == []


def test_a_refused_write_is_one_until_a_write_goes_well(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Conditioned(store)

    def no_room(self: Store, data_bytes: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Store, "_make_room", no_room)
    with pytest.raises(StorageFailed):
        store.add_pending([b"batch"])
    for _ in range(2):
        assert bench.tick(500) == [Kind.STORAGE_FAILED]
        assert "a write of 4101 bytes: [Errno 28] No space left on device" in bench.message()
        assert "bytes are free" in bench.message()
    monkeypatch.undo()
    # Refusals shortly after each other are one condition, with the disk's message.
    assert bench.tick(500) == [Kind.STORAGE_FAILED]
    assert store.failure is None
    assert "a write of 4101 bytes: [Errno 28] No space left on device" in bench.message()
    assert bench.tick(8_900) == [Kind.STORAGE_FAILED]
    assert bench.tick(200) == []
    assert list(store._env.begin(db=store._tables["meta"]).cursor().iternext(values=False)) == [b"format"]


def test_damage_that_was_met_is_one_until_the_validator_ends(store: Store) -> None:
    bench = Conditioned(store)
    assert bench.tick() == []
    with pytest.raises(StorageDamaged):
        store.node(999)
    assert bench.tick(500) == [Kind.STORE_DAMAGED]
    assert "gets a 500: the store lacks entry 999 of nodes. So far 1 reads met damage" in bench.message()
    assert "`dovetail store repair`" in bench.message()
    assert "dovetail_validator_damaged_reads_total 1.0" in bench.clients.node_status.text().decode()
    commit(store, [make_batch("next")])
    assert bench.tick(60_000) == [Kind.STORE_DAMAGED]
    (told,) = bench.clients.node_status.status().conditions
    assert (told.condition, told.seconds) == ("store_damaged", 60.0)


def test_each_is_logged_when_it_begins_and_ends_and_told_meanwhile(store: Store) -> None:
    bench = Conditioned(store)
    bench.made = Work(0, True)
    with capture_logs() as lines:
        for pass_ms in (0, 2_000, 500, 500):
            bench.tick(pass_ms)
        status = bench.clients.node_status.status()
        metrics = bench.clients.node_status.text().decode()
        bench.made = Work(1, False)
        bench.tick(1_000)
    began, ended = lines
    assert (began["log_level"], began["event"], began["condition"]) == ("warning", "condition began", "no_block")
    assert "No processor holds any" in began["message"]
    assert (ended["log_level"], ended["condition"], ended["seconds"]) == ("info", "no_block", 2.0)
    (told,) = status.conditions
    assert (told.condition, told.seconds) == ("no_block", 1.0)
    assert "no batch was settled for 3 s" in told.message
    assert 'dovetail_validator_condition{condition="no_block"} 1.0' in metrics
    assert 'dovetail_validator_condition{condition="queue_full"} 0.0' in metrics


def test_a_small_write_that_goes_well_ends_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small write fits into free pages of the file, on a full disk."""
    bench = Conditioned(store)
    make_room = Store._make_room

    def small_alone(self: Store, data_bytes: int) -> None:
        if data_bytes > 100_000:
            raise OSError(28, "No space left on device")
        make_room(self, data_bytes)

    monkeypatch.setattr(Store, "_make_room", small_alone)
    monkeypatch.setattr(Store, "free_bytes", lambda self: 0)
    with pytest.raises(StorageFailed):
        store.add_pending([bytes(1_000_000)])
    for _ in range(60):
        store.add_pending([b"small"])
        assert bench.tick(500) == [Kind.STORAGE_FAILED]
    monkeypatch.undo()
    assert bench.tick(500) == []


def test_a_disk_that_does_not_tell_its_room_ends_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Conditioned(store)

    def stale(descriptor: int) -> os.statvfs_result:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(os, "fstatvfs", stale)
    assert store.free_bytes() is None
    assert "disk_free_bytes" not in bench.clients.node_status.text().decode()
    store.failure, store.refused_writes = "the disk errs", 1
    assert bench.tick() == [Kind.STORAGE_FAILED]
    assert "the free space of its disk is unknown" in bench.message()


def test_without_a_chain_or_a_disk_that_takes_blocks_there_is_no_other_name_for_it(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    try:
        bench = Conditioned(store)
        bench.made = Work(0, True)
        assert bench.tick() == bench.tick(60_000) == []
        commit(store, [make_batch("genesis")])
        assert bench.tick() == []
        assert bench.tick(2_000) == [Kind.NO_BLOCK]
        store.failure, store.refused_writes, store._failed_bytes = "the disk errs", 1, 1 << 60
        assert bench.tick(1) == [Kind.STORAGE_FAILED]
    finally:
        store.close()


def test_a_list_of_junk_makes_no_full_queue_of_an_idle_one(store: Store) -> None:
    bench = Conditioned(store, replace(SMALL, pending_batches_max=20, pending_share_percent_max=90))
    for junk in ([b"%d" % number for number in range(19)], [make_batch(number).raw for number in range(19)]):
        answer = bench.submitted(*junk)
        assert (answer.reason, bench.tick(1)) == ("too_large", [])
        assert "at most 18 can" in answer.message


def test_a_stuck_processor_is_named_until_it_answers(store: Store) -> None:
    bench = Conditioned(store, replace(SMALL, task_answer_ms_max=1_000))
    processed = Processed(replace(SMALL, task_answer_ms_max=1_000), now_ms=0)
    bench.clients.conditions._processors = processed.processors
    processed.register(b"stuck", build_id="x" * 200)
    sent = processed.start(make_task(1))
    assert bench.tick() == []
    processed.now_ms = 1_001
    processed.processors.tick()
    assert bench.tick(1_001) == [Kind.PROCESSOR_STUCK]
    said = bench.message()
    assert said.startswith(
        f"the processor with the connection {b'stuck'.hex()[:16]}, build '{'x' * 60}…' did not answer 1 transactions of"
        " 'intkey 1.0' within task_answer_ms_max (1000 ms)"
    )
    processed.register(b"other")
    processed.start(make_task(2))
    processed.now_ms = 2_002
    processed.processors.tick()
    bench.tick(1_001)
    assert "So did 1 other processors." in bench.message()
    processed.answer(sent, b"")
    assert bench.tick() == [Kind.PROCESSOR_STUCK]
    processed.gone.add(b"other")
    processed.processors.probe()
    assert bench.tick() == []


def test_processors_that_differ_are_named_until_one_is_gone(store: Store) -> None:
    bench = Conditioned(store)
    sides = [Side(name, build, answer) for name, build, answer in ((b"one", "1.0", "OK"), (b"two", "", "INVALID: no"))]
    held = [Difference(FAMILY, BatchId("b" * 128), TransactionId("c" * 128), *sides)]
    bench.clients.conditions._comparisons.differences = lambda: held  # type: ignore[method-assign]
    assert bench.tick() == [Kind.PROCESSORS_DIFFER]
    assert bench.message().startswith(
        f"two processors of 'intkey 1.0' judge differently: for transaction {'c' * 16}… of batch {'b' * 16}…,"
        f" connection {b'one'.hex()}, build '1.0' answered 'OK'; connection {b'two'.hex()} answered 'INVALID: no'."
    )
    held.insert(0, held[0]._replace(family=OTHER))
    bench.tick()
    assert "judge differently, and processors of 1 other families: " in bench.message()
    bench.comparisons.counts.update({"same": 4, "different": 2})
    metrics = bench.clients.node_status.text().decode()
    assert 'dovetail_validator_condition{condition="processors_differ"} 1.0' in metrics
    assert 'dovetail_validator_comparisons_total{outcome="same"} 4.0' in metrics
    assert 'dovetail_validator_comparisons_total{outcome="different"} 2.0' in metrics
    held.clear()
    assert bench.tick() == []
