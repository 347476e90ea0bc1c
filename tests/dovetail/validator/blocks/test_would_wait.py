"""Which new batches no block could run now."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.permitted import Permission, encode_permitted_families
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.blocks.production import Production
from dovetail.validator.core.consensus.solo import SoloEngine
from dovetail.validator.core.mempool.queue import PendingQueue
from dovetail.validator.metrics import Metrics
from dovetail.validator.store import Store
from tests.dovetail.validator.processors_support import FAMILY, Bench
from tests.dovetail.validator.support import (
    SIGNER,
    commit,
    make_batch,
    make_id,
    make_transaction,
    no_network,
    open_store,
    permitting,
)

ABSENT, LATER, BARRED = (FamilyVersion(name, "1") for name in ("absent", "later", "barred"))
PERMITTED = permitting(
    encode_permitted_families([Permission(FAMILY), Permission(ABSENT), Permission(LATER, from_block=9)])
)


def batch_of(name: str, *families: FamilyVersion, after: str = "") -> VerifiedBatch:
    """A batch whose transactions depend on that of the batch ``after``."""
    dependencies = [TransactionId(make_id("transaction", (after, 0)))] if after else []
    held = [
        make_transaction((name, number), family=family, dependencies=dependencies)
        for number, family in enumerate(families or (FAMILY,))
    ]
    return make_batch(name, *held)


class Making:
    def __init__(self, store: Store) -> None:
        commit(store, [batch_of("committed")], PERMITTED)
        bench = Bench()
        for number, family in enumerate((FAMILY, LATER)):
            bench.register(b"%d" % number, family)
        self.queue = PendingQueue(bench.limits)
        self.production = Production(
            store,
            self.queue,
            bench.processors,
            SoloEngine(1),
            no_network,
            SIGNER,
            bench.limits,
            lambda: 0,
            lambda: 0,
            Metrics(bench.limits, lambda: 0),
        )

    def waiting(self, *batches: VerifiedBatch) -> list[VerifiedBatch]:
        return self.production.would_wait(batches)


@pytest.fixture
def making(tmp_path: Path) -> Iterator[Making]:
    store = open_store(tmp_path)
    yield Making(store)
    store.close()


def test_families_that_run_now_do_not_wait(making: Making) -> None:
    assert making.waiting(batch_of("a"), batch_of("b", after="committed"), batch_of("c", FAMILY, FAMILY)) == []
    # What the rules refuse is decided at once.
    assert making.waiting(batch_of("d", BARRED), batch_of("committed")) == []


def test_one_missing_thing_suffices(making: Making) -> None:
    waiting = [
        batch_of("a", ABSENT),
        batch_of("b", FAMILY, ABSENT),
        batch_of("c", LATER),
        batch_of("d", after="never"),
        batch_of("e", after="d"),
    ]
    assert making.waiting(*waiting) == waiting


def test_a_list_brings_what_its_later_batches_need(making: Making) -> None:
    first, second = batch_of("first"), batch_of("second", after="first")
    assert making.waiting(first, second) == []
    assert making.waiting(second, first) == [second]


def test_a_pending_batch_brings_what_it_holds_unless_it_waits(making: Making) -> None:
    entry = making.queue.add(0, batch_of("first"))
    second = batch_of("second", after="first")
    assert making.waiting(second) == []
    assert making.queue.pop_ready() is entry
    assert making.waiting(second) == []
    making.queue.park_for_processor(entry, FAMILY)
    assert making.waiting(second) == [second]
