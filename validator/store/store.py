"""The store as it is written: one owner, write transactions, growth of the map.

Everything runs in the validator's loop thread: one owner, no locks. All reads see the newest commit; nothing is
reported as done before its write transaction is synced. Reading, and what the tables are, is in
``validator.store.reader``, what is in the records in ``validator.store.records``.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from shutil import disk_usage
from typing import IO, Any, Final

import lmdb

from ledger.limits import Limits
from validator.crash_points import CrashPoint, reach
from validator.journal.model import BlockCommit, InvalidBatch
from validator.store import records
from validator.store.reader import READERS_MAX, SPARE_SNAPSHOTS, StorageFailed, StorageLost, StoreReader
from validator.store.records import FORMAT, TABLES, BlockInfo, id_key, key

_PAGE_OVERHEAD: Final = 3
"""A write may touch this many times its own bytes in pages: copied tree pages and half-filled new ones."""
_GROWTH_BYTES_MIN: Final = 16 * 1024 * 1024

_Entry = tuple[bytes, bytes]
"""Key and record."""


class Store(StoreReader):
    """Chain and state on disk. ``path``: a folder, made when absent. Raises StorageFailed when it cannot be opened."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self._limits = limits
        with ExitStack() as undo:
            try:
                path.mkdir(parents=True, exist_ok=True, mode=0o700)
                undo.callback((lock := _lock(path)).close)
                if not (path / "data.mdb").exists():
                    # One that was begun and not finished could never be opened.
                    undo.callback((path / "data.mdb").unlink, missing_ok=True)
                env = lmdb.open(
                    str(path),
                    map_size=limits.store_map_bytes_initial,
                    max_dbs=len(TABLES),
                    max_readers=READERS_MAX,
                    max_spare_txns=SPARE_SNAPSHOTS,
                    mode=0o600,
                )
                undo.callback(env.close)
                env.reader_check()
                tables = {name: env.open_db(name.encode()) for name in TABLES}
                self._witness = (path / "data.mdb").open("rb")
                undo.callback(self._witness.close)
            except (lmdb.Error, OSError) as error:
                raise StorageFailed(f"cannot open the store at {path}: {error}") from None
            self._lock = lock
            self._path = path
            self.failure: str | None = None
            """Why the last write was refused; None where it was not."""
            self._failed_bytes = 0
            super().__init__(path, env, tables)
            self.next_node_number: int = self._last_key("nodes") + 1 or 1
            self.next_arrival: int = self._last_key("pending") + 1
            """The arrival number of the next batch that is accepted."""
            undo.pop_all()

    def close(self) -> None:
        """Let go of the store; another process may own it then."""
        super().close()
        self._witness.close()
        self._lock.close()

    def add_pending(self, raw_batches: list[bytes]) -> int:
        """Keep accepted batches; the arrival number of the first. Synced on return. Raises StorageFailed."""
        first = self.next_arrival
        names = map(key, range(first, first + len(raw_batches)))
        entries = ((name, records.encode_pending(name, raw)) for name, raw in zip(names, raw_batches, strict=True))
        reach(CrashPoint.PENDING_BEFORE_WRITE)
        with self._write(sum(map(len, raw_batches)) + 4096) as transaction:
            self._append(transaction, "pending", entries)
            reach(CrashPoint.PENDING_BEFORE_SYNC)
        reach(CrashPoint.PENDING_AFTER_SYNC)
        self.next_arrival = first + len(raw_batches)
        return first

    def commit_block(self, commit: BlockCommit) -> BlockInfo:
        """Move the head by one: block, state, receipts, indexes, statuses and pending removals at once.

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
        reach(CrashPoint.COMMIT_BEFORE_WRITE if head else CrashPoint.GENESIS_BEFORE_WRITE)
        with self._write(_commit_bytes(commit)) as transaction:
            self._put_block(transaction, info, commit)
            self._put_invalid(transaction, commit.invalid, commit.settled)
            reach(CrashPoint.COMMIT_BEFORE_SYNC if head else CrashPoint.GENESIS_BEFORE_SYNC)
        reach(CrashPoint.COMMIT_AFTER_SYNC if head else CrashPoint.GENESIS_AFTER_SYNC)
        self.head = info
        if commit.nodes:
            self.next_node_number = commit.nodes[-1][0] + 1
        # The next block starts from what this one wrote, and hardly anybody looks at what it replaced.
        for number in commit.superseded:
            self._nodes.pop(number, None)
        for number, node in commit.nodes:
            self._keep(number, node)
        return info

    def reject(self, invalid: list[InvalidBatch], settled: list[int]) -> None:
        """Judge batches INVALID without a block. Synced on return. Raises StorageFailed."""
        reach(CrashPoint.VERDICTS_BEFORE_WRITE)
        with self._write(sum(len(entry.message) + len(entry.extended_data) + 4096 for entry in invalid)) as transaction:
            self._put_invalid(transaction, invalid, settled)
            reach(CrashPoint.VERDICTS_BEFORE_SYNC)
        reach(CrashPoint.VERDICTS_AFTER_SYNC)

    def try_again(self) -> None:
        """After a refused write, where there is room for as much: write what stands there already.

        ``failure`` tells whether that went.
        """
        # A little goes into pages that are free within the file, when the disk has room for no other.
        if self.free_bytes() > self._failed_bytes * _PAGE_OVERHEAD:
            with suppress(StorageFailed), self._write(0) as transaction:
                transaction.put(b"format", FORMAT, db=self._tables["meta"])

    def used_bytes(self) -> int:
        """How much of the file holds something, or did once and may hold something again."""
        return int((self._env.info()["last_pgno"] + 1) * self._env.stat()["psize"])

    def free_bytes(self) -> int:
        """How much the disk of the store has left."""
        return disk_usage(self._path).free

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
                transactions.append((name, records.encode_transaction(name, batch_number, position, receipt)))
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
        names = [id_key(entry.batch_id) for entry in invalid]
        batches = [(name, records.encode_invalid(name, entry)) for name, entry in zip(names, invalid, strict=True)]
        self._remember(transaction, "invalid", batches, limits.invalid_batches_remembered)
        ids = [(id_key(name), b"") for entry in invalid for name in entry.transaction_ids]
        self._remember(transaction, "invalid_transactions", ids, limits.invalid_transactions_remembered)

    def _remember(self, transaction: Any, table: str, entries: list[_Entry], most: int) -> None:
        """Put entries into a table that keeps the newest ``most``; a record begins with its number in their order."""
        if not entries:
            return
        records_table, order_table = self._tables[table], self._tables[f"{table}_order"]
        with transaction.cursor(db=order_table) as order:
            number = int.from_bytes(order.key(), "big") + 1 if order.last() else 0
            for name, content in entries:
                before = transaction.get(name, db=records_table)
                if before is not None:
                    transaction.delete(records.number_key(before), db=order_table)
                transaction.put(name, key(number) + content, db=records_table)
                self._append(transaction, f"{table}_order", [(key(number), name)])
                number += 1
            for _ in range(transaction.stat(order_table)["entries"] - most):
                order.first()
                oldest = order.value()
                order.delete()
                transaction.delete(oldest, db=records_table)

    def _append(self, transaction: Any, table: str, entries: Iterable[_Entry]) -> None:
        """Put entries behind all others of a table, in their order; one that stands there is never written over."""
        with transaction.cursor(db=self._tables[table]) as cursor:
            given, added = cursor.putmulti(entries, append=True)
        if added != given:
            raise StorageFailed(f"{given - added} of {given} entries are not behind the last of the table {table}")

    def _insert(self, transaction: Any, table: str, entries: list[_Entry]) -> None:
        """Put entries under random keys: in ascending order neighbours share the pages that their insertion copies."""
        with transaction.cursor(db=self._tables[table]) as cursor:
            cursor.putmulti(sorted(entries))

    @contextmanager
    def _write(self, data_bytes: int) -> Iterator[Any]:
        """One write transaction, synced when the block ends; the reader moves on to it.

        Raises StorageFailed where the disk took nothing of it, StorageLost where that is not sure.
        """
        self._let_go()
        try:
            # Space that a reader saw which was killed would never be used again.
            self._env.reader_check()
            self._make_room(data_bytes * _PAGE_OVERHEAD)
            with self._env.begin(write=True) as transaction:
                yield transaction
            self.failure = None
        except (lmdb.Error, OSError) as error:
            said = f"the store refused a write of {data_bytes} bytes: {error}"
            self._require_kept(said)
            self.failure = said
            self._failed_bytes = data_bytes
            raise StorageFailed(said) from None
        finally:
            try:
                self._reader = self._begin()
            except lmdb.Error as error:
                # LMDB gives up where it cannot tell which of its two heads is on disk.
                raise StorageLost(f"nobody knows what became of a write of {data_bytes} bytes: {error}") from None

    def _require_kept(self, said: str) -> None:
        """Raise StorageLost where the disk lost what it had taken, and ``said`` is no refusal.

        The system forgets pages that it could not write: the next sync would succeed without them. It tells once each
        file that was open then, also this one, which never wrote.
        """
        try:
            os.fsync(self._witness.fileno())
        except OSError as error:
            raise StorageLost(f"{said}; the disk lost what it had taken: {error.strerror}") from None

    def _make_room(self, data_bytes: int) -> None:
        """Grow the map before a write that it might not hold; no transaction is open in this process then."""
        info = self._env.info()
        page_bytes = self._env.stat()["psize"]
        used = (info["last_pgno"] + 1) * page_bytes
        wanted = used + data_bytes + _GROWTH_BYTES_MIN
        if wanted > info["map_size"]:
            reach(CrashPoint.MAP_BEFORE_GROWTH)
            self._env.set_mapsize(max(wanted, 2 * info["map_size"]))
            reach(CrashPoint.MAP_AFTER_GROWTH)

    def _check_format(self, path: Path) -> None:
        """A new store gets its format here."""
        if self._get("meta", b"format") is None:
            with self._write(4096) as transaction:
                transaction.put(b"format", FORMAT, db=self._tables["meta"])
        super()._check_format(path)


def _lock(path: Path) -> IO[bytes]:
    """Hold the store for this process alone, for as long as the file is open; the end of the process frees it."""
    file = (path / "owner.lock").open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise StorageFailed(f"the store at {path} is in use by another validator") from None
    return file


def _commit_bytes(commit: BlockCommit) -> int:
    """An upper bound of the bytes that a block writes, keys included."""
    batches: Iterable[int] = (
        len(batch.raw) + 512 + sum(len(receipt) + 512 for _, receipt in batch.transactions) for batch in commit.batches
    )
    nodes = sum(len(node) + 64 for _, node in commit.nodes)
    invalid = sum(len(entry.message) + len(entry.extended_data) + 1024 for entry in commit.invalid)
    return sum(batches) + nodes + invalid + len(commit.block.header_bytes) + 16 * len(commit.superseded) + 65_536
