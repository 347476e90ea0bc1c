"""Verification of stored chains: no finding in a sound chain, a finding for every kind of damage, never a traceback."""

import json
import os
import pickle
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.validator.history.verification.findings import FINDINGS_KEPT_MAX, Finding, Findings
from dovetail.validator.history.verification.pages import check_pages
from dovetail.validator.history.verification.workers import CheckerDied, Checkers
from dovetail.validator.store import StorageFailed, StoreReader, records
from dovetail.validator.store.records import TABLES
from tests.dovetail.cli.commands.flipped import forked_child
from tests.dovetail.conftest import Run
from tests.dovetail.rehearsal.rehearsal_chain import SIGNER
from tests.dovetail.validator.history.verified import entries, flip, make_store, put, put_raw, raw_entries, verify

FLIPS = 25
"""How many records of each table are damaged in each way."""

PAGES = 120
"""How many bytes of the file are damaged, each in a copy of its own."""


@pytest.fixture(autouse=True)
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes are forked: a fresh interpreter takes longer than the verification."""
    monkeypatch.setattr("dovetail.cli.commands.chain.run_in_child", forked_child)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("sound") / "store")


@pytest.fixture
def copy(store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(store, tmp_path / "copy"))


def test_a_sound_store_has_no_findings_in_whole_and_in_part(store: Path) -> None:
    for first, last in ((0, None), (1, None), (2, None), (3, 3), (1, 2), (0, 1)):
        assert verify(store, first, last).kept == []


# One kind of damage after the other


DAMAGE: dict[str, tuple[str, int, Callable[[bytes], bytes | None], str]] = {
    "seal": ("blocks", 1, lambda record: flip(record, 3), "seal"),
    "root in the record": ("blocks", 1, lambda record: flip(record, 64), "root_record"),
    "first batch": ("blocks", 1, lambda record: flip(record, 64 + 32 + 8 + 4 + 7), "numbering"),
    "header": ("blocks", 2, lambda record: flip(record, len(record) - 1), "seal"),
    "block gone": ("blocks", 1, lambda _: None, "block_record"),
    "block id": ("block_ids", 0, lambda _: records.key(77), "block_ids"),
    "batch": ("batches", 21, lambda record: flip(record, 40), "signature_mismatch"),
    "block of a batch": ("batches", 5, lambda record: flip(record, 7), "batch_record"),
    "batch gone": ("batches", 5, lambda _: None, "batch_record"),
    "batch id": ("batch_ids", 3, lambda record: flip(record, 7), "batch_ids"),
    "receipt": ("transactions", 21, lambda record: flip(record, len(record) - 200), "state_root"),
    "position": ("transactions", 21, lambda record: flip(record, 11), "transaction_record"),
    "transaction gone": ("transactions", 21, lambda _: None, "transaction_record"),
    "transaction id": ("transaction_ids", 3, lambda _: None, "transaction_ids"),
    "leaf": ("nodes", 2, lambda node: flip(node, len(node) - 1), "node"),
    "number in a branch": ("nodes", 30, lambda node: flip(node, len(node) - 5), "node"),
    "node gone": ("nodes", 2, lambda _: None, "node"),
    "superseded": ("superseded", 1, lambda record: flip(record, 7), "superseded"),
    "pending": ("pending", 0, lambda raw: flip(raw, 100), "pending"),
    "invalid": ("invalid", 0, lambda record: record[:20], "invalid"),
    "order of invalid": ("invalid_order", 0, lambda record: flip(record, 0), "invalid"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_and_named(copy: Path, damage: str) -> None:
    table, index, change, what = DAMAGE[damage]
    name, record = entries(copy, table)[index]
    put(copy, table, name, change(record))
    findings = verify(copy)
    assert what in findings.counts
    assert all(finding.advice and finding.expected and finding.found for finding in findings.kept)


def test_a_last_block_that_cannot_be_read_is_not_told_by_the_id_of_another(
    store: Path, tmp_path: Path, run: Run
) -> None:
    copied = Path(shutil.copytree(store, tmp_path / "store"))
    put(copied, "blocks", records.key(2), None)
    done = run("chain", "verify", "--data-dir", str(tmp_path), "--to", "2", "--processes", "1")
    assert "\nblock 2: cannot be read\n" in done.out


def test_one_wrong_node_is_one_finding_however_often_it_is_read_later(copy: Path) -> None:
    name, node = entries(copy, "nodes")[5]
    put(copy, "nodes", name, flip(node, len(node) - 1))
    (finding,) = verify(copy).kept
    assert (finding.block_num, finding.what) == (0, "node")
    assert finding.where == f"block 0, node {int.from_bytes(name, 'big')}"


def test_a_wrong_receipt_does_not_take_later_blocks_with_it(copy: Path) -> None:
    name, record = entries(copy, "transactions")[20]
    put(copy, "transactions", name, record[: records._TRANSACTION.size])
    findings = verify(copy)
    assert {finding.block_num for finding in findings.kept} == {1}
    assert {"receipt_names", "state_root"} <= findings.counts.keys()


def test_what_is_too_much_is_found(copy: Path) -> None:
    for table, name in (("batch_ids", b"\1" * 64), ("nodes", records.key(10_000)), ("superseded", records.key(99))):
        put(copy, table, name, records.key(1))
    found = {finding.where for finding in verify(copy).kept}
    assert found == {"table batch_ids", "table nodes", "table superseded"}


def test_a_part_checks_its_links_and_the_whole_state_that_it_builds_on(copy: Path) -> None:
    replaced = b"".join(record for _, record in entries(copy, "superseded"))
    name, node = next((name, node) for name, node in entries(copy, "nodes") if name not in replaced)
    put(copy, "nodes", name, flip(node, len(node) - 1))
    assert verify(copy, 2).counts["state_unknown"]
    put(copy, "nodes", name, node)
    assert verify(copy, 2).kept == []
    name, record = entries(copy, "blocks")[1]
    put(copy, "blocks", name, flip(record, 2))
    assert verify(copy, 2, 2).counts["previous_block_id"]


@pytest.mark.parametrize("table", [table for table in TABLES if table != "meta"])
def test_any_damage_of_a_record_is_found_or_harmless_and_never_an_exception(
    store: Path, tmp_path: Path, table: str
) -> None:
    rng = random.Random(table)
    held = raw_entries(store, table)
    for number in range(FLIPS):
        copied = Path(shutil.copytree(store, tmp_path / str(number)))
        name, record = rng.choice(held)
        at = rng.randrange(len(record)) if record else 0
        cut, longer, flipped = record[:at], record + b"x", flip(record, at, rng.randrange(8)) if record else b"y"
        changed = (flipped, None, cut, longer)[number % 4]
        if changed == record:
            continue
        put_raw(copied, table, name, changed)
        try:
            findings = verify(copied)
        except StorageFailed:
            # A store whose last block cannot be read cannot be opened at all.
            if table == "blocks":
                continue
            raise
        # Verification cannot notice a missing pending batch.
        unseen = table == "pending" and changed is None
        assert len(findings) or unseen, (name.hex(), at, changed)
        shutil.rmtree(copied)


def test_any_damage_of_the_file_is_found_refused_or_harmless(store: Path, tmp_path: Path) -> None:
    """Each verification runs in a process of its own. The test counts the processes that the C library kills."""
    rng = random.Random(5)
    content = (store / "data.mdb").read_bytes()
    ends = []
    for number in range(PAGES):
        folder = tmp_path / str(number)
        folder.mkdir()
        page = rng.randrange(len(content) // 4096) * 4096
        at = page + rng.randrange(64 if number % 2 else 4096)
        (folder / "data.mdb").write_bytes(flip(content, at, rng.randrange(8)))
        ends.append(_verified_apart(folder))
        shutil.rmtree(folder)
    assert not ends.count(_FAILED), ends
    assert ends.count(_FOUND) > PAGES // 10


_HARMLESS, _FOUND, _REFUSED, _FAILED = range(4)


def _verified_apart(folder: Path) -> int:
    pid = os.fork()
    if pid == 0:
        code = _FAILED
        try:
            code = _FOUND if len(verify(folder)) else _HARMLESS
        except StorageFailed:
            code = _REFUSED
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


# The command


def test_the_command_says_sound_or_names_what_is_not(store: Path, tmp_path: Path, run: Run) -> None:
    data = tmp_path / "data"
    copied = Path(shutil.copytree(store, data / "store"))
    words = ("chain", "verify", "--data-dir", str(data), "--processes", "1")
    done = run(*words)
    assert (done.code, done.err) == (0, "")
    assert "blocks 0 to 3: 4 blocks, 26 transactions verified" in done.out
    assert done.out.endswith("sound\n")
    sound = done.out
    verified_id = entries(copied, "blocks")[3][1][:64].hex()
    name, node = entries(copied, "nodes")[5]
    put(copied, "nodes", name, flip(node, len(node) - 1))
    done = run(*words)
    assert done.code == 1
    assert f"block 0, node {int.from_bytes(name, 'big')}: node: expected" in done.out
    assert "is not sound, 1 finding. What to do: stop the validator, then `dovetail store repair`" in done.err
    done = run(*words, "--json", "--from", "0", "--to", "2")
    report = json.loads(done.out)
    assert (done.code, report["sound"], report["last_block"], report["transactions"]) == (1, False, 2, 25)
    assert [finding["what"] for finding in report["findings"]] == ["node"]
    assert report["sealed_by"] == {SIGNER.public_key: 3}
    assert f"block 3: {verified_id}\n" in sound
    assert f"blocks sealed by {SIGNER.public_key}: 4\n" in sound


def test_the_pages_are_walked_where_nobody_writes(store: Path, tmp_path: Path, run: Run) -> None:
    """Every page with entries gets a wrong page number, which LMDB ignores."""
    copied = Path(shutil.copytree(store, tmp_path / "data" / "store"))
    words = ("chain", "verify", "--data-dir", str(tmp_path / "data"), "--processes", "1", "--json")
    assert json.loads(run(*words).out)["pages_walked"]
    content = (copied / "data.mdb").read_bytes()
    for at in range(2 * 4096, len(content), 4096):
        content = flip(content, at, 3) if content[at + 10] == 2 else content
    (copied / "data.mdb").write_bytes(content)
    report = json.loads(run(*words).out)
    assert set(report["findings_by_kind"]) == {"pages"}
    reader = StoreReader.open(copied)
    written = iter((1, 2))
    findings = Findings()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "written", lambda: next(written))
        assert not check_pages(reader, copied, findings)
    reader.close()
    assert len(findings) == 0


def test_blocks_that_are_not_there_and_no_store_are_refused(store: Path, tmp_path: Path, run: Run) -> None:
    data = tmp_path / "data"
    shutil.copytree(store, data / "store")
    words = ("chain", "verify", "--data-dir", str(data), "--processes", "1")
    for part in (("--from", "4"), ("--to", "4")):
        done = run(*words, *part)
        assert (done.code, "the chain has blocks 0 to 3" in done.err) == (1, True)
    done = run(*words, "--from", "2", "--to", "1")
    assert (done.code, "--from 2 comes after --to 1" in " ".join(done.err.replace("│", " ").split())) == (2, True)
    done = run("chain", "verify", "--data-dir", str(tmp_path / "none"))
    assert (done.code, "there is no store at" in done.err) == (1, True)
    assert run(*words, "--family", "a:B").code == 2


def test_findings_are_bounded() -> None:
    findings = Findings()
    for number in range(FINDINGS_KEPT_MAX + 5):
        findings.add(Finding(number, "node", "somewhere", "a", "b"))
    assert (len(findings), len(findings.kept)) == (FINDINGS_KEPT_MAX + 5, FINDINGS_KEPT_MAX)


def test_a_checker_whose_parent_is_killed_ends_without_a_word(tmp_path: Path) -> None:
    """The parent is killed while its checker works. The checker must print nothing."""
    read, write = os.pipe()
    with (tmp_path / "err").open("w+b") as err:
        command = [sys.executable, "-m", "dovetail.validator.history.verification.workers"]
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=write, stderr=err)
        os.close(read)
        os.close(write)
        content = pickle.dumps([(b"x", None)])
        worker.communicate(struct.pack(">Q", len(content)) + content)
        assert worker.returncode == 0
        err.seek(0)
        assert err.read() == b""


def test_a_checker_that_dies_is_told() -> None:
    with Checkers(1) as checkers:
        checkers._workers[0].kill()
        with pytest.raises(CheckerDied, match="ended with exit code -9"):
            checkers.check([(b"x", None)]).result()
