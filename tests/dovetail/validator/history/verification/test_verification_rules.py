"""Chains that break a rule, with valid signatures and undamaged bytes."""

from collections import Counter
from pathlib import Path
from typing import Any

import lmdb
import pytest

from dovetail.ledger import migration
from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.block import BlockHeader, decode_block_header
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.permitted import Permission, encode_permitted_families
from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.signing import Signer
from dovetail.validator.core.journal.migrations import batch_for
from dovetail.validator.history.verification import chain as verification_chain
from dovetail.validator.history.verification.batches import check_batch
from dovetail.validator.history.verification.chain import Verification
from dovetail.validator.history.verification.findings import Findings
from dovetail.validator.store import StorageFailed, Store, StoreReader, records
from dovetail.validator.store.records import TABLES
from protos.transaction_receipt_pb2 import TransactionReceipt
from tests.dovetail.rehearsal.rehearsal_chain import SIGNER, Chain
from tests.dovetail.validator.history.verified import (
    Here,
    bare,
    commit,
    entries,
    flip,
    intkey,
    make_store,
    put,
    put_raw,
    raw_entries,
    reseal,
    verify,
)
from tests.dovetail.validator.support import LIMITS, address, make_id, permitting, view_of

V2 = FamilyVersion("intkey", "2.0")
MOVES = Permission(V2, 2, migrate=("1cf126",))
FEW = batch_for(MOVES, view_of({}))
MANY = batch_for(MOVES, view_of({address(number): b"x" for number in range(migration.LEAVES_MAX + 1)}))


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


def test_bytes_of_a_batch_that_nobody_signed_are_found(tmp_path: Path) -> None:
    chain = Chain(tmp_path / "store")
    signed = intkey(chain, "a")
    commit(chain, signed._replace(raw=signed.raw + b"\x20\x01"))
    chain.close()
    (finding,) = verify(tmp_path / "store").kept
    assert finding.what == "batch_form"
    assert str(len(signed.raw)) in finding.expected


@pytest.mark.parametrize(
    ("blocks", "found"),
    [
        ([[FEW]], []),
        # A migration may be sliced for an earlier state, so each of these two slicings is legal.
        ([[MANY]], []),
        ([[None, FEW]], []),
        ([[FEW, MANY]], [(2, "migration_key")]),
        ([[FEW, FEW]], [(2, "batch_ids"), (2, "transaction_ids"), (2, "migration_key")]),
        ([[FEW], [MANY]], [(3, "migration_key")]),
    ],
)
def test_a_version_migrates_once_and_in_one_block(
    tmp_path: Path, blocks: list[list[VerifiedBatch | None]], found: list[tuple[int, str]]
) -> None:
    """A legal migration is sound anywhere in its block. A second migration of the version is a finding."""
    chain = Chain(tmp_path / "store")
    families = [Permission(FamilyVersion(name, "1.0")) for name in ("any", "intkey")]
    setting = permitting(encode_permitted_families([*families, MOVES]))
    commit(chain, bare("any", outputs=list(setting)), changes={**setting})
    commit(chain, intkey(chain, "a"), changes=None)
    for batches in blocks:
        commit(chain, *(batch or intkey(chain, "b") for batch in batches))
    chain.close()
    kept = [(finding.block_num, finding.what) for finding in verify(tmp_path / "store").kept]
    assert [one for one in found if one not in kept] == []
    assert kept if found else not kept


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


@pytest.mark.parametrize(
    ("what", "fields"),
    [
        ("consensus", {"consensus": b"proof of nothing"}),
        ("block_num", {"block_num": 9}),
        ("previous_block_id", {"previous_block_id": make_id("another")}),
    ],
)
def test_a_header_that_says_something_else_is_found(store: Path, what: str, fields: dict[str, Any]) -> None:
    reseal(store, 3, **fields)
    assert set(verify(store).counts) == {what}


