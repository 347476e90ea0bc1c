"""The store: commits survive reopening, failed writes leave nothing, ids and numbers lead to each other."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import pytest

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.block import decode_block_header
from dovetail.ledger.ids import BatchId, BlockId, TransactionId
from dovetail.validator.core.journal.model import BlockCommit, InvalidBatch
from dovetail.validator.core.state import merkle
from dovetail.validator.crash_points import CrashPoint
from dovetail.validator.store import StorageFailed, Store
from dovetail.validator.store import store as store_module
from dovetail.validator.store.records import TABLES, key, sealed
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
    """Check all answers of a store with the chain of ``chain_batches``."""
    batch_number = transaction_number = 0
    for num, batches in enumerate(chain_batches()):
        info = store.block(num)
        assert info == infos[num]
        assert info is not None
        assert store.block_num(info.id) == num
        header = decode_block_header(info.header_bytes)
        assert header.batch_ids == tuple(batch.id for batch in batches)
        assert info.state_root == header.state_root_hash
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
    later = first._replace(block=first.block._replace(header=first.block.header._replace(block_num=1)))
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
    assert store.add_pending([b"zero", b"one"]) == 0
    assert store.add_pending([]) == 2
    assert store.add_pending([b"", *(b"%d" % number for number in range(3, 300))]) == 2
    expected = [(0, b"zero"), (1, b"one"), (2, b""), *((number, b"%d" % number) for number in range(3, 300))]
    assert list(store.pending()) == expected
    store.close()
    again = open_store(tmp_path)
    assert list(again.pending()) == expected
    again.reject([], [1, 12_345, *range(3, 299)])
    assert [arrival for arrival, _ in again.pending()] == [0, 2, 299]
    assert again.add_pending([b"next"]) == 300
    assert list(again.pending())[-1] == (300, b"next")
    again.close()


def test_a_block_settles_its_pending_batches(store: Store) -> None:
    batch, bad = make_batch("good"), make_batch("bad")
    store.add_pending([batch.raw, b"other", bad.raw])
    verdict = InvalidBatch(bad.id, "invalid_transaction", "no", TransactionId(make_id("t")), b"\0\xff", "f", "1")
    store.commit_block(make_commit(store, [batch], invalid=[verdict], settled=[0, 2]))
    assert list(store.pending()) == [(1, b"other")]
    assert store.invalid(bad.id) == verdict
    assert store.batch_number(batch.id) == 0


class _Counted:
    """Wraps an LMDB environment, transaction or cursor.

    Counts calls by name, also those of the objects that it returns.
    """

    def __init__(self, inner: Any, calls: Counter[str]) -> None:
        self._inner, self._calls = inner, calls

    def __enter__(self) -> "_Counted":
        return _Counted(self._inner.__enter__(), self._calls)

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            writes = name == "begin" and options.get("write", False)
            self._calls["write" if writes else name] += 1
            made = getattr(self._inner, name)(*args, **options)
            return _Counted(made, self._calls) if writes or name == "cursor" else made

        return call


def test_a_table_is_written_with_one_call_however_much_a_block_holds(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    for first, count in ((0, 1), (1, 60)):
        batches = [make_batch(number, *map(make_transaction, range(number, 400, 61))) for number in range(first, count)]
        calls: Counter[str] = Counter()
        made = make_commit(store, batches, {address(number): b"%d" % count for number in range(count)})
        with monkeypatch.context() as patch:
            patch.setattr(store, "_env", _Counted(store._env, calls))
            arrival = store.add_pending([batch.raw for batch in batches])
            store.commit_block(made._replace(settled=list(range(arrival, store.next_arrival))))
        assert (calls["write"], calls["put"], calls["delete"]) == (2, 0, len(batches))
        taken.append(calls["putmulti"])
    assert taken[0] == taken[1] < len(TABLES)


@pytest.mark.parametrize("table", ["blocks", "batches", "transactions", "nodes", "superseded"])
def test_what_stands_behind_the_last_of_a_table_is_never_written_over(store: Store, table: str) -> None:
    commit(store, [make_batch(0)], {address(0): b"0"})
    head = store.head
    made = make_commit(store, [make_batch(1), make_batch(2)], {address(1): b"1"})
    place = key(store.next_node_number if table == "nodes" else 1)
    with store._env.begin(write=True) as transaction:
        transaction.put(place, sealed(table, place, b"stood here"), db=store._tables[table])
    with pytest.raises(StorageFailed, match=f"1 of [1-5] entries are not behind the last of the table {table}"):
        store.commit_block(made)
    assert store.head is head
    assert store._get(table, place) == b"stood here"
    assert (store.count("blocks"), store.count("batch_ids")) == (1 + (table == "blocks"), 1)


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


def test_the_details_of_the_last_invalid_batches_have_bounded_bytes(tmp_path: Path) -> None:
    limits = replace(LIMITS, invalid_bytes_remembered=1_000_000)
    ids = [BatchId(make_id(number)) for number in range(60)]
    bad = [
        InvalidBatch(batch_id, "invalid_transaction", "nö", TransactionId(make_id("t")), bytes(65_536), "f", "1")
        for batch_id in ids
    ]
    bare = [
        InvalidBatch(each, "invalid_transaction", "", TransactionId(make_id("t")), omitted_bytes=65_539) for each in ids
    ]
    store = open_store(tmp_path, limits)
    for entry in bad[:20]:
        store.reject([entry], [])
    used = store.used_bytes()
    for start in (20, 40):
        store.close()
        # Which ones have no details any more is found again after a restart.
        store = open_store(tmp_path, limits)
        # One write with more than fits, and writes of one batch.
        for entries in [bad[start : start + 17], *([entry] for entry in bad[start + 17 : start + 20])]:
            store.reject(entries, [])
    remembered = [store.invalid(each) for each in ids]
    kept = sum(entry in bad for entry in remembered)
    assert remembered == bare[: 60 - kept] + bad[60 - kept :]
    assert 12 <= kept < 1_000_000 / 65_536
    assert store.used_bytes() < used + 2_500_000
    store.close()


def test_a_refused_write_drops_no_details(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = replace(LIMITS, invalid_bytes_remembered=200_000)
    bad = [InvalidBatch(BatchId(make_id(number)), "reason", "", extended_data=bytes(65_536)) for number in range(4)]
    store = open_store(tmp_path, limits)
    store.reject(bad[:2], [])

    def refuse(point: CrashPoint) -> None:
        if point is CrashPoint.VERDICTS_BEFORE_SYNC:
            raise lmdb.DiskError("no")

    with monkeypatch.context() as refusing:
        refusing.setattr(store_module, "reach", refuse)
        with pytest.raises(StorageFailed):
            store.reject(bad[2:3], [])
    assert [store.invalid(entry.batch_id) for entry in bad[:2]] == bad[:2]
    for entry in bad[2:]:
        store.reject([entry], [])
    kept = [store.invalid(entry.batch_id) == entry for entry in bad]
    assert kept == [False, False, True, True]
    store.close()


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


def test_the_last_transactions_judged_invalid_are_remembered(tmp_path: Path) -> None:
    limits = replace(LIMITS, invalid_transactions_remembered=4)
    store = open_store(tmp_path, limits)
    ids = [TransactionId(make_id("t", number)) for number in range(7)]
    bad = [
        InvalidBatch(make_batch(number).id, "invalid_transaction", "", transaction_ids=tuple(ids[number : number + 2]))
        for number in range(6)
    ]
    store.reject(bad[:2], [])
    assert [*map(store.judged_invalid, ids)] == [True] * 3 + [False] * 4
    store.commit_block(make_commit(store, [], invalid=[bad[3], bad[0]]))
    assert [*map(store.judged_invalid, ids)] == [True, True, False, True, True, False, False]
    store.close()
    again = open_store(tmp_path, limits)
    assert [*map(again.judged_invalid, ids)] == [True, True, False, True, True, False, False]
    remembered = again.invalid(bad[3].batch_id)
    assert remembered == bad[3]._replace(transaction_ids=())
    again.close()
