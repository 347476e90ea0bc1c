"""Builds a new store from the blocks, batches and receipts of a damaged one, as far as they can be proven.

A block is proven by its signature, a batch by its own signature and by the block's header, and receipts by the state
root to which their changes lead. Checksums prove every record. State, indexes and statuses are built anew. Runs in a
child process, because a read of a damaged page may kill the process.
"""

import struct
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from google.protobuf.message import DecodeError

from dovetail.ledger.batch import verify_batch
from dovetail.ledger.block import BlockHeader, SealedBlock, decode_block_header, is_sealed
from dovetail.ledger.errors import InvalidKey, NotDecodable, RefusedBatch
from dovetail.ledger.ids import NULL_BLOCK_ID, BatchId, BlockId, TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.receipt import Receipt
from dovetail.validator.core.journal.model import BlockCommit, CommittedBatch, InvalidBatch
from dovetail.validator.core.state import merkle
from dovetail.validator.core.state.nodes import EMPTY
from dovetail.validator.history.verification.batches import decode_receipt
from dovetail.validator.maintenance.child import OnStep, Step
from dovetail.validator.store import Store, records
from dovetail.validator.store.records import NUMBER_BYTES, PRUNED_KEY, key
from dovetail.validator.store.salvage import ReadPosition, Salvage, SalvagedRecord
from dovetail.validator.store.snapshot import page_faults
from dovetail.validator.store.store import DEPTH_BLOCKS_MIN
from protos import raw_pb2, transaction_pb2

_NOTES_MAX: Final = 100
_PENDING_AT_ONCE: Final = 64


class Plan(NamedTuple):
    """``made``: the folder of the new store. ``last``: the last block to keep; None keeps all."""

    damaged: Path
    made: Path
    limits: Limits
    last: int | None


class Rebuilt(NamedTuple):
    """``held``: the number of blocks in the damaged store. If ``Plan.last`` is not one of these blocks, nothing is
    built.

    ``lost``: why block ``blocks`` cannot be built; None if all were. ``dropped``: the number of blocks after
    ``Plan.last``. ``mended``: corrected records; ``let_go``: lost records beside the chain.
    """

    held: int
    blocks: int
    transactions: int
    state_root_hash: str
    lost: str | None
    dropped: int
    mended: list[str]
    let_go: list[str]


class _Lost(Exception):
    """A part of a block cannot be recovered; the text says which."""


def rebuild(on_step: OnStep, plan: Plan, marker: Any, avoid: frozenset[ReadPosition]) -> Rebuilt:
    """Build the new store, continuing after the last block of an earlier attempt.

    ``avoid``: reads that killed earlier attempts.

    Raises StorageFailed.
    """
    with closing(Store(plan.made, plan.limits, sync=False)) as store:
        salvage = Salvage(plan.damaged, marker, avoid, plan.made.with_name("read"))
        try:
            return _Rebuilding(store, salvage, plan).run(on_step)
        finally:
            salvage.close()
            store.sync()


