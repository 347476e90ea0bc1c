"""The file of a store: created whole or not at all, and refused if empty, without a format, or truncated."""

import os
import random
import signal
import struct
from pathlib import Path

import lmdb
import pytest

from dovetail.validator.maintenance.child import Ended
from dovetail.validator.store import StorageFailed, Store, StoreReader
from dovetail.validator.store.length import lacking_bytes, require_whole
from dovetail.validator.store.records import FORMAT_KEY, TABLES
from tests.dovetail.cli.commands.flipped import forked
from tests.dovetail.validator.support import LIMITS, address, commit, make_batch, open_store

PAGE_BYTES = 4096


def _file(tmp_path: Path) -> Path:
    return tmp_path / "store" / "data.mdb"


def _refusals(tmp_path: Path) -> list[str]:
    """The messages with which the store and a reader refuse the file.

    The store and the reader both try twice, because a refusal must change nothing.
    """
    said = []
    before = _file(tmp_path).read_bytes()
    for _ in range(2):
        with pytest.raises(StorageFailed) as owner:
            open_store(tmp_path)
        with pytest.raises(StorageFailed) as reader:
            StoreReader.open(tmp_path / "store")
        said += [str(owner.value), str(reader.value)]
    assert _file(tmp_path).read_bytes() == before
    return said


def test_an_empty_file_begins_no_new_chain(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    os.truncate(_file(tmp_path), 0)
    for said in _refusals(tmp_path):
        assert "data.mdb is empty" in said
        assert "restore a backup" in said
        assert "where there never was a ledger in that folder, remove the file" in said


def test_a_file_without_a_format_begins_no_new_chain(tmp_path: Path) -> None:
    """The file has its tables, or no tables at all."""
    open_store(tmp_path).close()
    with lmdb.open(str(tmp_path / "store"), max_dbs=len(TABLES)) as env, env.begin(write=True) as transaction:
        transaction.delete(FORMAT_KEY, db=env.open_db(b"meta", txn=transaction))
    for said in _refusals(tmp_path):
        assert "has the format none" in said
        assert "where there never was a ledger there, remove its data.mdb" in said
    _file(tmp_path).unlink()
    lmdb.open(str(tmp_path / "store")).close()
    for said in _refusals(tmp_path):
        assert "is no store, or one of another release, or damaged: `dovetail store repair` saves" in said


def test_who_is_killed_while_the_store_is_made_leaves_none_and_the_next_start_makes_it(tmp_path: Path) -> None:
    def kill(made: Path, target: Path) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def start() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "rename", kill)
            open_store(tmp_path)

    with pytest.raises(Ended, match="signal 9"):
        forked(start)
    made = tmp_path / "store" / "data.mdb.new"
    assert made.exists()
    assert not _file(tmp_path).exists()
    made.write_bytes(made.read_bytes()[:100])
    store = open_store(tmp_path)
    assert store.head is None
    commit(store, [make_batch("genesis")])
    store.close()
    assert {path.name for path in made.parent.iterdir()} >= {"data.mdb"}
    assert not made.exists()
    assert _file(tmp_path).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("synced", range(3))
def test_a_store_that_could_not_be_made_whole_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: int
) -> None:
    """Any sync may fail: that of the file, its folder or the folder above."""
    left = [synced]
    fsync = os.fsync

    def refuses(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuses)
    with pytest.raises(StorageFailed, match=r"cannot open the store at .*: .*No space left"):
        open_store(tmp_path)
    assert {path.name for path in (tmp_path / "store").iterdir()} == {"owner.lock"}
    monkeypatch.undo()
    open_store(tmp_path).close()


def _written(tmp_path: Path) -> Store:
    store = open_store(tmp_path)
    for number in range(5):
        values = {address(number * 20 + place): bytes(2_000) for place in range(20)}
        commit(store, [make_batch(number)], values)
    return store


@pytest.mark.parametrize("left", [100, 2 * PAGE_BYTES, 2 * PAGE_BYTES + 17, -PAGE_BYTES, -20 * PAGE_BYTES, -1])
def test_a_file_that_was_cut_short_is_refused_before_it_is_mapped(tmp_path: Path, left: int) -> None:
    _written(tmp_path).close()
    size = _file(tmp_path).stat().st_size
    os.truncate(_file(tmp_path), left % size)
    for said in _refusals(tmp_path):
        if left == 100:
            assert "cannot" in said
        else:
            assert f"was cut short, or its first pages are damaged: it has {left % size} bytes, they say {size}" in said
            assert (
                "`dovetail store repair` saves what it can find in it; where that finds no block there is only a backup"
                in said
            )


def test_a_file_is_whole_without_free_pages_at_its_end(tmp_path: Path) -> None:
    """A commit may take and free pages that are never written: such a file is sound."""
    rng = random.Random(1)
    short = 0
    for number in range(30):
        folder = tmp_path / str(number)
        folder.mkdir()
        with lmdb.open(str(folder), map_size=1 << 28, max_dbs=1, sync=False) as env:
            table = env.open_db(b"table")
            for _ in range(60):
                with env.begin(write=True) as transaction:
                    for _ in range(rng.randrange(40)):
                        name = struct.pack(">Q", rng.randrange(300))
                        if rng.random() < 0.6:
                            large = rng.random() < 0.3
                            transaction.put(name, bytes(rng.randrange(9_000) if large else 60), db=table)
                        else:
                            transaction.delete(name, db=table)
                require_whole(folder)
                short += lacking_bytes(folder) > 0
    assert short > 0


def test_where_the_list_of_free_pages_is_not_whole_a_short_file_is_refused(tmp_path: Path) -> None:
    _written(tmp_path).close()
    content = bytearray(_file(tmp_path).read_bytes())
    size = len(content)
    del content[-PAGE_BYTES:]
    for root in (0, 1, 2, size // PAGE_BYTES - 1, 1 << 62):
        for page in range(2):
            struct.pack_into("=Q", content, page * PAGE_BYTES + 80, root)
        _file(tmp_path).write_bytes(content)
        with pytest.raises(StorageFailed, match="was cut short"):
            require_whole(tmp_path / "store")


def test_a_link_to_a_disk_that_is_not_mounted_is_no_new_store(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").symlink_to(tmp_path / "elsewhere" / "data.mdb")
    with pytest.raises(StorageFailed, match="No such file"):
        Store(tmp_path, LIMITS)
    assert (tmp_path / "data.mdb").is_symlink()
