"""The locks of a store: file systems that give none, folders in which none can be made, and names that others take."""

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from tests.validator.support import LIMITS, commit, make_batch, open_store
from validator.maintenance import copies, places
from validator.store import StorageFailed, Store, StoreReader


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made = open_store(tmp_path)
    commit(made, [make_batch("genesis")])
    made.close()
    return tmp_path / "store"


def test_a_file_system_without_locks_is_told_as_that(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(file: Any, how: int, *part: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    said = r"gives no locks \(No locks available\): put the data folder on a local one"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "flock", none)
        with pytest.raises(StorageFailed, match=f"owner.lock {said}"):
            Store(store, LIMITS)
        with pytest.raises(StorageFailed, match=f"readers.lock {said}"):
            StoreReader.open(store)
    monkeypatch.setattr(fcntl, "lockf", none)
    with pytest.raises(StorageFailed, match=f"lock.mdb {said}"):
        places.swap_in(store, store, lambda: None, keep=False)


def test_nothing_is_restored_over_a_file(store: Path, tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("no store")
    with pytest.raises(StorageFailed, match=f"{place} is no folder: move it away first"):
        copies.restore(store, place, lambda step: None, lambda: None, [], verify=False)
    assert place.read_text() == "no store"
