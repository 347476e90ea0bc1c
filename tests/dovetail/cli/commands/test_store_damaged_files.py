"""``dovetail store`` and ``chain verify`` on an empty or truncated file: reported, not mapped, and repaired."""

import errno
import os
import random
import signal
from pathlib import Path

import lmdb
import pytest

from dovetail.node.genesis import STORE_NAME
from dovetail.validator.store import StorageFailed, records
from dovetail.validator.store.length import LAST_PAGE_AT
from dovetail.validator.store.snapshot import WHEN_DAMAGED
from tests.dovetail.cli.commands.flipped import lead_nowhere
from tests.dovetail.cli.commands.stores import head_of, words
from tests.dovetail.conftest import Run
from tests.dovetail.validator.history.verified import entries, flip, verify

PAGE_BYTES = 4096
MAP_AT = 32
"""The position of the map size in a first page."""


pytestmark = pytest.mark.usefixtures("near")


def commands(data: Path) -> list[tuple[str, ...]]:
    """All commands that read the store."""
    return [
        words(data, "check"),
        words(data, "backup", str(data / "backup")),
        words(data, "compact"),
        words(data, "prune", "--depth", "2"),
        ("chain", "verify", "--data-dir", str(data)),
    ]


def test_an_empty_file_is_refused_by_every_command(data: Path, tmp_path: Path, run: Run) -> None:
    file = data / STORE_NAME / "data.mdb"
    os.truncate(file, 0)
    for command in commands(data):
        done = run(*command)
        assert (done.code, done.out) == (1, ""), command
        assert f"{file} is empty, a store's file never is: restore a backup" in done.err, command
    done = run(*words(data, "repair"))
    assert (done.code, f"{file} is empty, nothing can be repaired: restore a backup" in done.err) == (1, True)
    backup = tmp_path / "backup"
    backup.mkdir()
    (backup / "data.mdb").touch()
    done = run(*words(tmp_path / "other", "restore", str(backup)))
    assert (done.code, f"{backup / 'data.mdb'} is empty" in done.err) == (1, True)
    assert file.stat().st_size == 0


def test_a_folder_without_the_file_is_no_store(data: Path, run: Run) -> None:
    (data / STORE_NAME / "data.mdb").unlink()
    for command in (*commands(data), words(data, "repair")):
        done = run(*command)
        assert (done.code, "there is no store at" in done.err) == (1, True), command
    assert not (data / STORE_NAME / "data.mdb").exists()


@pytest.mark.parametrize("pages", [1, 3])
def test_a_file_that_was_cut_short_ends_no_command_and_is_repaired(data: Path, run: Run, pages: int) -> None:
    store = data / STORE_NAME
    file = store / "data.mdb"
    sound = {table: entries(store, table) for table in records.TABLES if table != "meta"}
    head, size = head_of(store), file.stat().st_size
    os.truncate(file, size - pages * PAGE_BYTES)
    for command in commands(data):
        done = run(*command)
        assert (done.code, done.out) == (1, ""), command
        assert f"was cut short, or its first pages are damaged: it has {size - pages * PAGE_BYTES} bytes, they say" in (
            done.err
        ), command
    done = run(*words(data, "repair"))
    assert done.code == 0, done.err
    assert head_of(store) == head
    assert verify(store).kept == []
    assert {table: entries(store, table) for table in sound} == sound


