"""The store as it is read: one read snapshot, and opening what a validator in another process writes to.

Together with ``validator.store.store``, which writes, the only module that knows LMDB. What is in the records is the
business of ``validator.store.records``.
"""

import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import lmdb

from ledger.ids import BatchId, BlockId, TransactionId
from validator.journal.model import InvalidBatch
from validator.store import records
from validator.store.records import FORMAT, NUMBER_BYTES, TABLES, BlockInfo, StoredBatch, StoredTransaction, id_key, key

READERS_MAX: Final = 512
"""Most read snapshots of one store at a time, over all processes: the validator's one, and those of its readers."""

SPARE_SNAPSHOTS: Final = 1
"""What is let go keeps its slot among READERS_MAX for what is begun next: nobody can take it in between."""

_LEFT_FREE: Final = 8
"""Of READERS_MAX, for the validator: it loses its slot for a moment where the map grows."""

_CACHED_NODES_MAX: Final = 65_536
_CACHED_NODE_BYTES_MAX: Final = 1_024
"""What is larger is a leaf with a large value; no branch is."""


class StorageFailed(Exception):
    """The disk or the environment refused; the message says what. Nothing of a write was kept."""


class StorageLost(Exception):
    """The disk lost a write, or nobody knows what became of one: whoever owns the store must end, and open it anew."""


