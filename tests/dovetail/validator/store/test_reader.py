"""Reading a store that another process writes. A refresh shows the newest commit; between refreshes nothing changes."""

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import lmdb
import pytest

from dovetail.validator.core.state import merkle
from dovetail.validator.store import BlockInfo, StorageFailed, StorageLost, StoreReader
from dovetail.validator.store.opening import READERS_MAX
from dovetail.validator.store.records import TABLES
from tests.dovetail.validator.support import address, commit, make_batch, open_store

LARGE = 200_000


def write(folder: Path, pipe: "Connection[BlockInfo | None, str]") -> None:
    """The writer's process: commits a block for each text, reports when it is synced, and ends at an empty text."""
    store = open_store(folder)
    pipe.send(store.head)
    number = 0
    while word := pipe.recv():
        changes = {address(number): word.encode() * (LARGE if word == "large" else 1)}
        pipe.send(commit(store, [make_batch(number)], changes))
        number += 1
    store.close()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator["Connection[str, BlockInfo | None]"]:
    """A process with the store open. It receives texts, and sends the blocks that it made of them."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=write, args=(tmp_path, theirs))
    process.start()
    theirs.close()
    assert ours.recv() is None
    yield ours
    ours.send("")
    process.join()
    ours.close()
    assert process.exitcode == 0


def written(writer: "Connection[str, BlockInfo | None]", word: str) -> BlockInfo:
    writer.send(word)
    block = writer.recv()
    assert block is not None
    return block


def test_a_reader_moves_on_when_it_refreshes(tmp_path: Path, writer: "Connection[str, BlockInfo | None]") -> None:
    reader = StoreReader.open(tmp_path / "store")
    assert reader.head is None
    for number in range(3):
        block = written(writer, f"word {number}")
        # Until the refresh, the reader sees the same commit, however much is written.
        assert reader.head is None or reader.head.num == number - 1
        assert reader.block(number) is None
        reader.refresh()
        assert reader.head == reader.block(number) == block
        assert reader.block_num(block.id) == number
        assert reader.batches(block) == [make_batch(number).raw]
        assert reader.batch_number(make_batch(number).id) == number
        assert reader.transaction_number(make_batch(number).transactions[0].id) == number
        assert make_batch(number).transactions[0].id.encode() in reader.transaction(number).receipt
        assert merkle.get(reader.node, block.root, address(number)) == f"word {number}".encode()
        assert reader.count("blocks") == len(list(reader.entries("blocks"))) == number + 1
    assert reader.superseded(0) == []
    assert len(reader.superseded(2)) == 1
    reader.close()


def test_a_reader_follows_while_the_map_grows(tmp_path: Path, writer: "Connection[str, BlockInfo | None]") -> None:
    """The map begins with 1 MiB, and grows several times before and between refreshes."""
    written(writer, "small")
    reader = StoreReader.open(tmp_path / "store")
    before = reader.file().map_bytes
    for _ in range(40):
        block = written(writer, "large")
        reader.refresh()
        assert reader.head == block
        assert merkle.get(reader.node, block.root, address(block.num)) == b"large" * LARGE
    assert reader.file().map_bytes > before
    reader.close()


def test_a_reader_needs_no_writer(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    block = commit(store, [make_batch(0)], {address(0): b"0"})
    store.close()
    for _ in range(2):
        reader = StoreReader.open(tmp_path / "store")
        assert reader.head == block
        reader.close()
    commit(again := open_store(tmp_path), [make_batch(1)])
    again.close()


def hold(folder: Path, count: int | None, pipe: "Connection[int, None]") -> None:
    """A reader's process: begins so many snapshots (None: all that are left), reports their number, and waits."""
    reader = StoreReader.open(folder / "store")
    held: list[object] = []
    with suppress(lmdb.ReadersFullError):
        while count is None or len(held) < count:
            held.append(reader._env.begin())
    pipe.send(len(held))
    pipe.recv()