class _Rebuilding:
    def __init__(self, store: Store, salvage: Salvage, plan: Plan) -> None:
        self._store = store
        self._salvage = salvage
        self._plan = plan
        self._mended: list[str] = []
        self._dropped: list[str] = []
        self._end = 0
        self._tail = False
        """Whether the newest blocks were found by carving only, because pages that lead to them are damaged."""

    def run(self, on_step: OnStep) -> Rebuilt:
        store = self._store
        end = self._end = self._blocks_held()
        if self._plan.last is not None and self._plan.last >= end:
            return Rebuilt(end, 0, 0, "", None, 0, [], [])
        if self._salvage.lacks_first_page:
            self._mended.append("one of the two first pages, which say where the tables are")
        if self._salvage.lacks_first_page or self._tail:
            # Other records of the newest write cannot be used: those that are found may be outdated.
            self._drop(
                "what the newest write held beside the blocks, if nothing leads to it: accepted batches, verdicts"
            )
        last = end - 1 if self._plan.last is None else min(self._plan.last, end - 1)
        lost = None
        num = store.head.num + 1 if store.head else 0
        while num <= last:
            on_step(Step("rebuilding, blocks", num, last + 1))
            try:
                store.commit_block(self._block(num))
            except _Lost as why:
                lost = f"block {num}: {why}"
                break
            num += 1
        if lost is None and num and self._plan.last is None and not self._salvage.knows_end:
            lost = f"block {num}: it is unknown whether there was one, nothing leads to the tables any more"
        if lost is None:
            self._carry_pending()
            self._carry_invalid()
            self._prune(on_step)
        head = store.head
        return Rebuilt(
            end,
            num,
            head.transaction_end if head else 0,
            head.state_root if head else "",
            lost,
            end - num if lost is None else 0,
            self._mended,
            self._dropped,
        )

    def _blocks_held(self) -> int:
        """The highest number of blocks that any source shows, because the end of the table may be damaged."""
        salvage = self._salvage
        most = max(salvage.last("blocks") + 1, salvage.count("blocks"))
        last_batch = salvage.last("batches")
        found = salvage.named("batches", key(last_batch)) if last_batch >= 0 else None
        most = max(most, records.decode_batch(0, found.content).block_num + 1 if found and found.sound else 0)
        end = most
        while any(block.sound for block in salvage.numbered("blocks", end)):
            end += 1
        # In an undamaged file, carved blocks are of a commit that never finished.
        self._tail = end > most and (salvage.lacks_first_page or bool(page_faults(self._plan.damaged)))
        return end if self._tail else most

    def _block(self, num: int) -> BlockCommit:
        store = self._store
        head = store.head
        block_id, header_bytes, header = self._header(num, head.id if head else NULL_BLOCK_ID)
        batch_number = head.batch_end if head else 0
        number = head.transaction_end if head else 0
        committed: list[CommittedBatch] = []
        changes: dict[str, bytes | None] = {}
        for batch_id in header.batch_ids:
            raw, ids = self._batch(num, batch_number, number, batch_id)
            receipts = []
            for position, transaction_id in enumerate(ids):
                place = records.encode_transaction(batch_number, position, b"")
                content, receipt = self._receipt(number, place, transaction_id)
                changes.update(receipt.changes)
                receipts.append((transaction_id, content))
                number += 1
            committed.append(CommittedBatch(batch_id, raw, tuple(receipts)))
            batch_number += 1
        state = merkle.update(store.node, head.root if head else EMPTY, changes, store.next_node_number)
        if state.root.hash.hex() != header.state_root_hash:
            raise _Lost(f"its receipts lead to the state root {state.root.hash.hex()}, not {header.state_root_hash}")
        block = SealedBlock(block_id, header, header_bytes, tuple(batch.raw for batch in committed))
        return BlockCommit(block, committed, state.root, state.nodes, state.superseded, [], [])

    def _header(self, num: int, previous: BlockId) -> tuple[BlockId, bytes, BlockHeader]:
        """Id and header of block ``num``, which must extend ``previous``: carved records may be of abandoned blocks."""
        block_id = self._id_of(num)
        beginning = records.id_key(block_id) if block_id is not None else b""
        what = "nothing of its record can be read"
        for found in self._salvage.numbered("blocks", num, beginning):
            try:
                info = records.decode_block_info(num, found.content)
                header = decode_block_header(info.header_bytes)
                # If the id in the record is damaged, the next block or the index may name the right id.
                ids = [one for one in (info.id, block_id) if one is not None and is_sealed(one, info.header_bytes)]
            except (NotDecodable, InvalidKey, ValueError, struct.error) as error:
                what = f"its record is garbled: {error}"
                continue
            if not ids or (block_id is not None and ids[0] != block_id):
                what = "its header or its signature is damaged"
            elif (header.block_num, header.previous_block_id) != (num, previous):
                what = f"its header says block {header.block_num} behind {header.previous_block_id}, not {previous}"
            else:
                self._note(found, "blocks", num)
                return ids[0], info.header_bytes, header
        raise _Lost(what)

    def _id_of(self, num: int) -> BlockId | None:
        """The id of a block according to the next block, or to the index for the last block; None if unknown."""
        for found in self._salvage.numbered("blocks", num + 1):
            try:
                header_bytes = records.decode_block_info(num + 1, found.content).header_bytes
                return decode_block_header(header_bytes).previous_block_id
            except (NotDecodable, ValueError, struct.error):
                continue
        if num + 1 == self._end:
            wanted = key(num)
            for entry in self._salvage.all("block_ids"):
                if entry.content == wanted:
                    return BlockId(entry.name.hex())
        return None

    def _batch(self, num: int, number: int, first: int, batch_id: BatchId) -> tuple[bytes, list[TransactionId]]:
        what = f"nothing of batch {batch_id} can be read"
        for found in self._salvage.numbered("batches", number, records.encode_batch(num, first, b"")):
            try:
                raw = records.decode_batch(number, found.content).raw
                if not found.sound:
                    # The checksum does not match, but valid signatures prove the batch as well.
                    raw = verify_batch(raw).raw
                batch = raw_pb2.RawBatch.FromString(raw)
                ids = [
                    TransactionId(transaction_pb2.Transaction.FromString(transaction).header_signature)
                    for transaction in batch.transactions
                ]
            except (DecodeError, RefusedBatch, ValueError, struct.error) as error:
                what = f"batch {batch_id} is damaged: {error}"
                continue
            if batch.header_signature == batch_id:
                self._note(found, "batches", number)
                return raw, ids
            what = f"in the place of batch {batch_id} stands {batch.header_signature[:140]}"
        raise _Lost(what)

    def _receipt(self, number: int, place: bytes, transaction_id: TransactionId) -> tuple[bytes, Receipt]:
        """The receipt of a transaction, encoded and decoded. ``place``: the beginning of its record."""
        for found in self._salvage.numbered("transactions", number, place):
            if found.sound and len(found.content) >= len(place):
                content = records.decode_transaction(number, found.content).receipt
                receipt = decode_receipt(content)
                if receipt is not None and receipt.transaction_id == transaction_id:
                    self._note(found, "transactions", number)
                    return content, receipt
        raise _Lost(f"the receipt of transaction {transaction_id} is damaged: what it wrote is unknown")

    def _note(self, found: SalvagedRecord, table: str, number: int) -> None:
        what = found.mended if found.sound else "its checksum"
        if what and len(self._mended) < _NOTES_MAX:
            self._mended.append(f"{what} in entry {number} of the table {table}")

    def _carry_pending(self) -> None:
        store = self._store
        held = {entry.name: entry.content for entry in self._salvage.all("pending")}
        self._note_missing("pending", len(held))
        kept = []
        for name, raw in sorted(held.items()):
            try:
                batch = verify_batch(raw)
            except RefusedBatch as refusal:
                self._drop(f"pending batch, arrival {int.from_bytes(name, 'big')}: {refusal}")
                continue
            if store.batch_number(batch.id) is None:
                kept.append(batch.raw)
        already = store.count("pending")
        for start in range(already, len(kept), _PENDING_AT_ONCE):
            store.add_pending(kept[start : start + _PENDING_AT_ONCE])

    def _carry_invalid(self) -> None:
        batches: dict[bytes, InvalidBatch] = {}
        for entry in self._salvage.all("invalid"):
            try:
                batches[entry.content[:NUMBER_BYTES]] = records.decode_invalid(entry.content)
            except msgspec.MsgspecError as error:
                self._drop(f"what is remembered of the invalid batch {entry.name.hex()}: {error}")
        self._note_missing("invalid", len(batches))
        names = {entry.content[:NUMBER_BYTES]: entry.name for entry in self._salvage.all("invalid_transactions")}
        self._note_missing("invalid_transactions", len(names))
        transactions = tuple(TransactionId(names[place].hex()) for place in sorted(names))
        self._store.remember_invalid([batches[place] for place in sorted(batches)], transactions)

    def _note_missing(self, table: str, found: int) -> None:
        count = self._salvage.count(table)
        if found < count:
            self._drop(f"{count - found} of {count} entries of the table {table}")

    def _drop(self, what: str) -> None:
        if len(self._dropped) < _NOTES_MAX:
            self._dropped.append(what)

    def _prune(self, on_step: OnStep) -> None:
        """Prune as far as the damaged store was pruned."""
        found = self._salvage.named("meta", PRUNED_KEY)
        head = self._store.head
        if found is None or not found.sound or head is None:
            return
        depth = max(DEPTH_BLOCKS_MIN, head.num - records.decode_pruned(found.content).states_from + 1)
        while self._store.prune(depth):
            on_step(Step("pruning, blocks", self._store.pruned.states_from, head.num))