class StoreReader:
    """Chain and state on disk, as of the snapshot: ``head`` and all that is read are of one commit.

    A snapshot keeps what was written after it from reusing the space of what it sees: who reads for long calls
    ``refresh`` every so often, or the file of a busy validator grows. One thread's alone.
    """

    def __init__(self, path: Path, env: Any, tables: dict[str, Any]) -> None:
        """``env``: open at ``path``, with all its ``tables`` by name: for ``open``, and for the store that writes.

        Raises StorageFailed where they are of another format; then ``env`` is still its opener's to close.
        """
        self._env = env
        self._tables = tables
        self._nodes: OrderedDict[int, bytes] = OrderedDict()
        self._reader: Any = None
        self._move_on()
        try:
            self._check_format(path)
            self.head: BlockInfo | None = self._last_block()
        except StorageFailed:
            self._let_go()
            raise

    @staticmethod
    def open(path: Path) -> "StoreReader":
        """The store at ``path``, for reading, while a validator in another process may write to it, or none runs.

        Changes nothing but the table of readers in the lock file. A process may have a store open once only. Raises
        StorageFailed where there is no store, none that may be read, or one of another format.
        """
        if not (path / "data.mdb").exists():
            raise StorageFailed(f"there is no store at {path}: a validator makes it when it starts with that folder")
        with ExitStack() as undo:
            try:
                # Without a size of its own the map has the size that the writer gave it.
                env = lmdb.open(
                    str(path),
                    map_size=0,
                    max_dbs=len(TABLES),
                    max_readers=READERS_MAX,
                    max_spare_txns=SPARE_SNAPSHOTS,
                    readonly=True,
                    create=False,
                )
                undo.callback(env.close)
                # Who was killed left its slot behind.
                env.reader_check()
                tables = {name: env.open_db(name.encode(), create=False) for name in TABLES}
            except lmdb.NotFoundError:
                raise StorageFailed(f"what lies at {path} is no store, or one of another release") from None
            except lmdb.ReadersFullError:
                raise _too_many(path) from None
            except (lmdb.Error, OSError) as error:
                raise StorageFailed(
                    f"cannot read the store at {path}: {error}; a reader must be allowed to read data.mdb there and to"
                    f" write lock.mdb"
                ) from None
            reader = StoreReader(path, env, tables)
            # Counted once its own is among them: of those that come together, none goes on unseen.
            if len(env.readers().splitlines()) - 1 > READERS_MAX - _LEFT_FREE:
                raise _too_many(path)
            undo.pop_all()
        return reader

    def refresh(self) -> None:
        """Move on to the newest commit. Raises StorageFailed."""
        self._let_go()
        self._move_on()
        self.head = self._last_block()

    def close(self) -> None:
        """Let go of the snapshot and the store."""
        self._let_go()
        self._env.close()

    def node(self, number: int) -> bytes:
        """The trie node with this number, which must be there. Nodes never change, so the newest used are kept."""
        node = self._nodes.get(number)
        if node is None:
            node = self._require("nodes", number)
            self._keep(number, node)
        return node

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
        """Arrival number and bytes of every pending batch, in order of arrival."""
        for name, record in self.entries("pending"):
            yield int.from_bytes(name, "big"), records.decode_pending(record)[1]

    def superseded(self, num: int) -> list[int]:
        """The numbers of the nodes that block ``num``, which must be there, replaced."""
        return records.decode_numbers(self._require("superseded", num))

    def tables(self) -> list[bytes]:
        """The names of all tables in the file: TABLES, in a sound store."""
        try:
            with self._reader.cursor() as cursor:
                return list(cursor.iternext(values=False))
        except lmdb.Error as error:
            raise _unreadable("of tables", error) from None

    def count(self, table: str) -> int:
        """How many entries one of TABLES has."""
        try:
            entries: int = self._reader.stat(self._tables[table])["entries"]
        except lmdb.Error as error:
            raise _unreadable(table, error) from None
        return entries

    def entries(self, table: str) -> Iterator[tuple[bytes, bytes]]:
        """Key and record of every entry of one of TABLES, as they are stored, in order of the keys."""
        try:
            with self._reader.cursor(db=self._tables[table]) as cursor:
                yield from cursor
        except lmdb.Error as error:
            raise _unreadable(table, error) from None

    def _get(self, table: str, name: bytes) -> bytes | None:
        try:
            value: bytes | None = self._reader.get(name, db=self._tables[table])
        except lmdb.Error as error:
            raise _unreadable(table, error) from None
        return value

    def _require(self, table: str, number: int) -> bytes:
        record = self._get(table, key(number))
        if record is None:
            raise StorageFailed(f"the store lacks entry {number} of {table}")
        return record

    def _number(self, table: str, text: str) -> int | None:
        record = self._get(table, id_key(text))
        return None if record is None else int.from_bytes(record, "big")

    def _last_key(self, table: str) -> int:
        """The highest number in a table; -1 when it is empty."""
        try:
            with self._reader.cursor(db=self._tables[table]) as cursor:
                name = cursor.key() if cursor.last() else None
        except lmdb.Error as error:
            raise _unreadable(table, error) from None
        if name is None:
            return -1
        if len(name) != NUMBER_BYTES:
            raise StorageFailed(f"the last key of the table {table} is no number: {name.hex()}; restore a backup")
        return int.from_bytes(name, "big")

    def _last_block(self) -> BlockInfo | None:
        return self.block(self._last_key("blocks"))

    def _block_where(self, ends_after: Callable[[BlockInfo], bool]) -> BlockInfo:
        """The first block for which ``ends_after`` holds; there must be one."""
        assert self.head is not None, "an entry on the chain has a block"
        low, high = 0, self.head.num
        while low < high:
            middle = (low + high) // 2
            if ends_after(self._require_block(middle)):
                high = middle
            else:
                low = middle + 1
        return self._require_block(low)

    def _require_block(self, num: int) -> BlockInfo:
        return records.decode_block_info(num, self._require("blocks", num))

    def _check_format(self, path: Path) -> None:
        found = self._get("meta", b"format")
        if found != FORMAT:
            words = "none" if found is None else found.decode("ascii", "backslashreplace")
            raise StorageFailed(
                f"the store at {path} has the format {words}, this release reads {FORMAT.decode()} only: use the"
                " release that made it, or another data_dir"
            )

    def _let_go(self) -> None:
        """End the snapshot and keep its slot, which goes where the transaction itself does."""
        if self._reader is not None:
            self._reader.abort()
            self._reader = None

    def _move_on(self) -> None:
        """Take a snapshot of the newest commit where there is none. Raises StorageFailed."""
        try:
            self._reader = self._begin()
        except lmdb.Error as error:
            raise StorageFailed(f"the store gives no snapshot: {error}") from None

    def _begin(self) -> Any:
        try:
            return self._env.begin()
        except lmdb.MapResizedError:
            # The writer, in another process, has made the map larger than it is here.
            self._env.set_mapsize(0)
            return self._env.begin()


def _too_many(path: Path) -> StorageFailed:
    return StorageFailed(
        f"the store at {path} is read in {READERS_MAX - _LEFT_FREE} places already, as many as may be: wait for one of"
        " them to end"
    )


def _unreadable(table: str, error: lmdb.Error) -> StorageFailed:
    return StorageFailed(f"the table {table} cannot be read: {error}; restore a backup of the store's folder")
