"""Writes that a disk, the map or a folder refuses: a failed write changes nothing, and later writes succeed."""

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import lmdb
import pytest

from dovetail.ledger.ids import TransactionId
from dovetail.validator.core.journal.model import InvalidBatch
from dovetail.validator.core.state import merkle
from dovetail.validator.store import StorageFailed, StorageLost, Store
from tests.dovetail.validator.support import (
    LIMITS,
    address,
    commit,
    make_batch,
    make_commit,
    make_id,
    make_transaction,
    open_store,
)


def _never_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "_make_room", lambda store, data_bytes: None)
    monkeypatch.setattr(Store, "_doubled", lambda store: False)


@pytest.mark.parametrize("writes", [1, 5])
def test_a_failing_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """The map is full in the middle of a commit: LMDB refuses, and no table has changed."""
    store = open_store(tmp_path)
    store.add_pending([b"pending"])
    info = commit(store, [make_batch("first")], {address(1): b"one"})
    next_number = store.next_node_number
    _never_grow(monkeypatch)
    big = {address(number): bytes(100_000) for number in range(200)}
    bad = InvalidBatch(make_batch("bad").id, "invalid_transaction", "no")
    for _ in range(writes):
        with pytest.raises(StorageFailed, match="refused a write"):
            store.commit_block(make_commit(store, [make_batch("second")], big, invalid=[bad], settled=[0]))
        with pytest.raises(StorageFailed, match="refused a write"):
            store.add_pending([bytes(80_000_000)])
        with pytest.raises(StorageFailed, match="refused a write"):
            store.reject([bad._replace(extended_data=bytes(80_000_000))], [0])
    monkeypatch.undo()
    second = make_batch("second")
    for reopened in (False, True):
        if reopened:
            store.close()
            store = open_store(tmp_path)
        assert store.head == info
        assert store.next_node_number == next_number
        assert list(store.pending()) == [(0, b"pending")]
        assert store.batch_number(second.id) is None
        assert store.transaction_number(second.transactions[0].id) is None
        assert store.invalid(bad.batch_id) is None
        with pytest.raises(StorageFailed, match="lacks entry"):
            store.node(next_number)
    done = store.commit_block(make_commit(store, [second], big, invalid=[bad], settled=[0]))
    assert merkle.get(store.node, done.root, address(150)) == bytes(100_000)
    assert list(store.pending()) == []
    store.close()


def _fill(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    _never_grow(monkeypatch)
    store.add_pending([bytes(80_000_000)])


def test_where_the_disk_lost_what_it_had_taken_a_failed_write_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    info = commit(store, [make_batch("first")], {address(1): b"one"})

    def lost(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", lost)
    with pytest.raises(
        StorageLost, match=r"refused a write .*; the disk lost data that it had accepted: Input/output error"
    ):
        _fill(store, monkeypatch)
    store.close()
    monkeypatch.undo()
    again = open_store(tmp_path)
    assert again.head == info
    assert list(again.pending()) == []
    again.close()


@pytest.mark.parametrize(
    ("error", "free_bytes", "said"),
    [
        # LMDB's error for a write that the disk accepted in part.
        (OSError(errno.EIO, "Input/output error"), 0, "; there is no room on the disk, 0 bytes are free: make room"),
        (lmdb.DiskError("mdb_txn_commit: Input/output error"), 8192, "no room on the disk, 8192 bytes are free"),
        (OSError(errno.EIO, "Input/output error"), 2 << 20, ""),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 1 << 30, f"no room on the disk, {1 << 30} bytes are free"),
    ],
)
def test_a_full_disk_is_told_as_one_whatever_the_error_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, free_bytes: int, said: str
) -> None:
    store = open_store(tmp_path)

    def refuses(store: Store, data_bytes: int) -> None:
        raise error

    def free(where: object) -> SimpleNamespace:
        return SimpleNamespace(f_bavail=free_bytes // 4096, f_frsize=4096)

    monkeypatch.setattr(Store, "_make_room", refuses)
    monkeypatch.setattr(os, "statvfs", free)
    with pytest.raises(StorageFailed) as failure:
        store.add_pending([b"batch"])
    assert str(failure.value).startswith(f"the store refused a write of 4101 bytes: {error}")
    assert (said in str(failure.value)) if said else "room" not in str(failure.value)
    monkeypatch.undo()
    store.close()


def test_where_lmdb_gives_up_a_failed_write_is_no_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)

    def gives_up(store: Store) -> None:
        raise lmdb.PanicError("mdb_txn_begin", 0)

    monkeypatch.setattr(Store, "_begin", gives_up)
    with pytest.raises(StorageLost, match="the outcome of a write"):
        _fill(store, monkeypatch)
    store.close()
    monkeypatch.undo()
    open_store(tmp_path).close()


