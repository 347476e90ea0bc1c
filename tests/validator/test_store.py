"""The store: what is committed is there after reopening, what failed left nothing, ids and numbers find each other."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import lmdb
import pytest

from ledger.batch import VerifiedBatch
from ledger.ids import BatchId, BlockId, TransactionId
from tests.validator.support import (
    LIMITS,
    address,
    commit,
    make_batch,
    make_commit,
    make_id,
    make_transaction,
    open_store,
)
from validator.journal.model import BlockCommit, InvalidBatch
from validator.state import merkle
from validator.store import StorageFailed, Store

CHAIN = [[3], [1, 1], [], [2, 1, 4], [1]]
"""For each block, the number of transactions of each of its batches."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def chain_batches() -> list[list[VerifiedBatch]]:
    return [
        [
            make_batch((num, position), *(make_transaction((num, position, place)) for place in range(count)))
            for position, count in enumerate(counts)
        ]
        for num, counts in enumerate(CHAIN)
    ]


def test_a_new_store_is_empty(store: Store) -> None:
    assert store.head is None
    assert store.next_node_number == 1
    assert store.block(0) is None
    assert store.block(-1) is None
    assert store.block_num(BlockId(make_id("b"))) is None
    assert store.batch_number(BatchId(make_id("b"))) is None
    assert store.transaction_number(TransactionId(make_id("t"))) is None
    assert store.invalid(BatchId(make_id("b"))) is None
    assert list(store.pending()) == []


def check_chain(store: Store, infos: list[object]) -> None:
    """Everything that the chain of ``chain_batches`` must answer."""
    batch_number = transaction_number = 0
    for num, batches in enumerate(chain_batches()):
        info = store.block(num)
        assert info == infos[num]
        assert info is not None
        assert store.block_num(info.id) == num
        assert info.header.batch_ids == tuple(batch.id for batch in batches)
        assert info.state_root == info.header.state_root_hash
        assert (info.first_batch, info.first_transaction) == (batch_number, transaction_number)
        assert store.batches(info) == [batch.raw for batch in batches]
        for batch in batches:
            assert store.batch_number(batch.id) == batch_number
            assert store.block_of_batch(batch_number) == info
            assert store.batch(batch_number) == (batch_number, num, transaction_number, batch.raw)
            for position, transaction in enumerate(batch.transactions):
                assert store.transaction_number(transaction.id) == transaction_number
                assert store.block_of_transaction(transaction_number) == info
                stored = store.transaction(transaction_number)
                assert stored[:3] == (transaction_number, batch_number, position)
                assert transaction.id.encode() in stored.receipt
                transaction_number += 1
            batch_number += 1
        assert (info.batch_end, info.transaction_end) == (batch_number, transaction_number)
    assert store.head == infos[-1]
    assert store.block(len(CHAIN)) is None


