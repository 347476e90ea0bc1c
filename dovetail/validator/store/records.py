"""The store's tables, and the encoding of their records. No LMDB here.

Blocks, batches and transactions are numbered from 0 without gaps. A block record holds the numbers of its first batch
and transaction, so any page of a list is found by arithmetic and one binary search. Every record ends with a checksum
of its table, key and content, which each read compares. The checksum detects disk errors, not deliberate changes.
"""

import struct
import zlib
from typing import Final, NamedTuple

import msgspec

from dovetail.ledger.ids import BlockId, StateRoot
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.journal.model import InvalidBatch
from dovetail.validator.core.state.nodes import Ref

FORMAT: Final = b"dovetail-store-4"
TABLES: Final = (
    "meta",
    "blocks",
    "block_ids",
    "batches",
    "batch_ids",
    "transactions",
    "transaction_ids",
    "nodes",
    "superseded",
    "pending",
    "invalid",
    "invalid_order",
    "invalid_transactions",
    "invalid_transactions_order",
)

_BLOCK: Final = struct.Struct(">64s32sQIQIQI")
_BATCH: Final = struct.Struct(">QQ")
_TRANSACTION: Final = struct.Struct(">QI")
_PRUNED: Final = struct.Struct(">QQQ")
_SEAL: Final = struct.Struct(">I")
_NUMBER: Final = struct.Struct(">Q")
SEAL_BYTES: Final = 4
"""The checksum's length, at the end of every record except the format's."""

_SEEDS: Final = {table: zlib.crc32(table.encode()) for table in TABLES}
"""Checksums start with the table's name, so that a record of another table does not match."""

FORMAT_KEY: Final = b"format"
PRUNED_KEY: Final = b"pruned"
QUEUE_KEY: Final = b"queue"
"""The keys of the table ``meta``."""

NUMBER_BYTES: Final = 8
"""The length of a number as a key."""

_invalid_encoder: Final = msgspec.msgpack.Encoder()
_invalid_decoder: Final = msgspec.msgpack.Decoder(InvalidBatch)


class BlockInfo(NamedTuple):
    """A committed block without its batches."""

    num: int
    id: BlockId
    root: Ref
    first_batch: int
    batch_count: int
    first_transaction: int
    transaction_count: int
    header_bytes: bytes

    @property
    def state_root(self) -> StateRoot:
        return StateRoot(self.root.hash.hex())

    @property
    def batches(self) -> range:
        """The numbers of its batches."""
        return range(self.first_batch, self.batch_end)

    @property
    def transactions(self) -> range:
        """The numbers of its transactions."""
        return range(self.first_transaction, self.transaction_end)

    @property
    def batch_end(self) -> int:
        """The number after the block's last batch: how many batches the chain holds up to this block."""
        return self.first_batch + self.batch_count

    @property
    def transaction_end(self) -> int:
        """The number after the block's last transaction."""
        return self.first_transaction + self.transaction_count


class StoredBatch(NamedTuple):
    number: int
    block_num: int
    first_transaction: int
    raw: bytes


class StoredTransaction(NamedTuple):
    """``position``: its index in the batch."""

    number: int
    batch_number: int
    position: int
    receipt: bytes


class QueueRecord(NamedTuple):
    """What the pending queue needs to know after a restart; the defaults mean nothing.

    ``marks``: the arrival number of the next batch at each of the last steps of ``step_s`` seconds. ``served``: the
    families that a processor has registered on this node, the last one at the end.
    """

    step_s: float = 0
    marks: tuple[int, ...] = ()
    served: tuple[FamilyVersion, ...] = ()


class Pruned(NamedTuple):
    """Which states are pruned; the defaults mean none.

    ``states_from``: the first block whose state is complete, as are all later ones. ``nodes``: the number of removed
    nodes, all of which had numbers below ``next_node``.
    """

    states_from: int = 0
    next_node: int = 1
    nodes: int = 0


