"""Verification of stored chains: sound ones have no finding, and damage of every kind has one, and no traceback."""

import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

import lmdb
import pytest

from ledger.batch import VerifiedBatch, verify_batch
from ledger.building import build_batch, build_transaction
from ledger.ids import BatchId, TransactionId
from ledger.permitted import Permission
from ledger.settings import FamilyVersion
from tests.dovetail.conftest import Run
from tests.dovetail.rehearsal_chain import SIGNER, Chain, Step
from tests.validator.support import make_commit, make_id, permitting, view_of
from validator.journal.migrations import batch_for
from validator.journal.model import InvalidBatch
from validator.store import StorageFailed, StoreReader, records
from validator.store.reader import TABLES
from validator.verification.batches import CheckedBatch, check_batch
from validator.verification.chain import Verification
from validator.verification.findings import FINDINGS_KEPT_MAX, Finding, Findings
from validator.verification.tables import check_tables
from validator.verification.workers import CheckerDied, Checkers, Entry

FLIPS = 25
"""How many records of each table are damaged in each way."""

PAGES = 120
"""How many bytes of the file are damaged, each in a copy of its own."""


class Here(Checkers):
    """Checks in this process: what is checked is the same, and nothing is started."""

    def __init__(self) -> None:
        self.count = 1

    def check(self, entries: Sequence[Entry]) -> "Future[list[CheckedBatch]]":
        done: Future[list[CheckedBatch]] = Future()
        done.set_result([check_batch(*entry) for entry in entries])
        return done


def verify(store: Path, first: int = 0, last: int | None = None) -> Findings:
    reader = StoreReader.open(store)
    try:
        findings = Findings()
        verification = Verification(reader, Here(), findings, first, last)
        check_tables(reader, Here(), findings)
        for _ in verification.blocks():
            pass
        return findings
    finally:
        reader.close()


def make_store(folder: Path) -> Path:
    """Blocks of several batches, leaves set again and again, pending and invalid batches."""
    chain = Chain(folder)
    sets: list[list[Step]] = [[("set", f"n{number}", number)] for number in range(20)]
    chain.steps(*sets)
    chain.steps([("inc", "n1", 1), ("inc", "n2", 1)], [("dec", "n3", 1)])
    chain.steps([("inc", "n1", 1)], [("inc", "n4", 5)])
    chain.steps([("set", "x", 1)])
    pending = [build_batch(SIGNER, [chain.intkey("set", name, 1)]).raw for name in "pq"]
    chain.store.add_pending(pending)
    transactions = tuple(TransactionId(make_id(number)) for number in range(2))
    invalid = InvalidBatch(BatchId(make_id("b")), "invalid_transaction", "no", transaction_ids=transactions)
    chain.store.reject([invalid], [])
    chain.close()
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("sound") / "store")


@pytest.fixture
def copy(store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(store, tmp_path / "copy"))


def entries(store: Path, table: str) -> list[tuple[bytes, bytes]]:
    reader = StoreReader.open(store)
    try:
        return list(reader.entries(table))
    finally:
        reader.close()


def put(store: Path, table: str, name: bytes, record: bytes | None) -> None:
    """Write over an entry behind the store's back; None removes it."""
    with lmdb.open(str(store), max_dbs=len(TABLES)) as env, env.begin(write=True) as transaction:
        opened = env.open_db(table.encode(), txn=transaction)
        if record is None:
            transaction.delete(name, db=opened)
        else:
            transaction.put(name, record, db=opened)


def flip(content: bytes, at: int, bit: int = 0) -> bytes:
    return content[:at] + bytes((content[at] ^ 1 << bit,)) + content[at + 1 :]


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
    held = entries(store, table)
    for number in range(FLIPS):
        copied = Path(shutil.copytree(store, tmp_path / str(number)))
        name, record = rng.choice(held)
        at = rng.randrange(len(record)) if record else 0
        cut, longer, flipped = record[:at], record + b"x", flip(record, at, rng.randrange(8)) if record else b"y"
        changed = (flipped, None, cut, longer)[number % 4]
        if changed == record:
            continue
        put(copied, table, name, changed)
        try:
            findings = verify(copied)
        except StorageFailed:
            # A store whose last block cannot be read is not opened at all.
            if table == "blocks":
                continue
            raise
        # What cannot be seen: that a pending batch is not there, and what the words of a reason were.
        unseen = (table == "pending" and changed is None) or (table == "invalid" and changed == flipped)
        assert len(findings) or unseen or _same_number(table, record, changed), (name.hex(), at, changed)
        shutil.rmtree(copied)


def _same_number(table: str, record: bytes, changed: bytes | None) -> bool:
    """An index's number that is cut where it is all zeros is the same number."""
    ids = table in ("block_ids", "batch_ids", "transaction_ids")
    return ids and changed is not None and int.from_bytes(changed, "big") == int.from_bytes(record, "big")


