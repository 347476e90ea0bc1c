"""Copies of a store: a backup beside a running validator, its way back, and a smaller file in place of the old one.

What is made has no name before it is whole and on disk. Keys are no part of a store, and of no copy.
"""

import os
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from dovetail.validator.history.verification.whole import verify_whole
from dovetail.validator.maintenance.apart import Step, Tell, apart
from dovetail.validator.maintenance.looking import Damage, damage_of
from dovetail.validator.maintenance.places import (
    COMPACTING,
    Finish,
    being_made,
    copy_file,
    rename_folder,
    require_unread,
    swap_in,
)
from dovetail.validator.store import StorageFailed, StoreReader
from dovetail.validator.store.full_disk import lack_of_room
from dovetail.validator.store.length import DATA, require_whole
from dovetail.validator.store.locks import OWNER_LOCK, own
from dovetail.validator.store.opening import sync_file
from dovetail.validator.store.permissions import make_file
from dovetail.validator.store.records import FORMAT, TABLES
from dovetail.validator.store.snapshot import WHEN_DAMAGED, page_faults

RECORD: Final = "backup.json"
"""In a backup's folder: what it holds."""

_RECORD_BYTES_MAX: Final = 64 * 1024
_LOOK_S: Final = 0.05


class Held(msgspec.Struct, frozen=True):
    """The newest block of a copy, the size of its file, and how many of its records are not what was written."""

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
        """What is damaged, in words; empty where nothing is."""
        return str(Damage(self.damaged_records, self.first_damaged)) if self.damaged_records else ""


class Compacted(NamedTuple):
    before_bytes: int
    after_bytes: int


def backup(store: Path, target: Path, tell: Tell, finish: Finish, removed: list[Path]) -> tuple[Held, Path]:
    """Copy the newest commit of the store in the folder ``store`` into the new folder ``target``.

    Of a damaged store the copy may be the last that can be made: it is kept, but under another name than one that can
    be relied upon. Returns which. Raises StorageFailed and Ended; then there is neither.
    """
    if target.exists():
        raise StorageFailed(f"{target} is there already: a backup is never written over anything")
    if not target.parent.is_dir():
        raise StorageFailed(f"there is no folder {target.parent} to put a backup into")
    # Who owns the folder beside may be no one who may read the ledger.
    with being_made(target.parent / f".{target.name}.partial", removed, handed_over=False) as folder:
        held: Held = apart(tell, _copy, store, folder)
        with os.fdopen(make_file(folder / RECORD), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(held)) + b"\n")
        sync_file(folder / RECORD)
        if held.damage:
            target = _free_name(target.with_name(f"{target.name}.damaged"))
        rename_folder(folder, target, finish)
        # Not before: without it another run would take the folder for what a killed one left.
        with suppress(OSError):
            (target / OWNER_LOCK).unlink()
    return held, target


def _free_name(path: Path) -> Path:
    names = (path if number == 1 else path.with_name(f"{path.name}-{number}") for number in count(1))
    return next(name for name in names if not name.exists())


def restore(source: Path, store: Path, tell: Tell, finish: Finish, removed: list[Path], *, verify: bool) -> Held:
    """Put a backup into the place of a store, where there is none. Raises StorageFailed and Ended."""
    if not (source / DATA).is_file():
        raise StorageFailed(f"{source} holds no backup: there is no {DATA}")
    if store.exists():
        if not store.is_dir():
            raise StorageFailed(f"{store} is no folder: move it away first")
        with own(store):
            pass
        raise StorageFailed(f"there is a store at {store} already: move it away first")
    recorded = _recorded(source)
    with being_made(store.with_name(f"{store.name}.restoring"), removed) as folder:
        require_whole(source)
        copy_file(source / DATA, folder / DATA, tell)
        held: Held = apart(tell, _look, folder, verify)
        if recorded is not None and recorded.block_id != held.block_id:
            raise StorageFailed(
                f"{source / RECORD} says block {recorded.block_num} {recorded.block_id}, the file beside it ends with"
                f" block {held.block_num} {held.block_id}: they do not belong together"
            )
        rename_folder(folder, store, finish)
    return held


