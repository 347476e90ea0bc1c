"""The locks of a store: file systems without locks, folders without write permission, and names in use."""

import errno
import fcntl
import os
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import lmdb
import pytest

from dovetail.validator.maintenance import copies, staging
from dovetail.validator.maintenance.pruning import prune
from dovetail.validator.store import StorageFailed, Store, StoreReader
from tests.dovetail.cli.commands.flipped import forked_child
from tests.dovetail.validator.support import LIMITS, commit, make_batch, open_store


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
        staging.swap_in(store, store, lambda: None, keep=False)


def test_nothing_is_restored_over_a_file(store: Path, tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("no store")
    with pytest.raises(StorageFailed, match=f"{place} is no folder: move it away first"):
        copies.restore(store, place, lambda step: None, lambda: None, [], verify=False)
    assert place.read_text() == "no store"


def test_who_locks_a_leftover_that_another_run_removed_leaves_what_that_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, flock = tmp_path / "making", fcntl.flock
    folder.mkdir()
    with ExitStack() as other:

        def late(file: Any, how: int) -> None:
            monkeypatch.setattr(fcntl, "flock", flock)
            other.enter_context(staging.staging_folder(folder, []))
            (folder / "data.mdb").write_text("the other's")
            flock(file, how)

        monkeypatch.setattr(fcntl, "flock", late)
        with pytest.raises(StorageFailed, match="another run is making"), staging.staging_folder(folder, []):
            pass
        assert (folder / "data.mdb").read_text() == "the other's"
    assert not folder.exists()


def test_what_was_renamed_leaves_its_name_to_the_next_run(tmp_path: Path) -> None:
    folder = tmp_path / "making"
    with ExitStack() as other:
        with staging.staging_folder(folder, []):
            folder.rename(tmp_path / "made")
            other.enter_context(staging.staging_folder(folder, []))
        assert folder.exists()


def test_a_backup_is_locked_until_it_has_its_name(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "run_in_child", forked_child)
    backup = tmp_path / "backup"

    def finish() -> None:
        with pytest.raises(StorageFailed, match="another run is making"):
            copies.backup(store, backup, lambda step: None, lambda: None, [])

    copies.backup(store, backup, lambda step: None, finish, [])
    assert {path.name for path in backup.iterdir()} == {"data.mdb", "backup.json"}


def test_a_read_only_file_system_is_told_as_that(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error must name the read-only file system, not damage.

    ``lock.mdb`` is the first file that is opened for writing.
    """
    StoreReader.open(store).close()

    def lmdb_refuses(path: str, **options: Any) -> None:
        error = lmdb.Error(f"{path}: {os.strerror(errno.EROFS)}")
        vars(error)["code"] = errno.EROFS
        raise error

    def refuses(path: Path, mode: str) -> IO[bytes]:
        if "+" in mode:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return path_open(path, mode)

    path_open = Path.open
    said = f"Read-only file system; {store} is on a read-only file system: mount it for writing"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuses)
        with pytest.raises(StorageFailed, match=f"cannot lock {store}/lock.mdb: {said}"):
            copies.compact(store, lambda step: None, lambda: None, [])
    monkeypatch.setattr(lmdb, "open", lmdb_refuses)
    with pytest.raises(StorageFailed, match=f"cannot open the store at {store}: .*: {said}") as refused:
        prune(lambda step: None, store, LIMITS, 2)
    assert "damaged" not in str(refused.value)
