"""Writes the store: write transactions, growth of the map, pruning.

Everything runs in the thread of the validator's event loop, without locks. Reads see the newest commit, and each write
is synced before it returns. ``reader`` reads the store, and ``records`` encodes and decodes records.
"""

import errno
import mmap
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import lmdb
import structlog

from dovetail.ledger.ids import TransactionId
from dovetail.ledger.limits import Limits
from dovetail.validator.core.journal.model import BlockCommit, InvalidBatch
from dovetail.validator.crash_points import CrashPoint, reach
from dovetail.validator.store import records
from dovetail.validator.store.full_disk import lack_of_address_space, lack_of_room
from dovetail.validator.store.length import DATA
from dovetail.validator.store.locks import own
from dovetail.validator.store.opening import LOCK, make, open_file
from dovetail.validator.store.permissions import lack_of_permission, make_folder
from dovetail.validator.store.reader import StoreReader
from dovetail.validator.store.records import (
    FORMAT,
    FORMAT_KEY,
    PRUNED_KEY,
    QUEUE_KEY,
    BlockInfo,
    Pruned,
    QueueRecord,
    id_key,
    key,
    sealed,
)
from dovetail.validator.store.sizes import commit_bytes, invalid_bytes, names_bytes, prune_bytes
from dovetail.validator.store.snapshot import WHEN_DAMAGED, StorageFailed, StorageLost

_PAGE_OVERHEAD: Final = 3
"""A write needs up to this many times its own bytes in pages: copied tree pages and half-filled new ones."""
_GROWTH_BYTES_MIN: Final = 16 * 1024 * 1024
_PRUNED_NODES_MAX: Final = 5_000
"""One write removes the lists of whole blocks until it has removed this many nodes."""

DEPTH_BLOCKS_MIN: Final = 2
"""The least number of states to keep: the next block runs on the previous state while the newest block is written."""

log = structlog.get_logger("validator.store")

_Entry = tuple[bytes, bytes]
"""Key and content."""

