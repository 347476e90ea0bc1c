"""``dovetail store``: what each command does, refuses and leaves behind, also after a kill."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from dovetail.node.genesis import STORE_NAME
from dovetail.validator.maintenance import child as child_module
from dovetail.validator.maintenance import staging
from dovetail.validator.maintenance.child import Ended, OnStep, run_in_child
from dovetail.validator.store import StorageFailed, opening, records
from dovetail.validator.store.locks import own
from tests.dovetail.cli.commands.flipped import lead_nowhere
from tests.dovetail.cli.commands.stores import BLOCKS, head_of, words
from tests.dovetail.conftest import Run
from tests.dovetail.rehearsal.rehearsal_chain import long_chain
from tests.dovetail.validator.history.verified import entries, flip, put, put_raw, raw_entries, verify

pytestmark = pytest.mark.usefixtures("near")


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


# check


def test_check_tells_what_each_table_takes_and_what_is_free(data: Path, run: Run) -> None:
    done = run(*words(data, "check"))
    assert (done.code, done.err) == (0, "")
    assert "sound, as far as this check goes" in done.out
    report = json.loads(run(*words(data, "check", "--json")).out)
    assert report["sound"]
    assert report["pages_walked"]
    assert report["tables"]["batches"]["entries"] == BLOCKS * 10
    assert report["head_id"] == head_of(data / STORE_NAME)[0]
    in_tables = sum(table["page_bytes"] for table in report["tables"].values())
    assert 0 < in_tables < report["used_bytes"] - report["free_bytes"] <= report["file_bytes"]
    assert report["bytes_per_million"] > 1_000_000


def test_check_finds_a_damaged_record_and_a_damaged_page(data: Path, run: Run) -> None:
    store = data / STORE_NAME
    name, record = raw_entries(store, "batches")[3]
    put_raw(store, "batches", name, flip(record, 50))
    done = run(*words(data, "check", "--json"))
    assert done.code == 1
    assert json.loads(done.out)["tables"]["batches"]["damaged"] == 1
    assert "is damaged: 1 records, 0 faults of pages" in done.err
    put_raw(store, "batches", name, record)
    file = store / "data.mdb"
    content = file.read_bytes()
    for at in range(2 * 4096, len(content), 4096):
        # Every page with entries gets a wrong page number.
        content = flip(content, at, 3) if content[at + 10] == 2 else content
    file.write_bytes(content)
    done = run(*words(data, "check"))
    assert done.code == 1
    assert "faults of pages" in done.err or "pages of its file are damaged" in done.err or "cannot be read" in done.err


# backup and restore


def test_a_backup_comes_back_as_it_was(data: Path, tmp_path: Path, run: Run) -> None:
    target = tmp_path / "backup"
    done = run(*words(data, "backup", str(target)))
    assert (done.code, done.err) == (0, "")
    head, root = head_of(data / STORE_NAME)
    assert f"block {BLOCKS - 1}: {head}" in done.out
    assert {path.name for path in target.iterdir()} == {"data.mdb", "backup.json"}
    assert (stat.S_IMODE(target.stat().st_mode), modes(target)) == (0o700, {0o600})
    recorded = json.loads((target / "backup.json").read_text())
    assert (recorded["block_num"], recorded["state_root_hash"]) == (BLOCKS - 1, root)
    other = tmp_path / "other"
    done = run(*words(other, "restore", str(target)))
    assert done.code == 0, done.err
    assert "a validator needs its key, which is in no backup" in done.err
    assert head_of(other / STORE_NAME) == (head, root)
    assert verify(other / STORE_NAME).kept == []
    for table in records.TABLES:
        assert raw_entries(other / STORE_NAME, table) == raw_entries(data / STORE_NAME, table)
    assert modes(other / STORE_NAME) <= {0o600}


def test_nothing_that_is_there_is_written_over(data: Path, tmp_path: Path, run: Run) -> None:
    target = tmp_path / "backup"
    target.mkdir()
    done = run(*words(data, "backup", str(target)))
    assert (done.code, "is there already" in done.err) == (1, True)
    target.rmdir()
    assert run(*words(data, "backup", str(tmp_path / "none" / "backup"))).code == 1
    assert run(*words(data, "backup", str(target))).code == 0
    before = (data / STORE_NAME / "data.mdb").read_bytes()
    done = run(*words(data, "restore", str(target)))
    assert (done.code, "there is a store at" in done.err) == (1, True)
    with own(data / STORE_NAME):
        done = run(*words(data, "restore", str(target)))
    assert (done.code, "in use by another validator" in done.err) == (1, True)
    assert (data / STORE_NAME / "data.mdb").read_bytes() == before
    done = run(*words(tmp_path / "new", "restore", str(tmp_path / "no backup")))
    assert (done.code, "holds no backup" in done.err) == (1, True)


def test_a_damaged_backup_is_not_put_in_place_unless_that_is_said(data: Path, tmp_path: Path, run: Run) -> None:
    store = data / STORE_NAME
    name, content = entries(store, "nodes")[-1]
    put(store, "nodes", name, flip(content, len(content) - 1))
    target, other = tmp_path / "backup", tmp_path / "other"
    assert run(*words(data, "backup", str(target))).code == 0
    done = run(*words(other, "restore", str(target)))
    assert (done.code, "is not sound, 1 findings" in done.err) == (1, True)
    assert list(other.iterdir()) == []
    done = run(*words(other, "restore", str(target), "--no-verify"))
    assert (done.code, "NOT verified" in done.err) == (0, True)
    recorded = target / "backup.json"
    recorded.write_text(recorded.read_text().replace(head_of(store)[0], "00" * 64))
    done = run(*words(tmp_path / "third", "restore", str(target), "--no-verify"))
    assert (done.code, "they do not belong together" in done.err) == (1, True)


def test_a_full_disk_leaves_no_part_of_a_backup(data: Path, tmp_path: Path) -> None:
    """The process's limit of file sizes is below the size of the copy."""
    target = tmp_path / "backup"
    command = [sys.executable, "-m", "dovetail", *words(data, "backup", str(target))]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 100; exec "$@"', "sh", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "the store cannot be copied" in done.stderr
    assert "there is no room on the disk" in done.stderr
    assert "damaged" not in done.stderr
    assert [path.name for path in tmp_path.iterdir() if "backup" in path.name] == []