FULL_DISK = """
import resource, sys
from pathlib import Path
from tests.dovetail.validator.support import address, commit, make_batch, open_store
from dovetail.validator.core.state import merkle
from dovetail.validator.store import StorageFailed

store = open_store(Path(sys.argv[1]))
info = commit(store, [make_batch(0)], {address(0): b"zero"})
store.add_pending([b"pending"])
size = (Path(sys.argv[1]) / "store" / "data.mdb").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 2_000_000, resource.RLIM_INFINITY))
for _ in range(3):
    try:
        commit(store, [make_batch(1)], {address(number): bytes(100_000) for number in range(100)})
    except StorageFailed as failure:
        print(str(failure)[:40])
    assert store.head == info
    assert list(store.pending()) == [(0, b"pending")]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
info = commit(store, [make_batch(1)], {address(number): bytes(100_000) for number in range(100)})
assert merkle.get(store.node, info.root, address(99)) == bytes(100_000)
store.close()
print("wrote", info.num)
"""


def test_a_full_disk_is_a_refusal_and_no_end(tmp_path: Path) -> None:
    """The process limits the size of its files. This limit acts like a full disk."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    refused, last = done.stdout.splitlines()[:-1], done.stdout.splitlines()[-1]
    assert [line[:25] for line in refused] == ["the store refused a write"] * 3
    assert last == "wrote 1"


def test_the_map_grows_over_many_commits(tmp_path: Path) -> None:
    store = open_store(tmp_path, replace(LIMITS, store_map_bytes_initial=256 * 1024))
    value = bytes(200_000)
    for num in range(60):
        batches = [make_batch((num, 0), make_transaction((num, 0), payload=value)), make_batch((num, 1))]
        commit(store, batches, {address(num * 10 + place): value for place in range(4)})
    assert store.add_pending([bytes(30_000_000)]) == 0
    store.close()
    again = open_store(tmp_path, replace(LIMITS, store_map_bytes_initial=256 * 1024))
    head = again.head
    assert head is not None
    assert (head.num, head.root.leaves) == (59, 240)
    for num in range(60):
        assert merkle.get(again.node, head.root, address(num * 10 + 3)) == value
        assert again.batch_number(make_batch((num, 1)).id) == 2 * num + 1
    again.close()


def test_a_map_that_was_small_is_no_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that exceeds its estimate succeeds, and is not reported as a disk failure."""
    store = open_store(tmp_path)
    monkeypatch.setattr(Store, "_make_room", lambda store, data_bytes: None)
    big = {address(number): bytes(100_000) for number in range(30)}
    assert store.add_pending([bytes(3_000_000), b"next"]) == 0
    assert store.next_arrival == 2
    info = commit(store, [make_batch("first")], big)
    bad = InvalidBatch(make_batch("bad").id, "invalid_transaction", "no", extended_data=bytes(20_000_000))
    store.reject([bad], [0])
    store.remember_invalid([bad._replace(batch_id=make_batch("worse").id, extended_data=bytes(40_000_000))], [])
    assert (store.failure, store.refused_writes) == (None, 0)
    store.close()
    again = open_store(tmp_path)
    assert again.head == info
    assert list(again.pending()) == [(1, b"next")]
    assert again.invalid(bad.batch_id) == bad
    again.close()


def test_room_is_made_for_every_transaction_judged_invalid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One INVALID batch may hold many transactions, and the store records each of them."""
    store = open_store(tmp_path)
    make_room = Store._make_room
    asked: list[int] = []

    def making(store: Store, data_bytes: int) -> None:
        asked.append(data_bytes)
        make_room(store, data_bytes)

    monkeypatch.setattr(Store, "_make_room", making)
    transactions = tuple(TransactionId(make_id(place)) for place in range(10_000))
    before = store.used_bytes()
    store.reject([InvalidBatch(make_batch(0).id, "dependency_invalid", "no", transaction_ids=transactions)], [])
    assert 1_000_000 < store.used_bytes() - before <= asked[-1]
    store.close()


def test_another_format_is_refused_and_nothing_stays_open(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    with lmdb.open(str(tmp_path / "store"), max_dbs=20) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin(write=True) as transaction:
            transaction.put(b"format", b"dovetail-store-1", db=meta)
    for _ in range(2):
        with pytest.raises(StorageFailed, match="format dovetail-store-1, this release reads dovetail-store-4 only"):
            open_store(tmp_path)


def test_what_cannot_be_opened_is_refused_and_nothing_stays_open(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where the folder belongs")
    with pytest.raises(StorageFailed, match="cannot open the store"):
        open_store(tmp_path)
    other = tmp_path / "other" / "store"
    other.mkdir(parents=True)
    (other / "data.mdb").write_bytes(b"no database" * 1_000)
    for _ in range(2):
        with pytest.raises(StorageFailed, match="cannot open the store"):
            open_store(tmp_path / "other")


def test_a_store_has_one_owner(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(StorageFailed, match="in use by another validator"):
        open_store(tmp_path)
    store.close()
    open_store(tmp_path).close()
