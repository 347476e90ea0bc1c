"""The expected chain: runs the blocks on the disk again, serially, over one dictionary.

The model does not use the validator's executor, rules and trie. ``Model.check`` is called after every synced write.
"""

import json
from functools import lru_cache
from typing import NamedTuple

from dovetail.ledger import migration
from dovetail.ledger.batch import VerifiedBatch, VerifiedTransaction, verify_migration
from dovetail.ledger.block import decode_block_header
from dovetail.ledger.ids import NULL_BLOCK_ID
from dovetail.ledger.permitted import PERMITTED_AT
from dovetail.ledger.receipt import Receipt, encode_receipt
from dovetail.ledger.settings import TRANSACTION_FAMILIES, FamilyVersion, decode_setting
from dovetail.ledger.transaction import decode_transaction
from dovetail.validator.store import records
from tests.system.simulation.disk import Disk
from tests.system.simulation.programs import NAMESPACES, Ask, Found, Invalid, steps
from tests.vectors.naive_trie import root_hash


class Violated(Exception):
    """An invariant does not hold; the message says which."""


class Entry(NamedTuple):
    """One entry of the setting of the permitted families."""

    from_block: int
    until_block: int | None
    migrate: tuple[str, ...]


Permitted = dict[FamilyVersion, list[Entry]] | None
"""None: every family is permitted."""


class Model:
    """The part of the chain that was checked so far."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        """The ids of the checked blocks."""
        self.state: dict[str, bytes] = {}
        self.batches: set[str] = set()
        self.transactions: set[str] = set()
        self.migrated: set[FamilyVersion] = set()
        self._batch_count = 0
        self._base: tuple[int, Permitted] = (0, None)
        """The number of the block of the last write, and the families that were permitted before that block."""

    def check(self, disk: Disk) -> None:
        """Check the block that a write added, if any. Raises Violated."""
        blocks = disk.records("blocks")
        permitted = self.permitted()
        self._base = len(self.blocks), permitted
        if len(blocks) == len(self.blocks):
            return
        if len(blocks) != len(self.blocks) + 1:
            raise Violated(f"the head moved from block {len(self.blocks) - 1} to {len(blocks) - 1}")
        num = len(self.blocks)
        info = records.decode_block_info(num, blocks[records.key(num)])
        header = decode_block_header(info.header_bytes)
        previous = self.blocks[-1] if self.blocks else NULL_BLOCK_ID
        _same("block number", header.block_num, num)
        _same("previous block", header.previous_block_id, previous)
        _same("first batch", info.first_batch, self._batch_count)
        ids = []
        for number in info.batches:
            batch = decoded(records.decode_batch(number, disk.records("batches")[records.key(number)]).raw)
            ids.append(batch.id)
            stored = [
                records.decode_transaction(place, disk.records("transactions")[records.key(place)]).receipt
                for place in range(len(self.transactions), len(self.transactions) + len(batch.transactions))
            ]
            self._apply(num, batch, permitted, stored)
        _same("batch ids", list(header.batch_ids), ids)
        _same("last transaction", info.transaction_end, len(self.transactions))
        root = root_hash(self.state).hex()
        _same("state root in the header", header.state_root_hash, root)
        _same("state root in the record", info.root.hash.hex(), root)
        self._batch_count += len(ids)
        self.blocks.append(info.id)

    def permitted(self) -> Permitted:
        """The permitted families in the current state."""
        value = decode_setting(self.state.get(PERMITTED_AT)).get(TRANSACTION_FAMILIES)
        if value is None:
            return None
        entries: dict[FamilyVersion, list[Entry]] = {}
        for entry in json.loads(value):
            family = FamilyVersion(entry["family"], entry["version"])
            spans = entries.setdefault(family, [])
            spans.append(Entry(entry.get("from_block", 0), entry.get("until_block"), tuple(entry.get("migrate", ()))))
        return entries

    def may_enter_later(self, family: FamilyVersion) -> bool:
        """Whether a family's transactions are permitted only after the next block."""
        num = len(self.blocks)
        entries = (self.permitted() or {}).get(family, [])
        return any(entry.from_block > num for entry in entries) and not _cover(entries, num)

    def was_shut_out(self, family: FamilyVersion) -> bool:
        """Whether a family's transactions were permitted neither in the block of the last write nor later."""
        num, permitted = self._base
        entries = None if permitted is None else permitted.get(family, [])
        return entries is not None and not _cover(entries, num) and all(entry.from_block <= num for entry in entries)

    def _apply(self, num: int, batch: VerifiedBatch, permitted: Permitted, stored: list[bytes]) -> None:
        where = f"batch {batch.id[:8]} of block {num}"
        if batch.id in self.batches:
            raise Violated(f"{where} is on the chain twice")
        self.batches.add(batch.id)
        trial = dict(self.state)
        for transaction, receipt in zip(batch.transactions, stored, strict=True):
            self._check_place(where, num, transaction, permitted)
            changes, digest = _run(where, transaction, trial)
            expected = encode_receipt(Receipt(transaction.id, changes, (), (digest,)))
            if expected != receipt:
                raise Violated(f"{where}: a receipt is not that of serial execution, transaction {transaction.id[:8]}")
            for name, data in changes.items():
                if data is None:
                    del trial[name]
                else:
                    trial[name] = data
            self.transactions.add(transaction.id)
        self.state = trial

    def _check_place(self, where: str, num: int, transaction: VerifiedTransaction, permitted: Permitted) -> None:
        if transaction.id in self.transactions:
            raise Violated(f"{where}: transaction {transaction.id[:8]} is on the chain twice")
        for dependency in transaction.dependencies:
            if dependency not in self.transactions:
                raise Violated(f"{where}: transaction {transaction.id[:8]} comes before {dependency[:8]}")
        family = transaction.family
        entries = None if permitted is None else permitted.get(family, [])
        if entries is not None and not _cover(entries, num):
            raise Violated(f"{where}: {family} is not permitted there")
        migrates = any(entry.migrate and _cover([entry], num) for entry in entries or ())
        if migrated_by(transaction):
            if not migrates:
                raise Violated(f"{where}: a migration of {family} that is not due")
            if family in self.migrated:
                raise Violated(f"{where}: {family} is migrated twice")
            self.migrated.add(family)
        elif migrates and family not in self.migrated:
            raise Violated(f"{where}: {family} comes before its migration")