def key(number: int) -> bytes:
    """A number as a key. Keys sort like their numbers."""
    return number.to_bytes(NUMBER_BYTES, "big")


def id_key(text: str) -> bytes:
    """A transaction, batch or block id (128 hex characters) as a key."""
    return bytes.fromhex(text)


def checksum_of(table: str, name: bytes, content: bytes) -> int:
    """The CRC-32 of table, key and content. It detects every change within 32 consecutive bits."""
    return zlib.crc32(content, zlib.crc32(name, _SEEDS[table]))


def sealed(table: str, name: bytes, content: bytes) -> bytes:
    """The record for ``content`` under the key ``name`` of a table: the content with its checksum."""
    return content + _SEAL.pack(checksum_of(table, name, content))


def opened(table: str, name: bytes, record: bytes) -> bytes | None:
    """The content of a record; None if its checksum does not match."""
    content = record[:-SEAL_BYTES]
    return content if record[-SEAL_BYTES:] == _SEAL.pack(checksum_of(table, name, content)) else None


def encode_block_info(info: BlockInfo) -> bytes:
    fields = _BLOCK.pack(
        bytes.fromhex(info.id),
        info.root.hash,
        info.root.number,
        info.root.leaves,
        info.first_batch,
        info.batch_count,
        info.first_transaction,
        info.transaction_count,
    )
    return fields + info.header_bytes


def decode_block_info(num: int, record: bytes) -> BlockInfo:
    block_id, root, number, leaves, first_batch, batches, first_transaction, transactions = _BLOCK.unpack_from(record)
    return BlockInfo(
        num,
        BlockId(block_id.hex()),
        Ref(root, number, leaves),
        first_batch,
        batches,
        first_transaction,
        transactions,
        record[_BLOCK.size :],
    )


def encode_batch(block_num: int, first_transaction: int, raw: bytes) -> bytes:
    return _BATCH.pack(block_num, first_transaction) + raw


def decode_batch(number: int, record: bytes) -> StoredBatch:
    block_num, first_transaction = _BATCH.unpack_from(record)
    return StoredBatch(number, block_num, first_transaction, record[_BATCH.size :])


def encode_transaction(batch_number: int, position: int, receipt: bytes) -> bytes:
    return _TRANSACTION.pack(batch_number, position) + receipt


def decode_transaction(number: int, record: bytes) -> StoredTransaction:
    batch_number, position = _TRANSACTION.unpack_from(record)
    return StoredTransaction(number, batch_number, position, record[_TRANSACTION.size :])


def encode_invalid(entry: InvalidBatch) -> bytes:
    """The record without its leading number."""
    return _invalid_encoder.encode(entry._replace(transaction_ids=()))


def decode_invalid(record: bytes) -> InvalidBatch:
    """Raises msgspec.MsgspecError and UnicodeDecodeError for bytes that ``encode_invalid`` never returns."""
    return _invalid_decoder.decode(record[NUMBER_BYTES:])


def encode_queue(queue: QueueRecord) -> bytes:
    return msgspec.msgpack.encode(queue)


def decode_queue(record: bytes) -> QueueRecord:
    """Raises msgspec.MsgspecError and UnicodeDecodeError for bytes that ``encode_queue`` never returns."""
    return msgspec.msgpack.decode(record, type=QueueRecord)


def encode_pruned(pruned: Pruned) -> bytes:
    return _PRUNED.pack(*pruned)


def decode_pruned(record: bytes) -> Pruned:
    return Pruned(*_PRUNED.unpack(record))


def encode_numbers(numbers: list[int]) -> bytes:
    return struct.pack(f">{len(numbers)}Q", *numbers)


def decode_numbers(record: bytes) -> list[int]:
    """Raises struct.error for bytes that ``encode_numbers`` never returns."""
    return [number for (number,) in _NUMBER.iter_unpack(record)]