def test_a_state_root_in_another_form_is_found(store: Path) -> None:
    root = _header(store, 3).state_root_hash
    for form in (root.upper(), f"{root[:2]} {root[2:]}", f" {root}"):
        reseal(store, 3, state_root_hash=form)
        assert set(verify(store).counts) == {"state_root_form"}


def test_a_header_that_names_another_batch_is_found(store: Path) -> None:
    reseal(store, 3, batch_ids=_header(store, 2).batch_ids[:1])
    (finding,) = verify(store).kept
    assert (finding.what, finding.expected) == ("batch_ids_of_header", _header(store, 2).batch_ids[0][:200])


def test_who_sealed_how_much_is_told(store: Path) -> None:
    """The result counts the blocks of each signer. Only another node knows which key is right."""
    other = Signer("33" * 32)
    reseal(store, 3, other)
    reader = StoreReader.open(store)
    verification = Verification(reader, Here(), Findings())
    assert all(block.sound for block in verification.blocks())
    assert verification.sealed_by == {SIGNER.public_key: 3, other.public_key: 1}
    assert reader.head is not None
    assert verification.last_id == reader.head.id
    reader.close()


@pytest.mark.parametrize("field", ["events", "data"])
def test_what_nothing_signed_covers_is_found(store: Path, field: str) -> None:
    name, record = entries(store, "transactions")[21]
    start = records._TRANSACTION.size
    receipt = TransactionReceipt.FromString(record[start:])
    if field == "events":
        receipt.events.add(event_type="forged")
    else:
        receipt.data.append(b"forged")
    written = dict(raw_entries(store, "transactions"))[name]
    put_raw(store, "transactions", name, record[:start] + receipt.SerializeToString() + written[-records.SEAL_BYTES :])
    assert "transaction_record" in verify(store).counts


def test_a_receipt_in_another_form_is_found(store: Path) -> None:
    """A new checksum over bytes that encode the same value in another way."""
    name, record = entries(store, "transactions")[21]
    stored = records.decode_transaction(21, record)
    content = stored.receipt + b"\xa0\x1f\x01"
    put(store, "transactions", name, records.encode_transaction(stored.batch_number, stored.position, content))
    assert verify(store).counts == {"receipt_form": 1}


def test_receipts_that_do_not_fit_their_batch_are_found(store: Path) -> None:
    raw = records.decode_batch(21, entries(store, "batches")[21][1]).raw
    held = [records.decode_transaction(0, record).receipt for _, record in entries(store, "transactions")]
    fitting = next(content for content in held if not check_batch(raw, [content]).faults)
    assert [fault.what for fault in check_batch(raw, []).faults] == ["receipts"]
    assert [fault.what for fault in check_batch(raw, [fitting, fitting]).faults] == ["receipts"]
    receipt = TransactionReceipt.FromString(fitting)
    receipt.state_changes[0].address = "no address"
    assert [fault.what for fault in check_batch(raw, [receipt.SerializeToString()]).faults] == ["receipt_form"]


def test_receipts_in_each_others_place_are_found(store: Path) -> None:
    (first, one), (second, other) = entries(store, "transactions")[20:22]
    for name, here, there in ((first, one, other), (second, other, one)):
        stored, receipt = records.decode_transaction(0, here), records.decode_transaction(0, there).receipt
        put(store, "transactions", name, records.encode_transaction(*stored[1:3], receipt))
    assert verify(store).counts["receipt_names"] == 2


def test_what_lies_beside_the_chain_is_looked_at(store: Path, tmp_path: Path) -> None:
    arrival, _ = entries(store, "pending")[0]
    put(store, "pending", arrival, b"")
    put(store, "meta", b"more", b"x")
    sealed = records.sealed("meta", records.QUEUE_KEY, records.encode_queue(records.QueueRecord()))
    put_raw(store, "meta", records.QUEUE_KEY, sealed)
    assert verify(store).counts["meta"] == 1
    put_raw(store, "meta", records.QUEUE_KEY, flip(sealed, 0))
    assert [(finding.what, finding.where) for finding in verify(store).kept] == [
        ("meta", "meta 6d6f7265 (4 bytes)"),
        ("meta", "meta 7175657565 (5 bytes)"),
        ("pending", f"pending entry {arrival.hex()}"),
    ]


