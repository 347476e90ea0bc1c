"""Copies of a store: backup (also beside a running validator), restore, and compaction.

A copy gets its final name only when it is complete and on disk. Keys are part of neither a store nor a copy.
"""

import os
import threading
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from dovetail.validator.maintenance.child import OnStep, Step, run_in_child
from dovetail.validator.maintenance.inspection import Damage, damage_of
from dovetail.validator.maintenance.staging import (
    COMPACTING,
    Finish,
    copy_file,
    rename_folder,
    require_unread,
    staging_folder,
    swap_in,
)
from dovetail.validator.maintenance.verification import verify_whole
from dovetail.validator.store import StorageFailed, StoreReader
from dovetail.validator.store.full_disk import lack_of_room
from dovetail.validator.store.length import DATA, require_whole
from dovetail.validator.store.locks import OWNER_LOCK, own
from dovetail.validator.store.opening import sync_file
from dovetail.validator.store.permissions import make_file
from dovetail.validator.store.records import FORMAT, TABLES
from dovetail.validator.store.snapshot import WHEN_DAMAGED, page_faults

RECORD: Final = "backup.json"
"""The name of the file in a backup's folder that describes the backup."""

_RECORD_BYTES_MAX: Final = 64 * 1024
_POLL_S: Final = 0.05


class BackupRecord(msgspec.Struct, frozen=True):
    """The newest block of a copy, the size of its file, and the number of its damaged records."""

    format: str
    block_num: int
    block_id: str
    state_root_hash: str
    transactions: int
    states_from_block: int
    data_bytes: int
    damaged_records: int = 0
    first_damaged: str = ""

    @property
    def damage(self) -> str:
        """The damage in words; empty if there is none."""
        return str(Damage(self.damaged_records, self.first_damaged)) if self.damaged_records else ""


class Compacted(NamedTuple):
    before_bytes: int
    after_bytes: int


def backup(
    store: Path, target: Path, on_step: OnStep, finish: Finish, removed: list[Path]
) -> tuple[BackupRecord, Path]:
    """Copy the newest commit of the store in the folder ``store`` into the new folder ``target``.

    A copy of a damaged store may be the last one possible, so it is kept, but under another name. Returns the record of
    the copy and its folder. Raises StorageFailed and Ended, and then leaves no copy.
    """
    if target.exists():
        raise StorageFailed(f"{target} is there already: a backup is never written over anything")
    if not target.parent.is_dir():
        raise StorageFailed(f"there is no folder {target.parent} to put a backup into")
    # The owner of the parent folder may not be allowed to read the ledger, so the copy keeps this process's owner.
    with staging_folder(target.parent / f".{target.name}.partial", removed, handed_over=False) as folder:
        held: BackupRecord = run_in_child(on_step, _copy, store, folder)
        with os.fdopen(make_file(folder / RECORD), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(held)) + b"\n")
        sync_file(folder / RECORD)
        if held.damage:
            target = _free_name(target.with_name(f"{target.name}.damaged"))
        rename_folder(folder, target, finish)
        # The lock must last until the rename: without it, another run would remove the folder as a leftover.
        with suppress(OSError):
            (target / OWNER_LOCK).unlink()
    return held, target


def _free_name(path: Path) -> Path:
    names = (path if number == 1 else path.with_name(f"{path.name}-{number}") for number in count(1))
    return next(name for name in names if not name.exists())


def restore(
    source: Path, store: Path, on_step: OnStep, finish: Finish, removed: list[Path], *, verify: bool
) -> BackupRecord:
    """Restore a backup as the store in the folder ``store``, which must not exist. Raises StorageFailed and Ended."""
    if not (source / DATA).is_file():
        raise StorageFailed(f"{source} holds no backup: there is no {DATA}")
    if store.exists():
        if not store.is_dir():
            raise StorageFailed(f"{store} is no folder: move it away first")
        with own(store):
            pass
        raise StorageFailed(f"there is a store at {store} already: move it away first")
    recorded = _read_record(source)
    with staging_folder(store.with_name(f"{store.name}.restoring"), removed) as folder:
        require_whole(source)
        copy_file(source / DATA, folder / DATA, on_step)
        held: BackupRecord = run_in_child(on_step, _look, folder, verify)
        if recorded is not None and recorded.block_id != held.block_id:
            raise StorageFailed(
                f"{source / RECORD} says block {recorded.block_num} {recorded.block_id}, the file beside it ends with"
                f" block {held.block_num} {held.block_id}: they do not belong together"
            )
        rename_folder(folder, store, finish)
    return held