def test_of_a_file_of_which_much_is_gone_the_first_blocks_can_be_kept(data: Path, run: Run) -> None:
    store = data / STORE_NAME
    os.truncate(store / "data.mdb", (store / "data.mdb").stat().st_size // 2)
    done = run(*words(data, "repair"))
    assert done.code == 1
    assert "keep blocks 0 to " in done.err
    last = int(done.err.partition("--truncate-to ")[2].partition(":")[0])
    done = run(*words(data, "repair", "--truncate-to", str(last)))
    assert done.code == 0, done.err
    assert verify(store).kept == []
    assert len(entries(store, "blocks")) == last + 1


@pytest.mark.parametrize(
    ("at", "said"), [(LAST_PAGE_AT, "has a damaged first page: the file has"), (MAP_AT, "cannot read the store")]
)
def test_a_first_page_that_says_too_much_is_refused_and_repaired(data: Path, run: Run, at: int, said: str) -> None:
    """One wrong bit in the page count or the map size makes the number larger than any address space."""
    store = data / STORE_NAME
    head = head_of(store)
    content = (store / "data.mdb").read_bytes()
    for page in range(2):
        content = flip(content, page * PAGE_BYTES + at + 7, 4)
    (store / "data.mdb").write_bytes(content)
    done = run("chain", "verify", "--data-dir", str(data))
    assert (done.code, said in done.err) == (1, True)
    done = run(*words(data, "repair"))
    assert done.code == 0, done.err
    assert head_of(store) == head


def test_a_page_that_ends_the_process_is_told_by_chain_verify(
    data: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Access to a missing page ends the process. The test disables the check that would prevent the access."""
    file = data / STORE_NAME / "data.mdb"
    os.truncate(file, 3 * PAGE_BYTES)
    monkeypatch.setattr("dovetail.validator.store.opening.require_whole", lambda folder: None)
    done = run("chain", "verify", "--data-dir", str(data))
    assert (done.code, done.out) == (1, "")
    assert f"the process that read the store at {data / STORE_NAME} was ended (signal {signal.SIGBUS:d})" in done.err
    assert "Stop the validator, then `dovetail store repair`, or restore a backup" in done.err


def test_a_full_disk_is_told_before_the_table_of_readers_ends_a_command(
    data: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk LMDB would map a new table of readers without disk space.

    The first access to that table would end the process.
    """

    def refuse(descriptor: int, start: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.posix_fallocate", refuse)
    (data / STORE_NAME / "lock.mdb").unlink(missing_ok=True)
    for command in commands(data):
        done = run(*command)
        assert (done.code, done.out) == (1, ""), command
        assert "there is no room on the disk" in done.err, command
        assert "make room" in done.err, command
        assert "store repair" not in done.err, command


@pytest.mark.parametrize("page", [0, 1])
def test_of_one_overwritten_first_page_the_other_leads_to_all_blocks(data: Path, run: Run, page: int) -> None:
    """If the newer first page is overwritten, repair finds the records of the last block by scanning."""
    store = data / STORE_NAME
    head = head_of(store)
    with (store / "data.mdb").open("r+b") as file:
        file.seek(page * PAGE_BYTES + 100)
        file.write(random.Random(page).randbytes(200))
    for command in commands(data):
        done = run(*command)
        assert (done.code, done.out) == (1, ""), command
        assert "has a damaged first page" in done.err, command
    done = run(*words(data, "repair"))
    assert done.code == 0, done.err
    assert "mended: one of the two first pages" in done.out
    assert head_of(store) == head
    assert verify(store).kept == []


def test_a_repair_without_room_for_the_copy_says_how_much_it_takes(
    data: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = data / STORE_NAME / "data.mdb"
    os.truncate(file, file.stat().st_size - PAGE_BYTES)
    monkeypatch.setattr("shutil.copyfile", refuse)
    done = run(*words(data, "repair"))
    assert done.code == 1
    assert f"make room, {file.stat().st_size} bytes for the copy and as many for the new file" in done.err
    assert "backup" not in done.err


def test_a_repair_of_a_sound_ledger_says_that_it_found_no_damage(data: Path, run: Run) -> None:
    done = run(*words(data, "repair"))
    assert done.code == 0, done.err
    assert "no damage was found: each record of the former file fits its checksum" in done.out
    assert "without a comparison, which dovetail chain verify makes" in done.out
    assert f"the former file is {data / STORE_NAME / 'damaged-1.mdb'}" in done.out
    with (data / STORE_NAME / "data.mdb").open("r+b") as file:
        content = bytearray(file.read())
        lead_nowhere(content, b"nodes")
        file.seek(0)
        file.write(content)
    done = run(*words(data, "repair"))
    assert done.code == 0, done.err
    assert "no damage" not in done.out
    assert "the damaged file is" in done.out


def test_the_unused_first_page_of_a_compacted_file_is_no_damage(data: Path, run: Run) -> None:
    assert run(*words(data, "compact")).code == 0
    done = run(*words(data, "repair"))
    assert done.code == 0, done.err
    assert "no damage was found" in done.out


def test_pages_that_cannot_be_changed_or_copied_are_told_as_damage(
    data: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report must name neither a disk error nor a temporary file that no longer exists."""

    def refuse(folder: Path) -> None:
        if folder.name.endswith(".partial"):
            raise StorageFailed(f"{folder} is garbled")

    store = data / STORE_NAME
    monkeypatch.setattr("dovetail.validator.store.opening.require_whole", refuse)
    done = run(*words(data, "backup", str(data / "backup")))
    assert done.code == 1
    said = " ".join(done.err.split())
    assert f"a copy of the store at {store} cannot be read: either a file on the disk of {data} cannot be" in said
    assert said.endswith(f"or {WHEN_DAMAGED}")
    assert ".partial" not in done.err

    def give_up(*arguments: object) -> None:
        raise lmdb.CorruptedError("mdb_del")

    monkeypatch.setattr("dovetail.validator.store.store.Store._make_room", give_up)
    done = run(*words(data, "prune", "--depth", "2"))
    assert (done.code, WHEN_DAMAGED in done.err) == (1, True)
