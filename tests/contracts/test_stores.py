"""The contract of the store, on LMDB and on the simulated disk: equal writes leave equal tables, failed ones none."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from dovetail.validator.core.journal.model import InvalidBatch
from dovetail.validator.store import StorageFailed, Store
from dovetail.validator.store.records import TABLES
from tests.dovetail.validator.support import LIMITS, address, commit, make_batch, make_commit, make_transaction
from tests.system.simulation.disk import Crashed, Disk, Fault

FEW = replace(LIMITS, invalid_batches_remembered=4, invalid_transactions_remembered=6)
Tables = dict[str, list[tuple[bytes, bytes]]]


class Place:
    """Where a store is kept: on the simulated disk if one is given, otherwise in a folder."""

    def __init__(self, folder: Path, disk: Disk | None) -> None:
        self._folder = folder
        self._disk = disk

    def open(self) -> Store:
        folder = self._folder / "store"
        return Store(folder, FEW) if self._disk is None else self._disk.open_store(folder, FEW)


class Faults:
    """The faults of the next writes of a simulated disk; the writes after these succeed."""

    def __init__(self) -> None:
        self.coming: list[Fault] = []

    def next(self) -> Fault:
        return self.coming.pop(0) if self.coming else Fault.NONE


@pytest.fixture(params=["lmdb", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, None if request.param == "lmdb" else Disk())


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    opened = place.open()
    yield opened
    opened.close()


def tables_of(store: Store) -> Tables:
    return {name: list(store.raw_entries(name)) for name in TABLES}


def write_much(store: Store, seed: int, steps: int) -> None:
    """Accept, commit or reject batches ``steps`` times, as a seed draws. The store may hold data already."""
    rng = Random(seed)
    for step in range(steps):
        name = (seed, step)
        pending = [arrival for arrival, _ in store.pending()]
        settled = rng.sample(pending, rng.randint(0, len(pending)))
        bad = make_batch((*name, rng.randint(0, 2)))
        invalid = [
            InvalidBatch(bad.id, "invalid_transaction", f"no {step}", transaction_ids=(bad.transactions[0].id,))
            for _ in range(rng.randint(0, 2))
        ]
        kind = rng.choice(["accept", "commit", "commit", "reject"])
        if kind == "accept":
            store.add_pending([b"%d" % number for number in range(rng.randint(0, 4))])
        elif kind == "reject":
            store.reject(invalid, settled)
        else:
            batches = [
                make_batch((*name, place), make_transaction((*name, place))) for place in range(rng.randint(0, 3))
            ]
            changes = {
                address(rng.randint(0, 9)): rng.choice([None, b"", b"%d" % step, bytes(rng.randint(0, 2_000))])
                for _ in range(4)
            }
            store.commit_block(make_commit(store, batches, changes, invalid=invalid, settled=settled))


@pytest.mark.parametrize("seed", range(4))
def test_the_same_writes_leave_the_same_tables(tmp_path: Path, seed: int) -> None:
    left = []
    for place in (Place(tmp_path / "real", None), Place(tmp_path / "fake", Disk())):
        for part in range(3):
            store = place.open()
            write_much(store, seed + 10 * part, 12)
            counts = {name: store.count(name) for name in TABLES}
            left.append((tables_of(store), counts, store.head, store.next_arrival, store.next_node_number))
            store.close()
    assert left[:3] == left[3:]


def test_a_reopened_store_holds_the_same(place: Place) -> None:
    store = place.open()
    write_much(store, 1, 20)
    before = (tables_of(store), store.head, store.next_node_number)
    store.close()
    again = place.open()
    assert (tables_of(again), again.head, again.next_node_number) == before
    again.close()


def test_a_stored_block_is_not_overwritten(store: Store) -> None:
    commit(store, [make_batch(0)], {address(0): b"0"})
    genesis = store.head
    made = make_commit(store, [make_batch(1)], {address(1): b"1"})
    commit(store, [], {address(2): b"2"})
    store.head = genesis
    before = tables_of(store)
    with pytest.raises(StorageFailed, match="1 of 1 entries are not behind the last of the table blocks"):
        store.commit_block(made)
    assert store.head is genesis
    assert tables_of(store) == before


WRITES: tuple[Callable[[Store], object], ...] = (
    lambda store: store.add_pending([b"x"]),
    lambda store: commit(store, [make_batch("x")], {address(1): b"x"}),
    lambda store: store.reject([InvalidBatch(make_batch("x").id, "invalid_transaction", "no")], [0]),
)


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.NOT_SYNCED])
@pytest.mark.parametrize("write", WRITES)
def test_a_refused_write_leaves_nothing(tmp_path: Path, write: Callable[[Store], object], fault: Fault) -> None:
    faults = Faults()
    store = Disk(faults.next).open_store(tmp_path, FEW)
    write_much(store, 2, 10)
    before = (tables_of(store), store.head, store.next_arrival, store.next_node_number)
    faults.coming = [fault]
    with pytest.raises(StorageFailed, match="refused a write"):
        write(store)
    assert (tables_of(store), store.head, store.next_arrival, store.next_node_number) == before
    write(store)
    assert tables_of(store) != before[0]
    store.close()


@pytest.mark.parametrize(("fault", "kept"), [(Fault.CRASH_BEFORE, False), (Fault.CRASH_AFTER, True)])
@pytest.mark.parametrize("write", WRITES)
def test_a_crash_keeps_synced_writes(
    tmp_path: Path, write: Callable[[Store], object], fault: Fault, kept: bool
) -> None:
    faults = Faults()
    disk = Disk(faults.next)
    store = disk.open_store(tmp_path, FEW)
    write_much(store, 3, 10)
    before = tables_of(store)
    faults.coming = [fault]
    with pytest.raises(Crashed):
        write(store)
    store.close()
    again = disk.open_store(tmp_path, FEW)
    assert (tables_of(again) != before) == kept
    again.close()