def compact(store: Path, on_step: OnStep, finish: Finish, removed: list[Path]) -> Compacted:
    """Replace the store's file by a copy without free pages. Raises StorageFailed and Ended."""
    if not (store / DATA).exists():
        raise StorageFailed(f"there is no store at {store}")
    with own(store):
        require_unread(store)
        with staging_folder(store / COMPACTING, removed) as folder:
            before = (store / DATA).stat().st_size
            run_in_child(on_step, _compact, store, folder)
            swap_in(folder, store, finish, keep=False)
            return Compacted(before, (store / DATA).stat().st_size)


# In a child process


def _copy(on_step: OnStep, store: Path, folder: Path) -> BackupRecord:
    with closing(StoreReader.open(store)) as reader:
        file = reader.file()
        expected = file.page_bytes * file.used_pages
        descriptor = make_file(folder / DATA)
        try:
            _copy_to(reader, descriptor, expected, on_step)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    try:
        with closing(StoreReader.open(folder)) as reader:
            damage = damage_of(reader, on_step)
        held = _look(on_step, folder, verify=False)
    except StorageFailed as failure:
        if lack_of_room(failure, folder):
            raise
        # Do not advise to repair the copy, which is gone by then.
        raise StorageFailed(
            f"a copy of the store at {store} cannot be read: either a file on the disk of {folder.parent} cannot be"
            f" mapped or locked, or {WHEN_DAMAGED}"
        ) from None
    return msgspec.structs.replace(held, damaged_records=damage.records, first_damaged=damage.first)


def _copy_to(reader: StoreReader, descriptor: int, expected: int, on_step: OnStep) -> None:
    failures: list[StorageFailed] = []

    def work() -> None:
        try:
            reader.copy_to(descriptor)
        except StorageFailed as failure:
            failures.append(failure)

    worker = threading.Thread(target=work, name="copy")
    worker.start()
    while worker.is_alive():
        worker.join(_POLL_S)
        on_step(Step("copying, MiB", min(os.fstat(descriptor).st_size, expected) >> 20, expected >> 20))
    if failures:
        raise failures[0]


def _look(on_step: OnStep, folder: Path, verify: bool) -> BackupRecord:
    """The record of a copy. Raises StorageFailed, also if ``verify`` is true and verification finds a fault."""
    if verify:
        findings = verify_whole(on_step, folder, 0)
        if len(findings):
            raise StorageFailed(
                f"the backup is not sound, {len(findings)} findings, the first: {findings.kept[0]}; `dovetail store"
                " restore --no-verify` into a new folder and `dovetail store repair` there mend what can be"
            )
    with closing(StoreReader.open(folder)) as reader:
        head = reader.head
        if head is None:
            raise StorageFailed(f"the store in {folder} holds no block")
        return BackupRecord(
            FORMAT.decode(),
            head.num,
            head.id,
            head.state_root,
            head.transaction_end,
            reader.pruned.states_from,
            (folder / DATA).stat().st_size,
        )


def _compact(on_step: OnStep, store: Path, folder: Path) -> None:
    held = _copy(on_step, store, folder)
    if held.damage:
        raise StorageFailed(
            f"the store is damaged: {held.damage}. Nothing has changed: free pages may hold what a repair needs, so"
            " `dovetail store repair` first, or restore a backup"
        )
    faults = page_faults(folder)
    if faults:
        raise StorageFailed(f"the compacted copy is not sound: {faults[0]}")
    with closing(StoreReader.open(store)) as old, closing(StoreReader.open(folder)) as new:
        total = sum(map(old.count, TABLES))
        done = 0
        for table in TABLES:
            pairs = zip(old.raw_entries(table), new.raw_entries(table), strict=False)
            for mine, other in pairs:
                if mine != other:
                    raise StorageFailed(f"the compacted copy differs in entry {mine[0].hex()} of the table {table}")
                done += 1
                if done % 10_000 == 0:
                    on_step(Step("comparing, entries", done, total))
            if old.count(table) != new.count(table):
                raise StorageFailed(f"the compacted copy lacks entries of the table {table}")


def _read_record(source: Path) -> BackupRecord | None:
    try:
        with (source / RECORD).open("rb") as file:
            return msgspec.json.decode(file.read(_RECORD_BYTES_MAX), type=BackupRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise StorageFailed(f"{source / RECORD} cannot be read: {error}") from None
