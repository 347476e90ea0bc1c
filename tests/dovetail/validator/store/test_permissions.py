"""The owners of a store's files when root works on a user's store, and the messages on missing permissions."""

# Root imports these modules first, because the user of the tests may not have access to the interpreter's folder.
import multiprocessing.sharedctypes  # noqa: F401
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from dovetail.validator.maintenance import copies
from dovetail.validator.maintenance.pruning import prune
from dovetail.validator.maintenance.repair import repair
from dovetail.validator.store import StorageFailed, Store, StoreReader
from tests.dovetail.cli.commands.flipped import forked, forked_child
from tests.dovetail.validator.history.verified import Here, make_store
from tests.dovetail.validator.support import LIMITS

USER = 12345

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to another user")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's store, in a folder that the user may enter."""
    for place in ("copies.run_in_child", "repair.run_in_child"):
        monkeypatch.setattr(f"dovetail.validator.maintenance.{place}", forked_child)
    monkeypatch.setattr("dovetail.validator.maintenance.verification.Checkers", lambda processes: nullcontext(Here()))
    above = Path(tempfile.gettempdir()).resolve()
    if not all(path.stat().st_mode & stat.S_IXOTH for path in (above, *above.parents)):
        pytest.skip(f"another user cannot come to {above}")
    with tempfile.TemporaryDirectory() as folder:
        made = make_store(Path(folder) / "store")
        for path in (made.parent, made, *made.iterdir()):
            os.chown(path, USER, USER)
        yield made


def _as_user(work: Callable[[], object]) -> None:
    def run() -> None:
        os.setgroups([])
        os.setgid(USER)
        os.setuid(USER)
        work()

    forked(run)


def _open(store: Path) -> None:
    StoreReader.open(store).close()
    _own(store)


def _own(store: Path) -> None:
    Store(store, LIMITS).close()


def _compact(store: Path) -> None:
    copies.compact(store, lambda step: None, lambda: None, [])


def _repair(store: Path) -> None:
    repair(store, LIMITS, None, 0, lambda step: None, lambda: None, [])


def _prune(store: Path) -> None:
    prune(lambda step: None, store, LIMITS, 2)


def _restore(store: Path) -> None:
    backup = store.with_name("backup")
    copies.backup(store, backup, lambda step: None, lambda: None, [])
    assert {path.stat().st_uid for path in (backup, *backup.iterdir())} == {0}, "who may read it is root's to say"
    store.rename(store.with_name("moved"))
    copies.restore(backup, store, lambda step: None, lambda: None, [], verify=False)


@pytest.mark.parametrize("work", [_open, _compact, _repair, _restore])
def test_after_root_the_store_is_its_users_still(store: Path, work: Callable[[Path], None]) -> None:
    for path in store.glob("*.lock"):
        path.unlink()
    (store / "lock.mdb").unlink()
    work(store)
    assert {path.stat().st_uid for path in (store, *store.iterdir())} == {USER}
    _as_user(lambda: _compact(store))
    _as_user(lambda: _open(store))


def test_what_a_killed_run_of_root_left_its_user_removes(store: Path) -> None:
    """The killed run leaves a folder, which only its owner or root may empty. So the user must own that folder."""

    def kill(*arguments: object, **named: object) -> None:
        os._exit(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dovetail.validator.maintenance.repair.swap_in", kill)
        if (child := os.fork()) == 0:
            try:
                _repair(store)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    assert (store / "repairing" / "store" / "data.mdb").stat().st_uid == USER
    _as_user(lambda: _repair(store))


@pytest.mark.parametrize("name", ["data.mdb", "lock.mdb", "owner.lock", "readers.lock"])
def test_a_file_of_another_user_is_told_so_and_not_as_damage(store: Path, name: str) -> None:
    _open(store)
    os.chown(store / name, 0, 0)
    works: list[Callable[[Path], object]] = [_compact, _repair]
    works += [_own] * (name != "readers.lock") + [StoreReader.open] * (name != "owner.lock")
    for work in works:
        with pytest.raises(StorageFailed) as refused:
            _as_user(partial(work, store))
        said = str(refused.value)
        assert f"{store / name} belongs to user 0 (root), this process is user {USER}: run it as user 0 (root)" in said
        assert f"or, where the store is to be user {USER}'s, `chown -R {USER} {store}`" in said
        assert "damaged" not in said
        assert "backup" not in said


@pytest.mark.parametrize("work", [_own, _compact, _repair, _prune])
def test_a_folder_that_may_not_be_written_or_entered_is_told(store: Path, work: Callable[[Path], None]) -> None:
    for path in (store, *store.iterdir()):
        os.chown(path, 0, 0)
        path.chmod(0o755 if path.is_dir() else 0o644)
    (store / "owner.lock").unlink()
    with pytest.raises(StorageFailed, match=f"cannot lock {store}/owner.lock: Permission denied; {store} belongs to"):
        _as_user(partial(work, store))
    store.chmod(0o700)
    with pytest.raises(StorageFailed, match=f"Permission denied.*; .*{store} belongs to user 0"):
        _as_user(partial(StoreReader.open, store))