_Replaced = tuple[int, list[int]]
"""The number of a block, and the numbers of the nodes that it replaced."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _MapWasSmall(StorageFailed):
    """A write did not fit into the map, which has grown since. Not an error of the disk."""


def _repeated_in_larger_map(write: "Callable[Concatenate[Store, _P], _T]") -> "Callable[Concatenate[Store, _P], _T]":
    """Repeat the write after each _MapWasSmall; the map has doubled each time."""

    @wraps(write)
    def written(store: "Store", /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        while True:
            try:
                return write(store, *args, **kwargs)
            except _MapWasSmall as small:
                log.warning("less room was made for a write than it took", reason=str(small))

    return written


def _table_bytes(stat: dict[str, int]) -> int:
    """The bytes of a table's pages. ``stat``: LMDB's, of the table."""
    return stat["psize"] * (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"])


class Store(StoreReader):
    """Chain and state on disk. ``path``: the store's folder, created with its file if absent.

    Raises StorageFailed if the store cannot be opened.

    ``state_depth_blocks``: how many of the newest states each commit keeps; 0 keeps all. ``sync``: if False, writes
    reach the disk only with a call of ``sync()``. This is for stores that are discarded if an error prevents the call.
    """

    def __init__(self, path: Path, limits: Limits, state_depth_blocks: int = 0, *, sync: bool = True) -> None:
        assert state_depth_blocks == 0 or state_depth_blocks >= DEPTH_BLOCKS_MIN, "the configuration was checked"
        self._limits = limits
        self._state_depth_blocks = state_depth_blocks
        with ExitStack() as undo:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                make_folder(path, exist_ok=True)
                undo.callback((lock := own(path)).close)
                # ``lexists`` is used because a broken link is no new store: the link's disk may not be mounted.
                if not os.path.lexists(path / DATA):
                    make(path, limits.store_map_bytes_initial)
                env, tables = open_file(path, map_size=limits.store_map_bytes_initial, sync=sync)
                undo.callback(env.close)
                self._witness = (path / DATA).open("rb")
                undo.callback(self._witness.close)
            except (lmdb.Error, OSError) as error:
                advice = "where its file is damaged, `dovetail store repair` or a backup brings it back"
                want = lack_of_permission(error, path, path / DATA, path / LOCK) or lack_of_room(error, path)
                want = want or lack_of_address_space(error)
                raise StorageFailed(f"cannot open the store at {path}: {error}; {want or advice}") from None
            self._lock = lock
            self.refused_writes = 0
            """How many writes the disk has refused."""
            self.failure: str | None = None
            """The last refusal; None after a successful write of at least as many bytes, or after a successful
            ``retry_write``."""
            self._failed_bytes = 0
            self._detailed_from = 0
            """The order number of the first INVALID batch that may have details; earlier ones have none."""
            super().__init__(path, env, tables)
            self.next_node_number: int = max(self._last_key("nodes") + 1, self.pruned.next_node)
            self.next_arrival: int = self._last_key("pending") + 1
            """The arrival number of the next accepted batch."""
            undo.pop_all()

    def close(self) -> None:
        """Close the store. Another process may own it afterwards."""
        super().close()
        self._witness.close()
        self._lock.close()

    def sync(self) -> None:
        """Return when all writes are on disk. Raises StorageFailed."""
        try:
            self._env.sync(True)
        except lmdb.Error as error:
            raise StorageFailed(f"the store cannot be synced: {error}") from None

    @_repeated_in_larger_map
    def add_pending(self, raw_batches: list[bytes]) -> int:
        """Write accepted batches. Returns the arrival number of the first. Synced on return. Raises StorageFailed."""
        first = self.next_arrival
        names = map(key, range(first, first + len(raw_batches)))
        reach(CrashPoint.PENDING_BEFORE_WRITE)
        with self._write(sum(map(len, raw_batches)) + 4096) as transaction:
            self._append(transaction, "pending", zip(names, raw_batches, strict=True))
            reach(CrashPoint.PENDING_BEFORE_SYNC)
        reach(CrashPoint.PENDING_AFTER_SYNC)
        self.next_arrival = first + len(raw_batches)
        return first

    @_repeated_in_larger_map
    def commit_block(self, commit: BlockCommit) -> BlockInfo:
        """Append a block: its record, state, receipts, indexes, statuses and pending removals in one write.

        Synced on return. Raises StorageFailed, and then nothing has changed.
        """
        block = commit.block
        head = self.head
        info = BlockInfo(
            num=block.header.block_num,
            id=block.id,
            root=commit.root,
            first_batch=head.batch_end if head else 0,
            batch_count=len(commit.batches),
            first_transaction=head.transaction_end if head else 0,
            transaction_count=sum(len(batch.transactions) for batch in commit.batches),
            header_bytes=block.header_bytes,
        )
        if info.num != (head.num + 1 if head else 0) or (head and block.header.previous_block_id != head.id):
            raise ValueError(f"block {info.num} {info.id} does not extend the head {head and head.num}")
        next_node = commit.nodes[-1][0] + 1 if commit.nodes else self.next_node_number
        lists = self._prunable(info.num - self._state_depth_blocks + 1) if self._state_depth_blocks else []
        reach(CrashPoint.COMMIT_BEFORE_WRITE if head else CrashPoint.GENESIS_BEFORE_WRITE)
        with self._write(commit_bytes(commit) + prune_bytes(lists)) as transaction:
            self._put_block(transaction, info, commit)
            self._put_invalid(transaction, commit.invalid, commit.settled)
            pruned = self._prune(transaction, lists, next_node)
            reach(CrashPoint.COMMIT_BEFORE_SYNC if head else CrashPoint.GENESIS_BEFORE_SYNC)
        reach(CrashPoint.COMMIT_AFTER_SYNC if head else CrashPoint.GENESIS_AFTER_SYNC)
        self.head = info
        self.pruned = pruned
        self.next_node_number = next_node
        # The next block reads the nodes of this one; replaced nodes are hardly read again.
        for number in commit.superseded:
            self._nodes.pop(number, None)
        for number, node in commit.nodes:
            self._keep(number, node)
        return info

    @_repeated_in_larger_map
    def reject(self, invalid: list[InvalidBatch], settled: list[int]) -> None:
        """Record batches as INVALID without a block. Synced on return. Raises StorageFailed."""
        reach(CrashPoint.VERDICTS_BEFORE_WRITE)
        with self._write(4 * invalid_bytes(invalid)) as transaction:
            self._put_invalid(transaction, invalid, settled)
            reach(CrashPoint.VERDICTS_BEFORE_SYNC)
        reach(CrashPoint.VERDICTS_AFTER_SYNC)

    @_repeated_in_larger_map
    def remember_queue(self, queue: QueueRecord) -> None:
        """Write what the pending queue needs to know after a restart. Synced on return. Raises StorageFailed."""
        record = sealed("meta", QUEUE_KEY, records.encode_queue(queue))
        with self._write(len(record) + 4096) as transaction:
            transaction.put(QUEUE_KEY, record, db=self._tables["meta"])

    def retry_write(self) -> None:
        """Test after a refused write whether writes succeed again: ``failure`` is None then.

        Rewrites an existing record, if disk and map have space for the refused write.
        """
        free = self.free_bytes()
        if free is not None and free < self._failed_bytes * _PAGE_OVERHEAD:
            # A small write could still succeed, in free pages of the file.
            return
        failure, failed_bytes, refused = self.failure, self._failed_bytes, self.refused_writes
        try:
            with self._write(0, room_bytes=failed_bytes) as transaction:
                transaction.put(FORMAT_KEY, FORMAT, db=self._tables["meta"])
        except StorageFailed:
            # Keep reporting the original refusal.
            self.failure, self._failed_bytes, self.refused_writes = failure, failed_bytes, refused
        else:
            self.failure, self._failed_bytes = None, 0

    def used_bytes(self) -> int:
        """The bytes of the file in use, including free pages that later writes reuse."""
        return int((self._env.info()["last_pgno"] + 1) * self._env.stat()["psize"])

    def free_bytes(self) -> int | None:
        """The free bytes on the store's disk; None if unknown."""
        try:
            disk = os.fstatvfs(self._lock.fileno())
        except OSError:
            return None
        return disk.f_bavail * disk.f_frsize

    @_repeated_in_larger_map
    def remember_invalid(self, batches: list[InvalidBatch], transactions: Sequence[TransactionId]) -> None:
        """Write INVALID batches and transactions that another store remembered, in order.

        Synced on return. Raises StorageFailed.
        """
        with self._write(names_bytes(transactions) + invalid_bytes(batches)) as transaction:
            self._put_invalid(transaction, batches, [])
            ids = [(id_key(name), b"") for name in transactions]
            self._remember(transaction, "invalid_transactions", ids, self._limits.invalid_transactions_remembered)

    @_repeated_in_larger_map
    def prune(self, depth_blocks: int) -> bool:
        """Remove a bounded number of nodes that none of the newest ``depth_blocks`` states needs.

        Returns whether more such nodes are left. Synced on return. Raises StorageFailed.
        """
        assert depth_blocks >= DEPTH_BLOCKS_MIN, "a validator needs two states"
        until = self.head.num - depth_blocks + 1 if self.head else 0
        lists = self._prunable(until)
        if lists:
            with self._write(prune_bytes(lists)) as transaction:
                pruned = self._prune(transaction, lists, self.next_node_number)
            self.pruned = pruned
        return bool(lists) and self.pruned.states_from < until

    def _prunable(self, until: int) -> list[_Replaced]:
        """The next replaced nodes to remove, in block order, up to block ``until``, as many as one write may remove.

        The state after block n and all later states do not need the nodes that block n replaced.
        """
        lists: list[_Replaced] = []
        nodes = 0
        for num in range(self.pruned.states_from + 1, until + 1):
            if nodes >= _PRUNED_NODES_MAX or len(lists) >= _PRUNED_NODES_MAX:
                break
            try:
                numbers = self.superseded(num)
            except (StorageFailed, struct.error) as error:
                # The only consequence is unused space.
                log.error("states are not pruned", block_num=num, reason=str(error))
                break
            lists.append((num, numbers))
            nodes += len(numbers)
        return lists

    def _prune(self, transaction: Any, lists: list[_Replaced], next_node: int) -> Pruned:
        """Remove the nodes of ``lists``. ``next_node``: greater than every node number."""
        pruned = self.pruned
        if not lists:
            return pruned
        nodes_table, lists_table = self._tables["nodes"], self._tables["superseded"]
        for num, numbers in lists:
            for number in sorted(numbers):
                transaction.delete(key(number), db=nodes_table)
            transaction.delete(key(num), db=lists_table)
            pruned = Pruned(num, next_node, pruned.nodes + len(numbers))
        transaction.delete(key(0), db=lists_table)
        record = sealed("meta", PRUNED_KEY, records.encode_pruned(pruned))
        transaction.put(PRUNED_KEY, record, db=self._tables["meta"])
        reach(CrashPoint.PRUNE_BEFORE_SYNC)
        return pruned

    def _put_block(self, transaction: Any, info: BlockInfo, commit: BlockCommit) -> None:
        num = key(info.num)
        batches: list[_Entry] = []
        batch_ids: list[_Entry] = []
        transactions: list[_Entry] = []
        transaction_ids: list[_Entry] = []
        transaction_number = info.first_transaction
        for batch_number, batch in zip(info.batches, commit.batches, strict=True):
            name = key(batch_number)
            batches.append((name, records.encode_batch(info.num, transaction_number, batch.raw)))
            batch_ids.append((id_key(batch.id), name))
            for position, (transaction_id, receipt) in enumerate(batch.transactions):
                name = key(transaction_number)
                transactions.append((name, records.encode_transaction(batch_number, position, receipt)))
                transaction_ids.append((id_key(transaction_id), name))
                transaction_number += 1
        self._append(transaction, "blocks", [(num, records.encode_block_info(info))])
        self._append(transaction, "batches", batches)
        self._append(transaction, "transactions", transactions)
        self._append(transaction, "nodes", ((key(number), node) for number, node in commit.nodes))
        self._append(transaction, "superseded", [(num, records.encode_numbers(commit.superseded))])
        self._insert(transaction, "block_ids", [(id_key(info.id), num)])
        self._insert(transaction, "batch_ids", batch_ids)
        self._insert(transaction, "transaction_ids", transaction_ids)

    def _put_invalid(self, transaction: Any, invalid: list[InvalidBatch], settled: list[int]) -> None:
        tables = self._tables
        for arrival in settled:
            transaction.delete(key(arrival), db=tables["pending"])
        limits = self._limits
        batches = [(id_key(entry.batch_id), records.encode_invalid(entry)) for entry in invalid]
        self._remember(transaction, "invalid", batches, limits.invalid_batches_remembered)
        self._drop_details(transaction)
        ids = [(id_key(name), b"") for entry in invalid for name in entry.transaction_ids]
        self._remember(transaction, "invalid_transactions", ids, limits.invalid_transactions_remembered)

    def _remember(self, transaction: Any, table: str, entries: list[_Entry], most: int) -> None:
        """Put entries into a table that keeps only its newest entries, at most ``most``.

        Each record begins with its order number. A damaged record stops no write: its content is replaced or removed.
        """
        if not entries:
            return
        records_table, order_table = self._tables[table], self._tables[f"{table}_order"]
        with transaction.cursor(db=order_table) as order:
            number = int.from_bytes(order.key(), "big") + 1 if order.last() else 0
            for name, content in entries:
                before = transaction.get(name, db=records_table)
                place = before and records.opened(table, name, before)
                # The place of a damaged record is unknown; the limit removes the place later.
                if place:
                    transaction.delete(place[: records.NUMBER_BYTES], db=order_table)
                transaction.put(name, sealed(table, name, key(number) + content), db=records_table)
                self._append(transaction, f"{table}_order", [(key(number), name)])
                number += 1
            for _ in range(transaction.stat(order_table)["entries"] - most):
                order.first()
                place, record = order.item()
                oldest = records.opened(f"{table}_order", place, record)
                order.delete()
                if oldest:
                    transaction.delete(oldest, db=records_table)
                else:
                    log.error("a damaged order record is removed", table=table, number=int.from_bytes(place, "big"))

    def _drop_details(self, transaction: Any) -> None:
        """Drop messages and extended data of the oldest INVALID batches while their table is over its limit.

        The statuses and their reasons stay.
        """
        table = self._tables["invalid"]
        with transaction.cursor(db=self._tables["invalid_order"]) as order:
            found = order.set_range(key(self._detailed_from))
            while found and _table_bytes(transaction.stat(table)) > self._limits.invalid_bytes_remembered:
                place, record = order.item()
                name = records.opened("invalid_order", place, record) or b""
                content = name and records.opened("invalid", name, transaction.get(name, db=table) or b"")
                entry = records.decode_invalid(content) if content else None
                # A damaged record is left as it is: no write may fail because of an explanation.
                if entry is not None and (entry.message or entry.extended_data):
                    bare = place + records.encode_invalid(entry.without_details())
                    # LMDB leaves the pages of a large record to a smaller one that overwrites it in the same write.
                    transaction.delete(name, db=table)
                    transaction.put(name, sealed("invalid", name, bare), db=table)
                self._detailed_from = int.from_bytes(place, "big") + 1
                found = order.next()

    def _append(self, transaction: Any, table: str, entries: Iterable[_Entry]) -> None:
        """Append entries to a table in ascending key order. Never overwrites an entry."""
        written = ((name, sealed(table, name, content)) for name, content in entries)
        with transaction.cursor(db=self._tables[table]) as cursor:
            given, added = cursor.putmulti(written, append=True)
        if added != given:
            raise StorageFailed(f"{given - added} of {given} entries are not behind the last of the table {table}")

    def _insert(self, transaction: Any, table: str, entries: list[_Entry]) -> None:
        """Put entries under random keys, in key order, so that neighbouring keys share copied pages."""
        with transaction.cursor(db=self._tables[table]) as cursor:
            cursor.putmulti((name, sealed(table, name, content)) for name, content in sorted(entries))

    @contextmanager
    def _write(self, data_bytes: int, room_bytes: int = 0) -> Iterator[Any]:
        """One write transaction, synced at the end of the with-block. Reads then see the write.

        Makes room for ``data_bytes``, or for ``room_bytes`` if these are more.
        Raises StorageFailed if the disk refused the whole write, StorageLost if the outcome is unknown.
        """
        self._end_snapshot()
        try:
            # Without this, the space that a killed reader saw would never be reused.
            self._env.reader_check()
            self._make_room(max(data_bytes, room_bytes) * _PAGE_OVERHEAD)
            with self._env.begin(write=True) as transaction:
                yield transaction
            if data_bytes >= self._failed_bytes:
                self.failure, self._failed_bytes = None, 0
        except (lmdb.Error, OSError) as error:
            self._detailed_from = 0
            said = f"the store refused a write of {data_bytes} bytes: {error}"
            self._require_kept(said)
            full = isinstance(error, lmdb.MapFullError)
            if full and self._doubled():
                raise _MapWasSmall(said) from None
            # Only a lack of address space keeps a full map from growing.
            cause = OSError(errno.ENOMEM, "") if full else error
            lack = lack_of_room(error, self._lock.fileno(), data_bytes) or lack_of_address_space(cause)
            if not lack and isinstance(error, lmdb.CorruptedError | lmdb.PageNotFoundError):
                lack = WHEN_DAMAGED
            said += f"; {lack or 'see to the disk of the data folder'}"
            self.refused_writes += 1
            self.failure, self._failed_bytes = said, max(data_bytes, self._failed_bytes)
            raise StorageFailed(said) from None
        finally:
            try:
                self._reader = self._begin()
            except lmdb.Error as error:
                # LMDB gives up if it cannot tell which of its two first pages is on disk.
                raise StorageLost(f"the outcome of a write of {data_bytes} bytes is unknown: {error}") from None

    def _recover_snapshot(self) -> None:
        # No other process writes, so the newest commit is the same one.
        self._end_snapshot()
        self._begin_snapshot()

    def _require_kept(self, said: str) -> None:
        """Raise StorageLost if the disk lost data of an earlier write.

        The kernel drops pages that it cannot write, and the next sync succeeds without them. It reports the loss once
        to each open file; ``_witness`` is open for this report only. ``said``: the refusal so far.
        """
        try:
            os.fsync(self._witness.fileno())
        except OSError as error:
            raise StorageLost(f"{said}; the disk lost data that it had accepted: {error.strerror}") from None

    def _make_room(self, data_bytes: int) -> None:
        """Grow the map if it might be too small for a write. No transaction may be open in this process."""
        info = self._env.info()
        page_bytes = self._env.stat()["psize"]
        used = (info["last_pgno"] + 1) * page_bytes
        wanted = used + data_bytes + _GROWTH_BYTES_MIN
        if wanted > info["map_size"]:
            reach(CrashPoint.MAP_BEFORE_GROWTH)
            self._grow(max(wanted, 2 * info["map_size"]))
            reach(CrashPoint.MAP_AFTER_GROWTH)

    def _doubled(self) -> bool:
        """Double the map; False if the system refuses."""
        try:
            self._grow(2 * self._env.info()["map_size"])
        except (lmdb.Error, OSError):
            return False
        return True

    def _grow(self, map_bytes: int) -> None:
        """Make the map that large. Raises OSError if there is no address space, and then leaves the map as it is."""
        more_bytes = map_bytes - self._env.info()["map_size"]
        # LMDB removes its map first, and closes the store if there is no space for the new one. So ask the system.
        mmap.mmap(-1, more_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0).close()
        self._env.set_mapsize(map_bytes)
