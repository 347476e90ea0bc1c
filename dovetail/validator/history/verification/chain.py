"""Verifies a chain block by block: reads blocks, has batches and states checked, and applies the journal's rules.

``loading`` reads blocks, ``batches`` checks batches in worker processes, ``state`` checks states, and ``tables`` checks
what is stored beside the chain.
"""

from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Final, NamedTuple

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.block import BlockHeader
from dovetail.ledger.ids import BlockId, TransactionId
from dovetail.ledger.permitted import permitted_families
from dovetail.validator.core.journal.rules import Body
from dovetail.validator.core.state.nodes import Ref
from dovetail.validator.core.state.view import Stored
from dovetail.validator.history.verification.batches import CheckedBatch
from dovetail.validator.history.verification.findings import Finding, Findings, shown
from dovetail.validator.history.verification.loading import Loaded, Loader
from dovetail.validator.history.verification.state import GARBLED, StateCheck
from dovetail.validator.history.verification.workers import Checkers, Entry
from dovetail.validator.store import StoreReader

_GROUP_BYTES: Final = 512 * 1024
_GROUP_BLOCKS: Final = 256
_PIECE_BYTES: Final = 128 * 1024
"""Blocks are read in groups and sent to the workers in pieces. The snapshot is refreshed after each group."""


class CheckedBlock(NamedTuple):
    """A checked block. ``base`` and ``root``: the states before and after it, if it is ``sound``.

    ``receipts``: for each batch, the receipts of its transactions. ``migrations``: the indexes of batches that a
    validator injected. ``sound``: no fault was found. ``replayable``: the store holds the state before the block.
    """

    num: int
    transactions: int
    batches: list[VerifiedBatch]
    receipts: list[list[bytes]]
    migrations: frozenset[int]
    base: Ref
    root: Ref
    sound: bool
    replayable: bool