def test_a_table_too_many_is_found(store: Path) -> None:
    with lmdb.open(str(store), max_dbs=len(TABLES) + 1) as env:
        env.open_db(b"more")
    (finding,) = verify(store).kept
    assert (finding.what, finding.where) == ("table", "table 6d6f7265 (4 bytes)")


@pytest.mark.parametrize("table", ["blocks", "nodes", "batches", "transactions", "pending"])
def test_a_key_that_is_no_number_is_refused_or_found(store: Path, table: str) -> None:
    put(store, table, b"\xff" * 9, b"\0" * 8)
    if table == "blocks":
        with pytest.raises(StorageFailed, match="the last key of the table blocks is no number"):
            verify(store)
    else:
        assert len(verify(store))
    if table in ("blocks", "nodes", "pending"):
        with pytest.raises(StorageFailed, match=f"the last key of the table {table} is no number"):
            Store(store, LIMITS)


@pytest.mark.parametrize("field", ["first_batch", "first_transaction"])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_numbers_that_no_key_can_hold_are_found(store: Path, field: str, first: int) -> None:
    name, record = entries(store, "blocks")[1]
    beyond: dict[str, Any] = {field: 2**64 - 1}
    info = records.decode_block_info(1, record)._replace(**beyond)
    put(store, "blocks", name, records.encode_block_info(info))
    assert verify(store, first).counts["numbering"]


def test_a_long_reading_lets_go_of_what_it_has_read(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refreshed = Counter[str]()
    monkeypatch.setattr(StoreReader, "refresh", lambda _: refreshed.update("x"))
    monkeypatch.setattr(verification_chain, "_GROUP_BLOCKS", 1)
    verify(store)
    assert refreshed["x"] == 4


def test_pending_batches_that_are_none_are_found(store: Path) -> None:
    """The table holds a committed batch, a migration, and undecodable bytes. Their checksums are valid."""
    committed = records.decode_batch(0, entries(store, "batches")[0][1]).raw
    for arrival, raw in ((50, committed), (51, FEW.raw), (52, FEW.raw[:-1])):
        put(store, "pending", records.key(arrival), raw)
    found = [(finding.where, finding.found) for finding in verify(store).kept]
    assert found[:2] == [("pending batch, arrival 50", "one that is"), ("pending batch, arrival 51", "a migration")]
    ((where, why),) = found[2:]
    assert where == "pending batch, arrival 52"
    assert "batch_not_decodable" in why


def test_what_is_remembered_under_no_id_or_another_is_found(store: Path) -> None:
    """The record of an INVALID batch has a wrong id. Its checksum and its place in the order are valid."""
    ((name, record),) = entries(store, "invalid")
    content = records._invalid_encoder.encode(records.decode_invalid(record))
    for number, other in ((0, b"\1" * 64), (1, b"short")):
        place = records.key(number)
        put(store, "invalid", name, None)
        put(store, "invalid", other, place + content)
        put(store, "invalid_order", place, other)
    found = [(finding.where, finding.expected) for finding in verify(store).kept]
    assert found == [
        (f"invalid {'01' * 64}", f"batch {'01' * 64}"),
        ("invalid 73686f7274", "an id of 64 bytes as its key"),
        ("invalid 73686f7274", "batch 73686f7274"),
    ]


def test_a_pending_batch_under_another_number_is_found(store: Path) -> None:
    arrival, record = raw_entries(store, "pending")[0]
    put(store, "pending", arrival, None)
    put_raw(store, "pending", records.key(64), record)
    assert set(verify(store).counts) == {"pending"}


def _header(store: Path, num: int) -> BlockHeader:
    reader = StoreReader.open(store)
    try:
        info = reader.block(num)
        assert info is not None
        return decode_block_header(info.header_bytes)
    finally:
        reader.close()