def test_any_damage_of_the_file_is_found_refused_or_harmless(store: Path, tmp_path: Path) -> None:
    """In a process each: the C library may end it, which is no traceback either, and is counted."""
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


# What the journal's rules forbid


def commit(chain: Chain, *batches: VerifiedBatch, changes: dict[str, bytes | None] | None = None) -> None:
    chain.store.commit_block(make_commit(chain.store, batches, changes))


def intkey(chain: Chain, name: str) -> VerifiedBatch:
    return verify_batch(build_batch(SIGNER, [chain.intkey("set", name, 1)]).raw)


def bare(family: str, *, outputs: Sequence[str] = (), dependencies: Sequence[TransactionId] = ()) -> VerifiedBatch:
    """A batch of one transaction of version 1.0 of any family."""
    transaction = build_transaction(
        SIGNER,
        batcher_pubkey=SIGNER.public_key,
        family_name=family,
        family_version="1.0",
        inputs=(),
        outputs=outputs,
        payload=b"",
        payload_encoding="",
        nonce="",
        dependencies=dependencies,
    )
    return verify_batch(build_batch(SIGNER, [transaction]).raw)


def test_a_block_that_holds_what_it_may_not_is_found(tmp_path: Path) -> None:
    chain = Chain(tmp_path / "store")
    commit(chain, intkey(chain, "a"))
    commit(chain, bare("intkey", dependencies=[TransactionId(make_id("nobody"))]))
    commit(chain, batch_for(Permission(FamilyVersion("intkey", "2.0"), migrate=("1cf126",)), view_of({})))
    permits_none: dict[str, bytes | None] = {**permitting("[]")}
    commit(chain, bare("any", outputs=list(permits_none)), changes=permits_none)
    commit(chain, intkey(chain, "b"))
    chain.close()
    found = [(finding.block_num, finding.what) for finding in verify(tmp_path / "store").kept]
    assert found == [(1, "waiting_for_dependency"), (2, "migration_key"), (4, "family_not_permitted")]


def test_what_a_receipt_writes_outside_the_outputs_is_found(tmp_path: Path) -> None:
    chain = Chain(tmp_path / "store")
    commit(chain, intkey(chain, "a"), changes={"ff" * 35: b"x"})
    chain.close()
    (finding,) = verify(tmp_path / "store").kept
    assert (finding.what, finding.found) == ("receipt_writes", "ff" * 35)


# The command


def test_the_command_says_sound_or_names_what_is_not(store: Path, tmp_path: Path, run: Run) -> None:
    data = tmp_path / "data"
    copied = Path(shutil.copytree(store, data / "store"))
    words = ("chain", "verify", "--data-dir", str(data), "--processes", "1")
    done = run(*words)
    assert (done.code, done.err) == (0, "")
    assert "blocks 0 to 3: 4 blocks, 26 transactions verified" in done.out
    assert done.out.endswith("sound\n")
    name, node = entries(copied, "nodes")[5]
    put(copied, "nodes", name, flip(node, len(node) - 1))
    done = run(*words)
    assert done.code == 1
    assert f"block 0, node {int.from_bytes(name, 'big')}: node: expected" in done.out
    assert "is not sound, 1 findings. What to do: stop the validator and restore a backup" in done.err
    done = run(*words, "--json", "--from", "0", "--to", "2")
    report = json.loads(done.out)
    assert (done.code, report["sound"], report["last_block"], report["transactions"]) == (1, False, 2, 25)
    assert [finding["what"] for finding in report["findings"]] == ["node"]


def test_blocks_that_are_not_there_and_no_store_are_refused(store: Path, tmp_path: Path, run: Run) -> None:
    data = tmp_path / "data"
    shutil.copytree(store, data / "store")
    words = ("chain", "verify", "--data-dir", str(data), "--processes", "1")
    for part in (("--from", "4"), ("--to", "4"), ("--from", "2", "--to", "1")):
        done = run(*words, *part)
        assert (done.code, "the chain has blocks 0 to 3" in done.err) == (1, True)
    done = run("chain", "verify", "--data-dir", str(tmp_path / "none"))
    assert (done.code, "there is no store at" in done.err) == (1, True)
    assert run(*words, "--family", "a:B").code == 2


def test_findings_are_bounded() -> None:
    findings = Findings()
    for number in range(FINDINGS_KEPT_MAX + 5):
        findings.add(Finding(number, "node", "somewhere", "a", "b"))
    assert (len(findings), len(findings.kept)) == (FINDINGS_KEPT_MAX + 5, FINDINGS_KEPT_MAX)


def test_a_checker_that_dies_is_told() -> None:
    with Checkers(1) as checkers:
        checkers._workers[0].kill()
        with pytest.raises(CheckerDied, match="ended with exit code -9"):
            checkers.check([(b"x", None)]).result()