def test_a_chain_is_there_after_reopening(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    infos: list[object] = []
    for num, batches in enumerate(chain_batches()):
        infos.append(commit(store, batches, {address(num): b"%d" % num, address(num - 2): None}))
    check_chain(store, infos)
    root, next_number = infos[-1].root, store.next_node_number  # type: ignore[attr-defined]
    store.close()
    again = open_store(tmp_path)
    check_chain(again, infos)
    assert again.next_node_number == next_number
    assert {num: merkle.get(again.node, root, address(num)) for num in range(6)} == {
        0: None, 1: None, 2: None, 3: b"3", 4: b"4", 5: None
    }  # fmt: skip
    commit(again, [make_batch("more")], {address(9): b"9"})
    again.close()


def test_what_is_not_on_the_chain_is_a_failure_not_an_answer(store: Store) -> None:
    commit(store, [make_batch(0)])
    for read in (store.batch, store.transaction, store.node):
        with pytest.raises(StorageFailed, match="lacks entry 77"):
            read(77)


def test_a_block_must_extend_the_head(store: Store) -> None:
    first = make_commit(store, [make_batch(0)])
    later = first._replace(
        block=first.block._replace(header=first.block.header._replace(block_num=1)),
    )
    with pytest.raises(ValueError, match="does not extend the head"):
        store.commit_block(later)
    store.commit_block(first)
    for wrong in (first, _moved(store, block_num=2), _moved(store, previous_block_id=BlockId("00" * 64))):
        with pytest.raises(ValueError, match="does not extend the head 0"):
            store.commit_block(wrong)
    assert store.head is not None
    assert store.head.num == 0
    commit(store, [make_batch(1)])


def _moved(store: Store, **header: object) -> BlockCommit:
    made = make_commit(store, [make_batch("moved")])
    return made._replace(block=made.block._replace(header=made.block.header._replace(**header)))  # type: ignore[arg-type]


def test_pending_batches_keep_their_order_and_survive(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.add_pending([(5, b"five"), (6, b"six")])
    store.add_pending([])
    store.add_pending([(300, b"three hundred"), (2**40, b"")])
    expected = [(5, b"five"), (6, b"six"), (300, b"three hundred"), (2**40, b"")]
    assert list(store.pending()) == expected
    store.close()
    again = open_store(tmp_path)
    assert list(again.pending()) == expected
    again.reject([], [6, 12_345])
    assert [arrival for arrival, _ in again.pending()] == [5, 300, 2**40]
    again.close()


def test_a_block_settles_its_pending_batches(store: Store) -> None:
    batch, bad = make_batch("good"), make_batch("bad")
    store.add_pending([(1, batch.raw), (2, b"other"), (3, bad.raw)])
    verdict = InvalidBatch(bad.id, "invalid_transaction", "no", TransactionId(make_id("t")), b"\0\xff", "f", "1")
    store.commit_block(make_commit(store, [batch], invalid=[verdict], settled=[1, 3]))
    assert list(store.pending()) == [(2, b"other")]
    assert store.invalid(bad.id) == verdict
    assert store.batch_number(batch.id) == 0


def test_the_last_invalid_batches_are_remembered(tmp_path: Path) -> None:
    store = open_store(tmp_path, replace(LIMITS, invalid_batches_remembered=3))
    entries = [InvalidBatch(make_batch(number).id, "invalid_transaction", f"n {number}") for number in range(8)]
    store.reject(entries[:1], [])
    store.commit_block(make_commit(store, [], invalid=entries[1:3]))
    assert [store.invalid(entry.batch_id) for entry in entries[:3]] == entries[:3]
    store.reject(entries[3:4], [])
    assert [store.invalid(entry.batch_id) for entry in entries[:4]] == [None, *entries[1:4]]
    store.close()
    again = open_store(tmp_path, replace(LIMITS, invalid_batches_remembered=3))
    again.reject(entries[4:], [])
    assert [store_entry is not None for store_entry in map(again.invalid, (entry.batch_id for entry in entries))] == [
        *[False] * 5, *[True] * 3
    ]  # fmt: skip
    again.close()


@pytest.mark.parametrize("writes", [1, 5])
def test_a_failing_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """The map is full in the middle of a commit: LMDB refuses, and no table has a trace of it."""
    store = open_store(tmp_path)
    store.add_pending([(1, b"pending")])
    info = commit(store, [make_batch("first")], {address(1): b"one"})
    next_number = store.next_node_number
    monkeypatch.setattr(Store, "_make_room", lambda store, data_bytes: None)
    big = {address(number): bytes(100_000) for number in range(200)}
    bad = InvalidBatch(make_batch("bad").id, "invalid_transaction", "no")
    for _ in range(writes):
        with pytest.raises(StorageFailed, match="refused a write"):
            store.commit_block(make_commit(store, [make_batch("second")], big, invalid=[bad], settled=[1]))
        with pytest.raises(StorageFailed, match="refused a write"):
            store.add_pending([(2, bytes(80_000_000))])
        with pytest.raises(StorageFailed, match="refused a write"):
            store.reject([bad._replace(extended_data=bytes(80_000_000))], [1])
    monkeypatch.undo()
    second = make_batch("second")
    for reopened in (False, True):
        if reopened:
            store.close()
            store = open_store(tmp_path)
        assert store.head == info
        assert store.next_node_number == next_number
        assert list(store.pending()) == [(1, b"pending")]
        assert store.batch_number(second.id) is None
        assert store.transaction_number(second.transactions[0].id) is None
        assert store.invalid(bad.batch_id) is None
        with pytest.raises(StorageFailed, match="lacks entry"):
            store.node(next_number)
    done = store.commit_block(make_commit(store, [second], big, invalid=[bad], settled=[1]))
    assert merkle.get(store.node, done.root, address(150)) == bytes(100_000)
    assert list(store.pending()) == []
    store.close()


FULL_DISK = """
import resource, sys
from pathlib import Path
from tests.validator.support import address, commit, make_batch, open_store
from validator.state import merkle
from validator.store import StorageFailed

store = open_store(Path(sys.argv[1]))
info = commit(store, [make_batch(0)], {address(0): b"zero"})
store.add_pending([(1, b"pending")])
size = (Path(sys.argv[1]) / "store" / "data.mdb").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 2_000_000, resource.RLIM_INFINITY))
for _ in range(3):
    try:
        commit(store, [make_batch(1)], {address(number): bytes(100_000) for number in range(100)})
    except StorageFailed as failure:
        print(str(failure)[:40])
    assert store.head == info
    assert list(store.pending()) == [(1, b"pending")]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
info = commit(store, [make_batch(1)], {address(number): bytes(100_000) for number in range(100)})
assert merkle.get(store.node, info.root, address(99)) == bytes(100_000)
store.close()
print("wrote", info.num)
"""


def test_a_full_disk_is_a_refusal_and_no_end(tmp_path: Path) -> None:
    """The file may grow no further than a limit that the process gives itself, as on a full disk."""
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
    store.add_pending([(1, bytes(30_000_000))])
    store.close()
    again = open_store(tmp_path, replace(LIMITS, store_map_bytes_initial=256 * 1024))
    head = again.head
    assert head is not None
    assert (head.num, head.root.leaves) == (59, 240)
    for num in range(60):
        assert merkle.get(again.node, head.root, address(num * 10 + 3)) == value
        assert again.batch_number(make_batch((num, 1)).id) == 2 * num + 1
    again.close()


def test_a_batch_judged_invalid_again_is_remembered_as_the_newest(tmp_path: Path) -> None:
    store = open_store(tmp_path, replace(LIMITS, invalid_batches_remembered=3))
    entries = {name: InvalidBatch(make_batch(name).id, "invalid_transaction", name) for name in "abcd"}

    def remembered() -> str:
        return "".join(name for name in entries if store.invalid(entries[name].batch_id) == entries[name])

    for name, expected in (
        ("a", "a"),
        ("b", "ab"),
        ("a", "ab"),
        ("c", "abc"),
        ("d", "acd"),
        ("c", "acd"),
        ("b", "bcd"),
    ):
        store.reject([entries[name]], [])
        assert remembered() == expected
    entries["c"] = entries["c"]._replace(message="another reason")
    store.reject([entries["a"], entries["c"], entries["c"]], [])
    assert remembered() == "abc"
    store.close()


def test_another_format_is_refused_and_nothing_stays_open(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    with lmdb.open(str(tmp_path / "store"), max_dbs=20) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin(write=True) as transaction:
            transaction.put(b"format", b"dovetail-store-0", db=meta)
    for _ in range(2):
        with pytest.raises(StorageFailed, match=r"dovetail-store-0.*reads.*dovetail-store-1"):
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