@lru_cache(maxsize=4096)
def decoded(raw: bytes) -> VerifiedBatch:
    """A batch of the chain, which may be a migration."""
    return verify_migration(raw)


def migrated_by(transaction: VerifiedTransaction) -> tuple[str, ...]:
    """The prefixes that a transaction migrates; empty if it is no migration."""
    header = decode_transaction(transaction.raw).header
    return header.inputs if header.payload_encoding == migration.PAYLOAD_ENCODING else ()


def _run(
    where: str, transaction: VerifiedTransaction, state: dict[str, bytes]
) -> tuple[dict[str, bytes | None], bytes]:
    changes: dict[str, bytes | None] = {}

    def serve(ask: Ask) -> bytes | Found | None:
        place = ask.place
        if ask.kind in ("set", "delete"):
            if not place.startswith(transaction.outputs) or not place.startswith(NAMESPACES[transaction.family]):
                raise Invalid(f"it writes at {place}")
            changes[place] = ask.data if ask.kind == "set" else None
            return None
        if not place.startswith(transaction.inputs):
            raise Invalid(f"it reads {place}")
        if ask.kind == "get":
            return (changes[place] if place in changes else state.get(place)) or None
        merged = {**state, **changes}
        return sorted((name, data) for name, data in merged.items() if data and name.startswith(place))

    payload = decode_transaction(transaction.raw).payload
    running = steps(transaction.family, payload, migrated_by(transaction))
    answer: bytes | Found | None = None
    while True:
        try:
            answer = serve(running.send(answer))
        except StopIteration as done:
            kept = {name: data for name, data in changes.items() if data is not None or name in state}
            return kept, done.value
        except Invalid as invalid:
            raise Violated(
                f"{where}: transaction {transaction.id[:8]} is invalid in serial execution: {invalid}"
            ) from None


def _cover(entries: list[Entry], num: int) -> bool:
    """Whether some entry permits a family in block ``num``."""
    return any(entry.from_block <= num and (entry.until_block is None or num <= entry.until_block) for entry in entries)


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Violated(f"{what}: {found!r}, expected {expected!r}")
