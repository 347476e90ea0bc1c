"""The store as it is read: chain and state of one snapshot, and opening what a validator in another process writes to.

How tables are read is in ``dovetail.validator.store.snapshot``, what is in their records in
``dovetail.validator.store.records``.
"""

import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Final

import lmdb

from dovetail.ledger.ids import BatchId, BlockId, TransactionId
from dovetail.validator.core.journal.model import InvalidBatch
from dovetail.validator.core.state.nodes import EMPTY, Ref
from dovetail.validator.store import records
from dovetail.validator.store.full_disk import want_of_room
from dovetail.validator.store.length import DATA
from dovetail.validator.store.opening import LOCK, READERS_MAX, open_file
from dovetail.validator.store.owner import want_of_permission
from dovetail.validator.store.ownership import read_shared
from dovetail.validator.store.records import (
    FORMAT,
    PRUNED_KEY,
    BlockInfo,
    Pruned,
    StoredBatch,
    StoredTransaction,
    id_key,
    key,
)
from dovetail.validator.store.snapshot import Snapshot, StorageFailed

_LEFT_FREE: Final = 8
"""Of READERS_MAX, for the validator: it loses its slot for a moment where the map grows."""

_CACHED_NODES_MAX: Final = 65_536
_CACHED_NODE_BYTES_MAX: Final = 1_024
"""What is larger is a leaf with a large value; no branch is."""


class StoreReader(Snapshot):
    """Chain and state on disk, as of the snapshot: ``head``, ``pruned`` and all that is read are of one commit.

    Whatever is read and is not what was written there raises StorageFailed.

    A snapshot keeps what was written after it from reusing the space of what it sees: who reads for long calls
    ``refresh`` every so often, or the file of a busy validator grows. One thread's alone.
    """

    def __init__(self, path: Path, env: Any, tables: dict[str, Any]) -> None:
        """``env``: open at ``path``, with all its ``tables`` by name: for ``open``, and for the store that writes.

        Raises StorageFailed where they are of another format; then ``env`` is still its opener's to close.
        """
        super().__init__(env, tables)
        self._shared: IO[bytes] | None = None
        """Held by who does not own the store: its file stays in its place."""
        self._nodes: OrderedDict[int, bytes] = OrderedDict()
        try:
            self._check_format(path)
            self.head: BlockInfo | None = self._last_block()
            self.pruned: Pruned = self._read_pruned()
        except StorageFailed:
            self._let_go()
            raise

    @staticmethod
    def open(path: Path) -> "StoreReader":
        """The store at ``path``, for reading, while a validator in another process may write to it, or none runs.

        Changes nothing but the table of readers in the lock file. A process may have a store open once only. Raises
        StorageFailed where there is no store, none that may be read, or one of another format.
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
                # Without a size of its own the map has the size that the writer gave it.
                env, tables = open_file(path, map_size=0, readonly=True)
                undo.callback(env.close)
            except lmdb.ReadersFullError:
                raise _too_many(path) from None
            except (lmdb.Error, OSError) as error:
                advice = "where its file is damaged, `dovetail store repair` or a backup brings it back"
                if want := want_of_permission(error, path, path / LOCK):
                    advice = f"a reader must be allowed to read {DATA} there and to write {LOCK}: {want}"
                raise StorageFailed(
                    f"cannot read the store at {path}: {error}; {want_of_room(error, path) or advice}"
                ) from None
            reader = StoreReader(path, env, tables)
            # Counted once its own is among them: of those that come together, none goes on unseen.
            if len(env.readers().splitlines()) - 1 > READERS_MAX - _LEFT_FREE:
                raise _too_many(path)
            reader._shared = shared
            undo.pop_all()
        return reader

    def refresh(self) -> None:
        """Move on to the newest commit. Raises StorageFailed."""
        self._let_go()
        self._move_on()
        self.head = self._last_block()
        self.pruned = self._read_pruned()

    def keep_up(self) -> None:
        """``refresh`` for who reads old states: where they are pruned the snapshot stays. Raises StorageFailed."""
        if not self.pruned.states_from:
            self.refresh()
            if self.pruned.states_from:
                raise StorageFailed("the validator has begun to prune states meanwhile: start anew")

    def close(self) -> None:
        """Let go of the snapshot and the store."""
        self._let_go()
        self._env.close()
        if self._shared is not None:
            self._shared.close()

    def node(self, number: int) -> bytes:
        """The trie node with this number, which must be there. Nodes never change, so the newest used are kept."""
        node = self._nodes.get(number)
        if node is None:
            node = self.find_node(number)
            if node is None:
                raise self._lacks("nodes", number, self._pruned_words())
            self._keep(number, node)
        return node

    def find_node(self, number: int) -> bytes | None:
        """The trie node with this number; None where there is none."""
        return self._get("nodes", key(number))

    def root_after(self, num: int) -> Ref:
        """The state after block ``num``, which must be on the chain; -1: before all. Raises StorageFailed if pruned."""
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
        """The block with number ``num``."""
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
        """Why a batch was judged INVALID, as far back as is remembered."""
        record = self._get("invalid", id_key(batch_id))
        return None if record is None else records.decode_invalid(record)

    def judged_invalid(self, transaction_id: TransactionId) -> bool:
        """Whether a batch with this transaction was judged INVALID, as far back as is remembered."""
        return self._get("invalid_transactions", id_key(transaction_id)) is not None

    def pending(self) -> Iterator[tuple[int, bytes]]:
        """Arrival number and bytes of every pending batch, in order of arrival; of a damaged one no bytes."""
        for name, record in self.raw_entries("pending"):
            yield int.from_bytes(name, "big"), records.opened("pending", name, record) or b""

    def superseded(self, num: int) -> list[int]:
        """The numbers of the nodes that block ``num``, which must be there, replaced."""
        return records.decode_numbers(self._require("superseded", num))

    def _last_block(self) -> BlockInfo | None:
        return self.block(self._last_key("blocks"))

    def _block_where(self, ends_after: Callable[[BlockInfo], bool]) -> BlockInfo:
        """The first block for which ``ends_after`` holds; there must be one."""
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
        found = self._format()
        if found != FORMAT:
            words = "none" if found is None else found.decode("ascii", "backslashreplace")
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