def compact(store: Path, tell: Tell, finish: Finish, removed: list[Path]) -> Compacted:
    """Write the store's file anew without free pages, and let that take its place. Raises StorageFailed and Ended."""
    if not (store / DATA).exists():
        raise StorageFailed(f"there is no store at {store}")
    with own(store):
        require_unread(store)
        with being_made(store / COMPACTING, removed) as folder:
            before = (store / DATA).stat().st_size
            apart(tell, _compact, store, folder)
            swap_in(folder, store, finish, keep=False)
            return Compacted(before, (store / DATA).stat().st_size)


# In a process of their own


def _copy(tell: Tell, store: Path, folder: Path) -> Held:
    reader = StoreReader.open(store)
    try:
        file = reader.file()
        expected = file.page_bytes * file.used_pages
        descriptor = make_file(folder / DATA)
        try:
            _copy_to(reader, descriptor, expected, tell)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    finally:
        reader.close()
    try:
        reader = StoreReader.open(folder)
        try:
            damage = damage_of(reader, tell)
        finally:
            reader.close()
        held = _look(tell, folder, verify=False)
    except StorageFailed as failure:
        if lack_of_room(failure, folder):
            raise
        # Of the copy, which is gone when this is read, nothing is to be repaired.
        raise StorageFailed(
            f"a copy of the store at {store} cannot be read: either a file on the disk of {folder.parent} cannot be"
            f" mapped or locked, or {WHEN_DAMAGED}"
        ) from None
    return msgspec.structs.replace(held, damaged_records=damage.records, first_damaged=damage.first)


def _copy_to(reader: StoreReader, descriptor: int, expected: int, tell: Tell) -> None:
    failures: list[StorageFailed] = []

    def work() -> None:
        try:
            reader.copy_to(descriptor)
        except StorageFailed as failure:
            failures.append(failure)

    worker = threading.Thread(target=work, name="copy")
    worker.start()
    while worker.is_alive():
        worker.join(_LOOK_S)
        tell(Step("copying, MiB", min(os.fstat(descriptor).st_size, expected) >> 20, expected >> 20))
    if failures:
        raise failures[0]


def _look(tell: Tell, folder: Path, verify: bool) -> Held:
    """What a copy holds, once it was verified. Raises StorageFailed where that finds anything."""
    if verify:
        findings = verify_whole(folder, 0, lambda done, total: tell(Step("verifying, blocks", done, total)))
        if len(findings):
            raise StorageFailed(
                f"the backup is not sound, {len(findings)} findings, the first: {findings.kept[0]}; `dovetail store"
                " restore --no-verify` into a new folder and `dovetail store repair` there mend what can be"
            )
    reader = StoreReader.open(folder)
    try:
        head = reader.head
        if head is None:
            raise StorageFailed(f"the store in {folder} holds no block")
        return Held(
            FORMAT.decode(),
            head.num,
            head.id,
            head.state_root,
            head.transaction_end,
            reader.pruned.states_from,
            (folder / DATA).stat().st_size,
        )
    finally:
        reader.close()


def _compact(tell: Tell, store: Path, folder: Path) -> None:
    held = _copy(tell, store, folder)
    if held.damage:
        raise StorageFailed(
            f"the store is damaged: {held.damage}. Nothing has changed: free pages may hold what a repair needs, so"
            " `dovetail store repair` first, or restore a backup"
        )
    faults = page_faults(folder)
    if faults:
        raise StorageFailed(f"the compacted copy is not sound: {faults[0]}")
    old, new = StoreReader.open(store), StoreReader.open(folder)
    try:
        total = sum(map(old.count, TABLES))
        done = 0
        for table in TABLES:
            pairs = zip(old.raw_entries(table), new.raw_entries(table), strict=False)
            for mine, other in pairs:
                if mine != other:
                    raise StorageFailed(f"the compacted copy differs in entry {mine[0].hex()} of the table {table}")
                done += 1
                if done % 10_000 == 0:
                    tell(Step("comparing, entries", done, total))
            if old.count(table) != new.count(table):
                raise StorageFailed(f"the compacted copy lacks entries of the table {table}")
    finally:
        old.close()
        new.close()


def _recorded(source: Path) -> Held | None:
    try:
        with (source / RECORD).open("rb") as file:
            return msgspec.json.decode(file.read(_RECORD_BYTES_MAX), type=Held)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise StorageFailed(f"{source / RECORD} cannot be read: {error}") from None