# compact and prune


def test_compacting_gives_pruned_space_back_and_changes_nothing_else(data: Path, run: Run) -> None:
    store = data / STORE_NAME
    head = head_of(store)
    done = run(*words(data, "prune", "--depth", "2", "--json"))
    assert json.loads(done.out)["states_from"] == BLOCKS - 2
    assert "0 nodes removed; the states after blocks 8 to 9 are there" in run(*words(data, "prune", "--depth", "2")).out
    before = {table: raw_entries(store, table) for table in records.TABLES}
    size = (store / "data.mdb").stat().st_size
    done = run(*words(data, "compact", "--json"))
    assert done.code == 0, done.err
    assert json.loads(done.out)["before_bytes"] == size
    assert (store / "data.mdb").stat().st_size == json.loads(done.out)["after_bytes"] < size
    assert {table: raw_entries(store, table) for table in records.TABLES} == before
    assert head_of(store) == head
    assert verify(store).kept == []
    assert {path.name for path in store.iterdir()} == {"data.mdb", "lock.mdb", "owner.lock", "readers.lock"}
    long_chain(store, 0, 1, 1)


def test_what_changes_a_store_wants_it_alone(data: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = (("compact",), ("prune", "--depth", "2"), ("repair",))
    with own(data / STORE_NAME):
        for command in commands:
            done = run(*words(data, *command))
            assert (done.code, "in use by another validator" in done.err) == (1, True), command
    reading = "import sys; from pathlib import Path; from dovetail.validator.store import StoreReader\n"
    reading += "r = StoreReader.open(Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", reading, str(data / STORE_NAME)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"open\n"
        with monkeypatch.context() as patch:
            # The command must refuse before it starts to copy.
            for module in ("copies", "repair"):
                patch.delattr(f"dovetail.validator.maintenance.{module}.staging_folder")
            for command in (("compact",), ("repair",)):
                done = run(*words(data, *command))
                assert (done.code, "another process reads the store" in done.err) == (1, True), command
        reader.communicate()
    for command in commands:
        assert run(*words(data, *command)).code == 0
        done = run(*words(data / "none", *command))
        assert (done.code, "there is no store at" in done.err) == (1, True)


@pytest.mark.parametrize(("module", "after"), [("copies", False), ("copies", True), ("repair", True)])
def test_a_kill_leaves_the_old_file_or_the_new_one_and_the_next_run_cleans_up(
    data: Path, run: Run, module: str, after: bool
) -> None:
    store = data / STORE_NAME
    head = head_of(store)
    command = {"copies": "compact", "repair": "repair"}[module]
    killed = f"""
import os, sys
from dovetail.__main__ import main
import dovetail.validator.maintenance.{module} as module
real = module.swap_in
def kill(*arguments, **named):
    if {after}:
        real(*arguments, **named)
    os.kill(os.getpid(), 9)
if __name__ == "__main__":
    module.swap_in = kill
    main(sys.argv[1:])
"""
    script = data / "killed.py"
    script.write_text(killed)
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    ended = subprocess.run([sys.executable, str(script), *words(data, command)], env=environment, check=False)
    assert ended.returncode == -9
    assert head_of(store) == head
    assert verify(store).kept == []
    left = {"compact": "compacting", "repair": "repairing"}[command]
    assert (store / left).exists()
    assert f"{store / left} was left by a killed run" in run(*words(data, "check")).out
    done = run(*words(data, command))
    assert done.code == 0, done.err
    assert f"removed {store / left}, the remains of a killed run" in done.err
    assert not (store / left).exists()
    assert head_of(store) == head


def test_a_name_that_no_system_takes_is_refused(data: Path, tmp_path: Path, run: Run) -> None:
    for command in (("backup", "n" * 300), ("backup", "n" * 250), ("restore", "n" * 300)):
        done = run(*words(data, *command))
        assert (done.code, "File name too long" in done.err) == (1, True), command
        assert "unexpected" not in done.err, command


@pytest.mark.parametrize("command", [("backup", "made"), ("compact",), ("repair",)])
def test_an_interrupt_leaves_all_or_nothing_and_the_exit_code_says_which(
    data: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """Ctrl-C comes just before or just after the result replaces the former store."""
    monkeypatch.chdir(tmp_path)
    store, made = data / STORE_NAME, tmp_path / "made"
    before = (store / "data.mdb").stat().st_ino
    sync_folder = opening.sync_folder
    calls = []

    def interrupted(path: Path) -> None:
        sync_folder(path)
        calls.append(path)
        os.kill(os.getpid(), signal.SIGINT)

    def interrupted_file(path: Path) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        for module in ("staging", "copies"):
            patch.setattr(f"dovetail.validator.maintenance.{module}.sync_file", interrupted_file)
        done = run(*words(data, *command))
    assert done.code == 130
    assert not made.exists()
    assert (store / "data.mdb").stat().st_ino == before
    assert not list(tmp_path.glob(".*.partial"))

    # A backup's folder is also synced before it is renamed.
    monkeypatch.setattr(staging, "sync_folder", lambda path: sync_folder(path) if path.suffix else interrupted(path))
    done = run(*words(data, *command))
    assert calls
    assert done.code == 0, done.err
    assert done.out
    assert made.exists() or (store / "data.mdb").stat().st_ino != before


def without_free_pages(store: Path) -> None:
    """Compact a store as ``compact`` does, even if the store is damaged."""
    with lmdb.open(str(store), readonly=True) as env:
        (store / "copy").mkdir()
        env.copy(str(store / "copy"), compact=True)
    (store / "copy" / "data.mdb").replace(store / "data.mdb")
    (store / "copy").rmdir()


def test_of_a_damaged_ledger_a_backup_is_named_so_and_nothing_is_compacted(
    data: Path, tmp_path: Path, run: Run
) -> None:
    store = data / STORE_NAME
    for table, at in (("batches", 3), ("pending", 0), ("nodes", -1)):
        if found := raw_entries(store, table):
            put_raw(store, table, found[at][0], flip(found[at][1], 10))
    damage = "2 records are not what was written, the first is entry 3 of the table batches"
    target = tmp_path / "backup"
    for kept in ("backup.damaged", "backup.damaged-2"):
        done = run(*words(data, "backup", str(target)))
        assert done.code == 1
        assert f"is damaged, and so is the copy: {damage}. The copy is kept as" in done.err
        assert f"{kept}; rely on earlier backups" in done.err
        assert not target.exists()
        assert json.loads((tmp_path / kept / "backup.json").read_text())["damaged_records"] == 2
        assert raw_entries(tmp_path / kept, "batches") == raw_entries(store, "batches")
    done = run(*words(data, "backup", str(target), "--json"))
    assert (done.code, json.loads(done.out)["target"]) == (1, str(tmp_path / "backup.damaged-3"))
    before = (store / "data.mdb").read_bytes()
    done = run(*words(data, "compact"))
    assert (done.code, f"the store is damaged: {damage}. Nothing has changed" in done.err) == (1, True)
    assert (store / "data.mdb").read_bytes() == before
    done = run(*words(data, "prune", "--depth", "2"))
    assert (done.code, f"pruned, but the store at {store} is damaged: {damage}" in done.err) == (1, True)
    assert f"the states after blocks {BLOCKS - 2} to {BLOCKS - 1} are there" in done.out


# repair


def test_repair_makes_state_and_indexes_anew_and_keeps_the_rest(data: Path, run: Run) -> None:
    store = data / STORE_NAME
    sound = {table: entries(store, table) for table in records.TABLES if table != "meta"}
    for table in ("nodes", "superseded", "block_ids", "batch_ids", "transaction_ids"):
        for name, record in raw_entries(store, table)[::2]:
            put_raw(store, table, name, None if table == "nodes" else flip(record, 2))
    assert len(verify(store)) > 10
    damaged = (store / "data.mdb").read_bytes()
    done = run(*words(data, "repair"))
    assert done.code == 0, done.err
    assert f"blocks 0 to {BLOCKS - 1}, {BLOCKS * 10} transactions rebuilt and verified" in done.out
    assert verify(store).kept == []
    assert {table: entries(store, table) for table in records.TABLES if table != "meta"} == sound
    assert (store / "damaged-1.mdb").read_bytes() == damaged
    assert "damaged-1.mdb is a damaged file that a repair kept" in run(*words(data, "check")).out


def test_repair_mends_single_bits_of_what_nothing_else_could_tell(data: Path, run: Run) -> None:
    store = data / STORE_NAME
    sound = {table: entries(store, table) for table in ("blocks", "batches", "transactions")}
    for table, at in (("blocks", 3), ("batches", 100), ("transactions", 150), ("transactions", 5)):
        name, record = raw_entries(store, table)[at % BLOCKS]
        put_raw(store, table, name, flip(record, at % len(record), at % 8))
    done = run(*words(data, "repair", "--json"))
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert len(report["mended"]) == 4
    assert "a bit of byte 3 in entry 3 of the table blocks" in report["mended"]
    assert {table: entries(store, table) for table in sound} == sound


@pytest.mark.parametrize("table", ["blocks", "batches", "transactions"])
def test_what_no_page_leads_to_is_found_by_its_checksum(data: Path, run: Run, table: str) -> None:
    """The file names a root page of the table that does not exist, so no page leads to the table."""
    store = data / STORE_NAME
    sound = {name: entries(store, name) for name in records.TABLES if name != "meta"}
    assert run(*words(data, "compact")).code == 0
    file = store / "data.mdb"
    content = bytearray(file.read_bytes())
    lead_nowhere(content, table.encode())
    file.write_bytes(content)
    done = run(*words(data, "repair"))
    assert done.code == 0, done.err
    assert f"mended: the way to it in entry 1 of the table {table}" in done.out
    assert {name: entries(store, name) for name in records.TABLES if name != "meta"} == sound


@pytest.mark.parametrize(("table", "what"), [("batches", "is damaged"), ("transactions", "what it wrote is unknown")])
def test_what_is_lost_is_said_and_what_came_before_can_be_kept(data: Path, run: Run, table: str, what: str) -> None:
    store = data / STORE_NAME
    before = (store / "data.mdb").read_bytes()
    name, record = raw_entries(store, table)[55]
    put_raw(store, table, name, record[:60] + bytes(40) + record[100:])
    # Free pages must not hold an old copy of the record, because a repair would find that copy.
    without_free_pages(store)
    damaged = (store / "data.mdb").read_bytes()
    done = run(*words(data, "repair"))
    assert done.code == 1
    assert "block 5: " in done.err
    assert what in done.err
    assert "Restore a backup" in done.err
    assert "keep blocks 0 to 4 alone with --truncate-to 4" in done.err
    assert (store / "data.mdb").read_bytes() == damaged != before
    done = run(*words(data, "repair", "--truncate-to", "4"))
    assert done.code == 0, done.err
    assert "5 blocks after block 4 are lost, as --truncate-to says" in done.err
    assert verify(store).kept == []
    assert len(entries(store, "blocks")) == 5


def test_a_block_to_keep_that_is_not_there_is_wrong_usage(data: Path, run: Run) -> None:
    before = (data / STORE_NAME / "data.mdb").stat().st_ino
    done = run(*words(data, "repair", "--truncate-to", str(BLOCKS)))
    assert done.code == 2
    assert f"there is no block {BLOCKS} to keep: as far as the file tells, its last is {BLOCKS - 1}" in " ".join(
        done.err.replace("│", " ").split()
    )
    assert (data / STORE_NAME / "data.mdb").stat().st_ino == before
    assert run(*words(data, "repair", "--truncate-to", str(BLOCKS - 1))).code == 0


def test_a_pruned_store_is_repaired_to_a_pruned_one(data: Path, run: Run) -> None:
    store = data / STORE_NAME
    assert run(*words(data, "prune", "--depth", "3")).code == 0
    sound = {table: raw_entries(store, table) for table in records.TABLES}
    name, record = raw_entries(store, "nodes")[3]
    put_raw(store, "nodes", name, flip(record, 10))
    assert run(*words(data, "repair")).code == 0
    assert {table: raw_entries(store, table) for table in records.TABLES} == sound


def test_pages_on_which_the_library_gives_up_end_no_command(data: Path, run: Run) -> None:
    """Some tables have a root page that is missing or of another kind. Blocks, batches and receipts are undamaged."""
    store = data / STORE_NAME
    file = store / "data.mdb"
    head = head_of(store)
    content = bytearray(file.read_bytes())
    for name in (b"nodes", b"batch_ids", b"transaction_ids"):
        lead_nowhere(content, name)
    file.write_bytes(content)
    for command in (("check",), ("backup", str(data / "backup"))):
        done = run(*words(data, *command))
        assert done.code == 1, command
        assert "Traceback" not in done.err
        assert "`dovetail store repair`, or restore a backup" in done.err
        assert "the ledger is damaged: `dovetail chain verify` shows where" in done.err
    done = run(*words(data, "repair"))
    assert done.code == 0, done.err
    assert head_of(store) == head
    assert verify(store).kept == []


def test_what_ends_a_process_is_told_and_not_read_again() -> None:
    with pytest.raises(Ended, match="SIGSEGV"):
        run_in_child(lambda _: None, _segfault)
    with pytest.raises(StorageFailed, match="no room"):
        run_in_child(lambda _: None, _refuse)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run_in_child(lambda _: None, _bug)
    assert child_module.__doc__


def _segfault(tell: OnStep) -> None:
    os.kill(os.getpid(), 11)


def _refuse(tell: OnStep) -> None:
    raise OSError("no room")


def _bug(tell: OnStep) -> None:
    raise ZeroDivisionError
