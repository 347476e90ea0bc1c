"""Reads chain and state of one snapshot, also beside a validator in another process that writes the store.

``snapshot`` reads tables, ``records`` decodes their records.
"""

import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Final

import lmdb
import msgspec

from dovetail.ledger.ids import BatchId, BlockId, TransactionId
from dovetail.validator.core.journal.model import InvalidBatch
from dovetail.validator.core.state.nodes import EMPTY, Ref
from dovetail.validator.store import records
from dovetail.validator.store.full_disk import lack_of_address_space, lack_of_room
from dovetail.validator.store.length import DATA
from dovetail.validator.store.locks import read_shared
from dovetail.validator.store.opening import LOCK, READERS_MAX, open_file
from dovetail.validator.store.permissions import lack_of_permission
from dovetail.validator.store.records import (
    FORMAT,
    PRUNED_KEY,
    QUEUE_KEY,
    BlockInfo,
    Pruned,
    QueueRecord,
    StoredBatch,
    StoredTransaction,
    id_key,
    key,
)
from dovetail.validator.store.snapshot import Snapshot, StorageFailed

_LEFT_FREE: Final = 8
"""Slots of READERS_MAX for the validator, which loses its own for a moment when the map grows."""

_CACHED_NODES_MAX: Final = 65_536
_CACHED_NODE_BYTES_MAX: Final = 1_024
"""Larger nodes are leaves with large values; every branch is smaller."""


