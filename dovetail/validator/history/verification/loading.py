"""Reads blocks, and checks their records, numbers, links, seals and indexes.

``batches`` checks the contents of batches, ``chain`` everything else of a block.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from dovetail.ledger.block import BlockHeader, decode_block_header, decode_consensus, is_sealed
from dovetail.ledger.errors import InvalidKey, NotDecodable
from dovetail.ledger.ids import NULL_BLOCK_ID, BlockId
from dovetail.validator.history.verification.batches import transactions_of
from dovetail.validator.history.verification.findings import Finding, shown
from dovetail.validator.history.verification.state import GARBLED
from dovetail.validator.store import BlockInfo, StoreReader

_GAPS_MAX: Final = 1_000
_ROOT: Final = re.compile("[0-9a-f]{64}")


@dataclass
class Loaded:
    """A block as it was read. ``faults``: the number of findings so far."""

    num: int
    add: Callable[[Finding], None]
    info: BlockInfo | None = None
    header: BlockHeader | None = None
    entries: list[tuple[bytes, list[bytes | None]]] = field(default_factory=list)
    first_batch: int = 0
    first_transaction: int = 0
    faults: int = 0

    @property
    def data_bytes(self) -> int:
        return sum(len(raw) + sum(len(receipt or b"") for receipt in receipts) for raw, receipts in self.entries)

    def expect(self, what: str, where: str, expected: object, found: object) -> None:
        """Add a finding if ``expected`` and ``found`` differ.

        ``where``: the place in the block; empty for the block itself.
        """
        if expected != found:
            self.find(what, where, shown(expected), shown(found))

    def find(self, what: str, where: str, expected: str, found: str) -> None:
        self.faults += 1
        place = f"block {self.num}"
        self.add(Finding(self.num, what, f"{place}, {where}" if where else place, expected, found))


class Loader:
    """Reads block after block, each from the end of the one before. ``counts``: the entries of each table."""

    def __init__(self, reader: StoreReader, counts: Mapping[str, int], add: Callable[[Finding], None]) -> None:
        self._reader = reader
        # If an entry is missing, the last entry has a higher number than the count suggests.
        head = reader.head
        ends = {"batches": head.batch_end, "transactions": head.transaction_end} if head else {}
        behind = {table: max(counts[table], min(end, counts[table] + _GAPS_MAX)) for table, end in ends.items()}
        self._most = dict(counts) | behind
        self._add = add
        self._previous: BlockId | None = NULL_BLOCK_ID
        self._previous_time_ms = 0
        self.next_batch: int | None = 0
        self.next_transaction: int | None = 0
        """The numbers of the next batch and the next transaction; None if unknown."""

    def start_after(self, num: int) -> Loaded:
        """Start after the stored block ``num``."""
        loaded = Loaded(num, self._add)
        self._previous = self.next_batch = self.next_transaction = None
        self._read_header(loaded)
        if loaded.info is not None:
            self._previous = loaded.info.id
            self.next_batch, self.next_transaction = loaded.info.batch_end, loaded.info.transaction_end
        if loaded.header is not None:
            self._check_consensus(loaded, loaded.header)
        return loaded

    def load(self, num: int) -> Loaded:
        """Read as much as possible of a block with its batches and receipts."""
        loaded = Loaded(num, self._add)
        self._read_header(loaded)
        info, header = loaded.info, loaded.header
        if info is None:
            self._previous = self.next_batch = self.next_transaction = None
            return loaded
        if header is not None:
            loaded.expect("block_num", "its header", num, header.block_num)
            self._check_consensus(loaded, header)
            if not _ROOT.fullmatch(header.state_root_hash):
                loaded.find("state_root_form", "its header", "64 lower-case hex digits", shown(header.state_root_hash))
            if self._previous is not None:
                loaded.expect("previous_block_id", "its header", self._previous, header.previous_block_id)
        self._previous = info.id
        if self.next_batch is not None and self.next_transaction is not None:
            loaded.expect("numbering", "its first batch", self.next_batch, info.first_batch)
            loaded.expect("numbering", "its first transaction", self.next_transaction, info.first_transaction)
        else:
            self.next_batch, self.next_transaction = info.first_batch, info.first_transaction
        loaded.first_batch, loaded.first_transaction = self.next_batch, self.next_transaction
        count = info.batch_count
        if header is not None:
            count = len(header.batch_ids)
            loaded.expect("numbering", "its number of batches", count, info.batch_count)
        count = max(0, min(count, self._most["batches"] - self.next_batch))
        for number in range(self.next_batch, self.next_batch + count):
            self._load_batch(loaded, number, self.next_batch + count)
        self.next_batch += count
        transactions = self.next_transaction - loaded.first_transaction
        loaded.expect("numbering", "its number of transactions", transactions, info.transaction_count)
        return loaded

    def _check_consensus(self, loaded: Loaded, header: BlockHeader) -> None:
        """Check that the engine is named, and that the time is not before the parent's."""
        try:
            consensus = decode_consensus(header.consensus)
        except NotDecodable as error:
            loaded.find("consensus", "its header", "a BlockConsensus", shown(error))
            return
        if not consensus.engine:
            loaded.find("consensus", "its header", "the name of an engine", "none")
        if consensus.time_ms < self._previous_time_ms:
            loaded.find("consensus", "its time", f"at least {self._previous_time_ms} ms", f"{consensus.time_ms} ms")
        self._previous_time_ms = consensus.time_ms

    def _read_header(self, loaded: Loaded) -> None:
        num = loaded.num
        try:
            loaded.info = info = self._reader.block(num)
        except GARBLED as error:
            loaded.find("block_record", "", "a record", shown(error))
            return
        if info is None:
            loaded.find("block_record", "", "a record", "none")
            return
        try:
            loaded.header = decode_block_header(info.header_bytes)
            if not is_sealed(info.id, info.header_bytes):
                loaded.find("seal", "", "a signature over the header by its own signer", shown(info.id))
        except (NotDecodable, InvalidKey, ValueError) as error:
            loaded.find("seal", "", "a header and its signer's signature", shown(error))
        try:
            found = self._reader.block_num(info.id)
        except GARBLED as error:
            loaded.find("block_ids", f"id {info.id}", str(num), shown(error))
        else:
            loaded.expect("block_ids", f"id {info.id}", num, found)

    def _load_batch(self, loaded: Loaded, number: int, end: int) -> None:
        assert self.next_transaction is not None, "it was set where the block's record was read"
        assert loaded.info is not None, "a block without a record has no batches"
        where = f"batch number {number}"
        first = self.next_transaction
        raw = b""
        try:
            batch = self._reader.batch(number)
        except GARBLED as error:
            loaded.find("batch_record", where, "a record", shown(error))
        else:
            raw = batch.raw
            if not raw:
                loaded.find("batch_record", where, "the bytes of a batch", "none")
            loaded.expect("batch_record", f"{where}, its block", loaded.num, batch.block_num)
            loaded.expect("batch_record", f"{where}, its first transaction", first, batch.first_transaction)
        count = self._transactions_of(loaded.info, number, end, raw)
        receipts: list[bytes | None] = []
        for position, transaction_number in enumerate(range(first, first + count)):
            at = f"{where}, transaction number {transaction_number}"
            try:
                transaction = self._reader.transaction(transaction_number)
            except GARBLED as error:
                loaded.find("transaction_record", at, "a record", shown(error))
                receipts.append(None)
                continue
            loaded.expect("transaction_record", f"{at}, its batch", number, transaction.batch_number)
            loaded.expect("transaction_record", f"{at}, its position", position, transaction.position)
            receipts.append(transaction.receipt)
        loaded.entries.append((raw, receipts))
        self.next_transaction += count

    def _transactions_of(self, info: BlockInfo, number: int, end: int, raw: bytes) -> int:
        """The number of transactions to read for a batch: from its bytes, unless the following records contradict."""
        first = self.next_transaction
        assert first is not None, "it was set where the block's record was read"
        held = transactions_of(raw) if raw else None
        try:
            behind = self._reader.batch(number + 1).first_transaction if number + 1 < end else info.transaction_end
            by_records = behind - first
            if held is not None and held != by_records:
                following = self._reader.transaction(first + held)
                if (following.batch_number, following.position) == (number + 1, 0):
                    by_records = held
        except GARBLED:
            by_records = held or 0
        return max(0, min(by_records, self._most["transactions"] - first))