class Verification:
    """Verifies blocks ``first`` to ``last`` (both inclusive) of a store, and adds each fault to ``findings``.

    With ``first`` above 0, verification starts from the stored block before: the seal and the whole state of that block
    are checked, and older blocks are trusted.
    """

    def __init__(
        self, reader: StoreReader, checkers: Checkers, findings: Findings, first: int = 0, last: int | None = None
    ) -> None:
        self._reader = reader
        self._checkers = checkers
        self._add = findings.add
        self._counts = {
            table: reader.count(table)
            for table in ("blocks", "block_ids", "batches", "batch_ids", "transactions", "transaction_ids", "nodes",
                          "superseded")
        }  # fmt: skip
        self.first = first
        self.head = self._counts["blocks"] - 1
        """The number of the last block when verification began; -1 if there was none."""
        self.last = self.head if last is None else min(last, self.head)
        self.sealed_by: Counter[str] = Counter()
        """The number of blocks so far by the public key of their signer. A store does not say which node wrote it."""
        self.states_from = reader.pruned.states_from
        """The first block whose state is stored; above 0 if states are pruned."""
        self.pages_walked = False
        """Whether the caller checked the file's pages too (``pages``)."""
        self.last_id: BlockId | None = None
        """The id of the newest block so far, to compare with another node's; None if it cannot be read."""
        self._state = StateCheck(reader, self._add)
        self.node = self._state.node
        """A function that reads a trie node of a sound block's state."""
        self._loader = Loader(reader, self._counts, self._add)

    def blocks(self) -> Iterator[CheckedBlock]:
        """Check block after block. Raises CheckerDied."""
        if self.first > 0:
            self._start_after(self.first - 1)
        ahead: deque[tuple[list[Loaded], list[Future[list[CheckedBatch]]]]] = deque()
        for group in self._groups():
            ahead.append((group, self._hand_over(group)))
            if len(ahead) > self._checkers.count:
                yield from self._conclude(*ahead.popleft())
        while ahead:
            yield from self._conclude(*ahead.popleft())
        if self.last == self.head:
            self._check_counts()

    def _start_after(self, num: int) -> None:
        """Start from stored block ``num`` and its state."""
        loaded = self._loader.start_after(num)
        self._state.forget()
        if (
            loaded.info is not None
            and loaded.header is not None
            and self._state.is_stored(num)
            and not self._state.adopt(loaded.info, _hash(loaded.header))
        ):
            loaded.find("state_unknown", "", "nodes that lead to its state root", "others")

    def _groups(self) -> Iterator[list[Loaded]]:
        group: list[Loaded] = []
        data_bytes = 0
        for num in range(self.first, self.last + 1):
            loaded = self._loader.load(num)
            group.append(loaded)
            data_bytes += loaded.data_bytes
            if data_bytes >= _GROUP_BYTES or len(group) >= _GROUP_BLOCKS:
                yield group
                group, data_bytes = [], 0
                # Let a running validator reuse the pages that it replaced meanwhile.
                self._reader.refresh_unless_pruned()
        if group:
            yield group

    def _hand_over(self, group: list[Loaded]) -> "list[Future[list[CheckedBatch]]]":
        futures = []
        piece: list[Entry] = []
        data_bytes = 0
        for entry in (entry for loaded in group for entry in loaded.entries):
            piece.append(entry)
            data_bytes += len(entry[0])
            if data_bytes >= _PIECE_BYTES:
                futures.append(self._checkers.check(piece))
                piece, data_bytes = [], 0
        if piece:
            futures.append(self._checkers.check(piece))
        return futures

    def _conclude(self, group: list[Loaded], futures: "list[Future[list[CheckedBatch]]]") -> Iterator[CheckedBlock]:
        checked = iter([batch for future in futures for batch in future.result()])
        for loaded in group:
            yield self._check(loaded, [next(checked) for _ in loaded.entries])

    def _check(self, loaded: Loaded, checked: list[CheckedBatch]) -> CheckedBlock:
        self.last_id = None
        if loaded.header is not None and loaded.info is not None:
            self.sealed_by[loaded.header.signer_pubkey] += 1
            self.last_id = loaded.info.id
        before = self._state.base
        transactions = sum(len(receipts) for _, receipts in loaded.entries)
        verified = [batch.verified for batch in checked if batch.verified is not None]
        for offset, batch in enumerate(checked):
            self._add_faults(loaded, offset, batch)
            self._check_indexes(loaded, offset, batch)
        if loaded.header is not None:
            for offset, (named, batch) in enumerate(zip(loaded.header.batch_ids, checked, strict=False)):
                if batch.verified is not None:
                    where = f"batch number {loaded.first_batch + offset}"
                    loaded.expect("batch_ids_of_header", where, named, batch.verified.id)
            loaded.expect("batch_count", "", len(loaded.header.batch_ids), len(checked))
        if before is not None:
            self._check_rules(loaded, before, checked)
        if loaded.info is not None and loaded.header is not None:
            changes: dict[str, bytes | None] = {}
            for batch in checked:
                changes.update(batch.changes)
            loaded.faults += not self._state.apply(loaded.info, _hash(loaded.header), changes)
        else:
            self._state.base = None
        after = self._state.base
        return CheckedBlock(
            loaded.num,
            transactions,
            verified,
            [[receipt for receipt in receipts if receipt is not None] for _, receipts in loaded.entries],
            frozenset(index for index, batch in enumerate(checked) if batch.migrates),
            before or _NO_STATE,
            after or _NO_STATE,
            not loaded.faults and before is not None and after is not None,
            loaded.num == 0 or self._state.is_stored(loaded.num - 1),
        )

    def _add_faults(self, loaded: Loaded, offset: int, batch: CheckedBatch) -> None:
        where = f"batch {batch.verified.id}" if batch.verified else f"batch number {loaded.first_batch + offset}"
        for fault in batch.faults:
            at = where
            if fault.position is not None:
                at += f", transaction {fault.position}"
                if batch.verified is not None and fault.position < len(batch.verified.transactions):
                    at = f"{where}, transaction {batch.verified.transactions[fault.position].id}"
            loaded.find(fault.what, at, fault.expected, shown(fault.found))

    def _check_indexes(self, loaded: Loaded, offset: int, batch: CheckedBatch) -> None:
        """Check that the ids of a batch and its transactions lead to their numbers, so that no id is used twice."""
        if batch.verified is None:
            return
        try:
            number = self._reader.batch_number(batch.verified.id)
            loaded.expect("batch_ids", f"id {batch.verified.id}", loaded.first_batch + offset, number)
            first = loaded.first_transaction + sum(len(receipts) for _, receipts in loaded.entries[:offset])
            for expected, transaction in enumerate(batch.verified.transactions, first):
                stored = self._reader.transaction_number(transaction.id)
                loaded.expect("transaction_ids", f"id {transaction.id}", expected, stored)
        except GARBLED as error:
            loaded.find("indexes", f"batch {batch.verified.id}", "readable indexes", shown(error))

    def _check_rules(self, loaded: Loaded, base: Ref, checked: list[CheckedBatch]) -> None:
        """Apply the journal's rules to the state and the chain before the block.

        A migration may be sliced or not, whatever the size of the state before the block. The validator slices a
        migration when it makes the batch, and the state may change before a block holds the batch. A block may hold a
        migration once.
        """

        def committed(transaction_id: TransactionId) -> bool:
            number = self._reader.transaction_number(transaction_id)
            return number is not None and number < loaded.first_transaction

        try:
            body = Body(loaded.num, permitted_families(Stored(self.node, base).get), committed, lambda _: False)
            for batch in checked:
                if batch.verified is None:
                    continue
                where = f"batch {batch.verified.id}"
                if batch.migrates and not body.is_migration(batch.verified):
                    loaded.find("migration_key", where, "the migration that is due here", "another batch")
                verdict = body.check(batch.verified)
                if verdict is not None:
                    why = verdict.message or f"it needs transaction {getattr(verdict, 'dependency', None)}"
                    loaded.find(verdict.reason, where, "a batch that may enter this block", why)
                body.include(batch.verified)
        except GARBLED as error:
            loaded.find("state_unreadable", "", "what is permitted in the state before it", shown(error))

    def _check_counts(self) -> None:
        """Check that each table holds exactly the number of entries that the chain needs."""
        expected: dict[str, int | None] = {"blocks": self.head + 1, "block_ids": self.head + 1}
        first = self._reader.pruned.states_from
        expected |= {"superseded": self.head + 1 - (first + 1 if first else 0), "nodes": self._state.nodes}
        expected |= dict.fromkeys(("batches", "batch_ids"), self._loader.next_batch)
        expected |= dict.fromkeys(("transactions", "transaction_ids"), self._loader.next_transaction)
        for table, count in expected.items():
            if count is not None and count != self._counts[table]:
                self._add(Finding(None, "entries", f"table {table}", f"{count} entries", str(self._counts[table])))


_NO_STATE: Final = Ref(b"", 0, 0)


def _hash(header: BlockHeader) -> bytes:
    """The state root of a header; empty if it is no hex text."""
    try:
        return bytes.fromhex(header.state_root_hash)
    except ValueError:
        return b""