class StoreReader(Snapshot):
    """Chain and state on disk, as of one commit: ``head``, ``pruned`` and every read.

    Each read raises StorageFailed if a record is not what was written.

    Later commits cannot reuse the space that a snapshot sees. Call ``refresh`` now and then in a long read, or the file
    of a busy validator grows. Use a reader in one thread only.
    """

    def __init__(self, path: Path, env: Any, tables: dict[str, Any]) -> None:
        """``env``: open at ``path``, with all its ``tables`` by name. Readers use ``StoreReader.open``.

        Raises StorageFailed if the store is of another format; the caller then closes ``env``.
        """
        super().__init__(env, tables)
        self._shared: IO[bytes] | None = None
        """The readers' lock, which prevents the replacement of the file; None for the owner of the store."""
        self._nodes: OrderedDict[int, bytes] = OrderedDict()
        try:
            self._check_format(path)
            self.head: BlockInfo | None = self._last_block()
            self.pruned: Pruned = self._read_pruned()
        except StorageFailed:
            self._end_snapshot()
            raise

    @staticmethod
    def open(path: Path) -> "StoreReader":
        """Open the store at ``path`` for reading, whether or not a validator in another process writes to it.

        Changes only LMDB's table of readers. A process may open a store only once. Raises StorageFailed if there is no
        store, no permission to read it, or one of another format.
        """
        with ExitStack() as undo:
            try:
                if not (path / DATA).exists():
                    advice = "a validator makes it when it starts with that folder"
                    if (path.parent / DATA).exists():
                        advice = f"{path.parent} is a backup, which `dovetail store restore` verifies and puts in place"
                    raise StorageFailed(f"there is no store at {path}: {advice}")
                shared = read_shared(path)
                if shared is not None:
                    undo.callback(shared.close)
                # With map_size=0, the map has the size that the writer gave it.
                env, tables = open_file(path, map_size=0, readonly=True)
                undo.callback(env.close)
            except lmdb.ReadersFullError:
                raise _too_many(path) from None
            except (lmdb.Error, OSError) as error:
                advice = "where its file is damaged, `dovetail store repair` or a backup brings it back"
                if want := lack_of_permission(error, path, path / LOCK):
                    advice = f"a reader must be allowed to read {DATA} there and to write {LOCK}: {want}"
                want = lack_of_room(error, path) or lack_of_address_space(error)
                raise StorageFailed(f"cannot read the store at {path}: {error}; {want or advice}") from None
            reader = StoreReader(path, env, tables)
            # Count after this reader has its slot, so that simultaneous readers all count each other.
            if len(env.readers().splitlines()) - 1 > READERS_MAX - _LEFT_FREE:
                raise _too_many(path)
            reader._shared = shared
            undo.pop_all()
        return reader

    def refresh(self) -> None:
        """Move the snapshot to the newest commit. Raises StorageFailed."""
        self._end_snapshot()
        self._begin_snapshot()
        self.head = self._last_block()
        self.pruned = self._read_pruned()

    def refresh_unless_pruned(self) -> None:
        """Like ``refresh``, but keeps the snapshot of a pruned store, whose later commits may lack old states.

        Raises StorageFailed, also if pruning began since the last snapshot.
        """
        if not self.pruned.states_from:
            self.refresh()
            if self.pruned.states_from:
                raise StorageFailed("the validator has begun to prune states meanwhile: start anew")

    def close(self) -> None:
        self._end_snapshot()
        self._env.close()
        if self._shared is not None:
            self._shared.close()

    def node(self, number: int) -> bytes:
        """The trie node with this number. Recently used nodes are cached: nodes never change. Raises StorageFailed."""
        node = self._nodes.get(number)
        if node is None:
            node = self.find_node(number)
            if node is None:
                raise self._lacks("nodes", number, self._pruned_words())
            self._keep(number, node)
        return node

    def find_node(self, number: int) -> bytes | None:
        """The trie node with this number, or None."""
        return self._get("nodes", key(number))

    def root_after(self, num: int) -> Ref:
        """The root of the state after block ``num``, which must be on the chain; -1 gives the empty state.

        Raises StorageFailed if the state is pruned.
        """
        if num < 0:
            return EMPTY
        if num < self.pruned.states_from:
            raise StorageFailed(f"the state after block {num} is not there any more{self._pruned_words()}")
        return self.required_block(num).root

    def _pruned_words(self) -> str:
        first = self.pruned.states_from
        return f": states are pruned, kept are those after block {first} and later ones" if first else ""

    def _keep(self, number: int, node: bytes) -> None:
        if len(node) <= _CACHED_NODE_BYTES_MAX:
            if len(self._nodes) >= _CACHED_NODES_MAX:
                self._nodes.popitem(last=False)
            self._nodes[number] = node

    def block(self, num: int) -> BlockInfo | None:
        """The block with number ``num``, or None."""
        record = self._get("blocks", key(num)) if num >= 0 else None
        try:
            return None if record is None else records.decode_block_info(num, record)
        except (struct.error, OverflowError) as error:
            raise StorageFailed(f"the record of block {num} is garbled: {error}; restore a backup") from None

    def block_num(self, block_id: BlockId) -> int | None:
        return self._number("block_ids", block_id)

    def block_of_batch(self, number: int) -> BlockInfo:
        """The block that holds batch ``number``, which must be on the chain."""
        return self._block_where(lambda block: block.batch_end > number)

    def block_of_transaction(self, number: int) -> BlockInfo:
        """The block that holds transaction ``number``, which must be on the chain."""
        return self._block_where(lambda block: block.transaction_end > number)

    def batch_number(self, batch_id: BatchId) -> int | None:
        return self._number("batch_ids", batch_id)

    def batch(self, number: int) -> StoredBatch:
        """Batch ``number``, which must be on the chain."""
        return records.decode_batch(number, self._require("batches", number))

    def batches(self, block: BlockInfo) -> list[bytes]:
        """The serialized batches of a block, in its order."""
        return [self.batch(number).raw for number in block.batches]

    def transaction_number(self, transaction_id: TransactionId) -> int | None:
        return self._number("transaction_ids", transaction_id)

    def transaction(self, number: int) -> StoredTransaction:
        """Transaction ``number``, which must be on the chain."""
        return records.decode_transaction(number, self._require("transactions", number))

    def invalid(self, batch_id: BatchId) -> InvalidBatch | None:
        """Why a batch is INVALID; None if the batch is not INVALID or is no longer remembered."""
        record = self._get("invalid", id_key(batch_id))
        return None if record is None else records.decode_invalid(record)

    def judged_invalid(self, transaction_id: TransactionId) -> bool:
        """Whether a remembered INVALID batch holds this transaction."""
        return self._get("invalid_transactions", id_key(transaction_id)) is not None

    def pending(self) -> Iterator[tuple[int, bytes]]:
        """Arrival number and bytes of every pending batch, in order of arrival; empty bytes for a damaged one."""
        for name, record in self.raw_entries("pending"):
            yield int.from_bytes(name, "big"), records.opened("pending", name, record) or b""

    def queue_record(self) -> QueueRecord:
        """What the last validator knew of its pending queue. Raises StorageFailed."""
        record = self._get("meta", QUEUE_KEY)
        try:
            return QueueRecord() if record is None else records.decode_queue(record)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._damaged(f"the record of the pending queue is garbled: {error}") from None

    def superseded(self, num: int) -> list[int]:
        """The numbers of the nodes that block ``num`` replaced. Raises StorageFailed and struct.error."""
        return records.decode_numbers(self._require("superseded", num))

    def _last_block(self) -> BlockInfo | None:
        return self.block(self._last_key("blocks"))

    def _block_where(self, ends_after: Callable[[BlockInfo], bool]) -> BlockInfo:
        """The first block for which ``ends_after`` holds; one must exist."""
        assert self.head is not None, "an entry on the chain has a block"
        low, high = 0, self.head.num
        while low < high:
            middle = (low + high) // 2
            if ends_after(self.required_block(middle)):
                high = middle
            else:
                low = middle + 1
        return self.required_block(low)

    def required_block(self, num: int) -> BlockInfo:
        """Block ``num``, which must be on the chain."""
        return records.decode_block_info(num, self._require("blocks", num))

    def _check_format(self, path: Path) -> None:
        stored = self._format()
        if stored != FORMAT:
            words = "none" if stored is None else stored.decode("ascii", "backslashreplace")
            raise StorageFailed(
                f"the store at {path} has the format {words}, this release reads {FORMAT.decode()} only: use the"
                f" release that made it, or another data_dir; where there never was a ledger there, remove its {DATA}"
            )

    def _read_pruned(self) -> Pruned:
        record = self._get("meta", PRUNED_KEY)
        try:
            return Pruned() if record is None else records.decode_pruned(record)
        except struct.error as error:
            raise self._damaged(f"the record of what is pruned is garbled: {error}") from None


def _too_many(path: Path) -> StorageFailed:
    return StorageFailed(
        f"the store at {path} is read in {READERS_MAX - _LEFT_FREE} places already, as many as may be: wait for one of"
        " them to end"
    )
