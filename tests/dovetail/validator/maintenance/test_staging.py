"""Replacement of the store's file: a reader that opens it meanwhile sees one whole file, which stays in place."""

import fcntl
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from dovetail.validator.maintenance.staging import put_aside, swap_in
from dovetail.validator.store import StorageFailed, Store, StoreReader, locks
from dovetail.validator.store.length import DATA
from tests.dovetail.validator.support import LIMITS, address, commit, make_batch, open_store


def _store(folder: Path, blocks: int) -> Path:
    """Make a store of so many blocks. Returns the folder with a compacted copy."""
    store = open_store(folder)
    for number in range(blocks):
        commit(store, [make_batch(number)], {address(number): b"value"})
    made = folder / "made"
    made.mkdir()
    store._env.copy(str(made), compact=True)
    store.close()
    return made


@pytest.mark.parametrize("blocks", [6, 7])
def test_a_reader_that_begins_during_a_swap_waits_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int
) -> None:
    """Without the wait, LMDB's lock file would lead the next writer to an empty state, for even and odd commits."""
    made, path = _store(tmp_path, blocks), tmp_path / "store"
    asks = threading.Event()
    flock = fcntl.flock

    def watched(file: Any, how: int) -> None:
        try:
            flock(file, how)
        finally:
            if how & fcntl.LOCK_SH:
                asks.set()

    monkeypatch.setattr(fcntl, "flock", watched)
    readers: list[StoreReader] = []
    reading = threading.Thread(target=lambda: readers.append(StoreReader.open(path)))
    lock = locks.keep_readers_out(path)
    reading.start()
    assert asks.wait(20)
    shutil.copyfile(made / DATA, made / "new")
    (made / "new").replace(path / DATA)
    lock.close()
    reading.join()
    (reader,) = readers
    assert reader.head is not None
    assert reader.head.num == blocks - 1
    # The next writer finds the same head.
    reader.close()
    store = open_store(tmp_path)
    assert store.head is not None
    assert store.head.num == blocks - 1
    commit(store, [make_batch("next")])
    store.close()


def test_a_reader_waits_no_longer_than_a_swap_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader stops waiting, because the process that holds the lock may be stopped or hang."""
    monkeypatch.setattr(locks, "_REPLACING_S_MAX", 0)
    _store(tmp_path, 1)
    path = tmp_path / "store"
    lock = locks.keep_readers_out(path)
    with pytest.raises(StorageFailed, match=f"the store at {path} is being replaced .* not ended after 0 s: look"):
        StoreReader.open(path)
    lock.close()
    StoreReader.open(path).close()


def test_nothing_is_swapped_under_a_reader(tmp_path: Path) -> None:
    made, path = _store(tmp_path, 3), tmp_path / "store"
    reader = StoreReader.open(path)
    with pytest.raises(StorageFailed, match="another process reads the store"):
        swap_in(made, path, lambda: None, keep=False)
    reader.close()
    swap_in(made, path, lambda: None, keep=False)
    Store(path, LIMITS).close()


@pytest.mark.parametrize("keep", [True, False])
def test_the_live_file_is_never_taken_for_one_that_a_repair_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    """A killed repair has given the name of a kept file to the live file."""
    made, path = _store(tmp_path, 3), tmp_path / "store"

    def ends(source: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", ends)
        with pytest.raises(KeyboardInterrupt):
            swap_in(made, path, lambda: None, keep=True)
    assert (path / "damaged-1.mdb").samefile(path / DATA)
    assert put_aside(path) == []
    old = (path / DATA).stat().st_ino
    kept = swap_in(made, path, lambda: None, keep=keep)
    assert put_aside(path) == ([kept] if keep else [])
    assert {file.stat().st_ino for file in path.glob("damaged-*")} == ({old} if keep else set())
