"""Stores to verify: a sound one, blocks that break rules, and entries changed behind a store's back. No assertions."""

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import lmdb

from dovetail.ledger.batch import VerifiedBatch, verify_batch
from dovetail.ledger.block import decode_block_header, seal
from dovetail.ledger.building import build_batch, build_transaction
from dovetail.ledger.ids import BatchId, TransactionId
from dovetail.ledger.signing import Signer
from dovetail.validator.core.journal.model import InvalidBatch
from dovetail.validator.history.verification.batches import CheckedBatch, check_batch
from dovetail.validator.history.verification.chain import Verification
from dovetail.validator.history.verification.findings import Findings
from dovetail.validator.history.verification.tables import check_tables
from dovetail.validator.history.verification.workers import Checkers, Entry
from dovetail.validator.store import StoreReader, records
from dovetail.validator.store.records import TABLES
from tests.dovetail.rehearsal.rehearsal_chain import SIGNER, Chain, Step
from tests.dovetail.validator.support import make_commit, make_id


class Here(Checkers):
    """Checks in this process, without starting workers."""

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
    """Blocks of several batches, leaves written repeatedly, pending and invalid batches."""
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


def entries(store: Path, table: str) -> list[tuple[bytes, bytes]]:
    """Key and content of each entry."""
    reader = StoreReader.open(store)
    try:
        return list(reader.entries(table))
    finally:
        reader.close()


def raw_entries(store: Path, table: str) -> list[tuple[bytes, bytes]]:
    """Key and stored record of each entry."""
    reader = StoreReader.open(store)
    try:
        return list(reader.raw_entries(table))
    finally:
        reader.close()


def put(store: Path, table: str, name: bytes, content: bytes | None) -> None:
    """Overwrite an entry behind the store's back, with a matching checksum; None removes the entry."""
    put_raw(store, table, name, None if content is None else records.sealed(table, name, content))


def put_raw(store: Path, table: str, name: bytes, record: bytes | None) -> None:
    """Overwrite a stored record, checksum included; None removes the entry."""
    with lmdb.open(str(store), max_dbs=len(TABLES)) as env, env.begin(write=True) as transaction:
        opened = env.open_db(table.encode(), txn=transaction)
        if record is None:
            transaction.delete(name, db=opened)
        else:
            transaction.put(name, record, db=opened)


def flip(content: bytes, at: int, bit: int = 0) -> bytes:
    return content[:at] + bytes((content[at] ^ 1 << bit,)) + content[at + 1 :]


def reseal(store: Path, num: int, signer: Signer = SIGNER, **fields: Any) -> None:
    """Seal a block again with other ``fields`` in its header, and update its indexes."""
    name, record = entries(store, "blocks")[num]
    info = records.decode_block_info(num, record)
    header = decode_block_header(info.header_bytes)._replace(signer_pubkey=signer.public_key, **fields)
    sealed = seal(signer, header, [])
    changed = info._replace(id=sealed.id, header_bytes=sealed.header_bytes)
    put(store, "blocks", name, records.encode_block_info(changed))
    put(store, "block_ids", records.id_key(info.id), None)
    put(store, "block_ids", records.id_key(sealed.id), records.key(num))


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