@contextmanager
def holding(folder: Path, count: int | None) -> Iterator[tuple[BaseProcess, int]]:
    """A process that runs ``hold``, and how many snapshots it holds. It is killed with -9 at the end."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=hold, args=(folder, count, theirs))
    process.start()
    try:
        yield process, ours.recv()
    finally:
        process.kill()
        process.join()
        ours.close()
        theirs.close()


def test_readers_that_take_every_slot_leave_the_writer_its_own(tmp_path: Path) -> None:
    """A write succeeds despite all the readers, and one more reader gets the reason why it may not read."""
    store = open_store(tmp_path)
    with holding(tmp_path, None) as (_, count):
        assert count > READERS_MAX - 8
        for number in range(3):
            block = commit(store, [make_batch(number)], {address(number): b"x"})
            assert store.head == store.block(number) == block
        store.add_pending([b"pending"])
        assert [raw for _, raw in store.pending()] == [b"pending"]
        with pytest.raises(StorageFailed, match="is read in 504 places already"):
            other_process(tmp_path)
        # A reader keeps its slot between two snapshots, so another reader does not get that slot.
        held = store._env.readers().count("\n")
        store._end_snapshot()
        assert store._env.readers().count("\n") == held
        store._begin_snapshot()
    store.close()


def other_process(folder: Path) -> None:
    """Open the store for reading in another process; raises the other process's error here."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(1) as pool:
        pool.apply(open_and_close, (folder / "store",))


def open_and_close(path: Path) -> None:
    StoreReader.open(path).close()


def test_the_map_grows_while_as_many_read_as_may(tmp_path: Path) -> None:
    """While the map grows, the writer gives up its slot for a moment.

    It gets a slot again, because readers leave some free.
    """
    store = open_store(tmp_path)
    before = store.file().map_bytes
    with holding(tmp_path, READERS_MAX - 8 - 3):
        # With one more reader, the limit is reached.
        other_process(tmp_path)
        with holding(tmp_path, 0), pytest.raises(StorageFailed, match="as many as may be"):
            other_process(tmp_path)
        store.add_pending([bytes(40_000_000)])
        assert store.file().map_bytes > before
        commit(store, [make_batch(0)])
    store.close()


def test_who_was_killed_leaves_no_slot_taken(tmp_path: Path) -> None:
    """The slots of killed readers are free for the next reader and for a validator that starts."""
    open_store(tmp_path).close()
    with holding(tmp_path, 0):
        # This process keeps the lock file in use. Otherwise a later process would make a new lock file, with all slots
        # free.
        with holding(tmp_path, READERS_MAX - 8 - 2):
            pass
        other_process(tmp_path)
        with holding(tmp_path, READERS_MAX - 8 - 2):
            pass
        store = open_store(tmp_path)
        assert len(store._env.readers().splitlines()) - 1 == 2
        commit(store, [make_batch(0)])
        store.close()


def test_a_killed_reader_keeps_no_space(tmp_path: Path) -> None:
    """A reader's snapshot keeps space from being reused, but only while the reader lives."""
    store = open_store(tmp_path)

    def grown() -> int:
        before = store.file().used_pages
        for _ in range(20):
            store.reject([], [store.add_pending([bytes(400_000)])])
        return store.file().used_pages - before

    grown()
    assert grown() == 0
    with holding(tmp_path, 0):
        assert grown() > 1_000
    assert grown() == 0
    store.close()


def test_a_snapshot_that_cannot_be_had_is_no_refused_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a snapshot after the write, its outcome is unknown. The error must not say that the write was refused."""
    store = open_store(tmp_path)

    def fails() -> None:
        raise lmdb.ReadersFullError("planted")

    monkeypatch.setattr(store, "_begin", fails)
    with pytest.raises(StorageLost, match="planted"):
        commit(store, [make_batch(0)])
    monkeypatch.undo()
    store.close()
    again = open_store(tmp_path)
    assert again.head is not None
    again.close()


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="there is no store at"):
        StoreReader.open(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "data.mdb").write_bytes(b"no store" * 4096)
    with pytest.raises(StorageFailed, match="is a backup, which `dovetail store restore`"):
        StoreReader.open(tmp_path / "store")
    with pytest.raises(StorageFailed, match=r"cannot read the store at .*INVALID"):
        StoreReader.open(tmp_path)
    (tmp_path / "other").mkdir()
    lmdb.open(str(tmp_path / "other")).close()
    with pytest.raises(StorageFailed, match="is no store, or one of another release"):
        StoreReader.open(tmp_path / "other")


def test_another_format_is_refused_and_nothing_stays_open(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    with lmdb.open(str(tmp_path / "store"), max_dbs=len(TABLES)) as env:
        meta = env.open_db(b"meta")
        with env.begin(write=True) as transaction:
            transaction.put(b"format", b"of tomorrow", db=meta)
    for _ in range(2):  # An environment that stayed open could not be opened a second time.
        with pytest.raises(StorageFailed, match="has the format of tomorrow, this release reads dovetail-store-4 only"):
            StoreReader.open(tmp_path / "store")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    (tmp_path / "store" / "data.mdb").chmod(0)
    with pytest.raises(StorageFailed, match=r"must be allowed to read data.mdb"):
        StoreReader.open(tmp_path / "store")
