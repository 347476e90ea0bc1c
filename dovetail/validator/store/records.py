"""What the store keeps: tables, and how each record looks as bytes. No LMDB here.

Blocks, batches and transactions are numbered from 0 without gaps; a block record holds the numbers of its first batch
and transaction, so that any page of any list is found by arithmetic and one binary search. Every record ends with a
checksum of its table, its key and itself, which each read compares: of a disk that errs, not of anybody who means harm.
"""

import struct
import zlib
from typing import Final, NamedTuple

import msgspec

from dovetail.ledger.ids import BlockId, StateRoot
from dovetail.validator.core.journal.model import InvalidBatch
from dovetail.validator.core.state.nodes import Ref

FORMAT: Final = b"dovetail-store-3"
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
"""Of the checksum at the end of every record but that of the format."""

_SEEDS: Final = {table: zlib.crc32(table.encode()) for table in TABLES}
"""So that a record that is read out of another table is none of this one."""

FORMAT_KEY: Final = b"format"
PRUNED_KEY: Final = b"pruned"
"""The keys of the table ``meta``."""

NUMBER_BYTES: Final = 8
"""Of a number as a key."""

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


class Pruned(NamedTuple):
    """What states are gone. The defaults: none.

    ``states_from``: the first block whose state is whole; so are those of all later ones. ``nodes``: how many nodes
    were removed. ``next_node``: all of them had lower numbers.
    """

    states_from: int = 0
    next_node: int = 1
    nodes: int = 0


def key(number: int) -> bytes:
    """A number as a key, so that ascending numbers are ascending keys."""
    return number.to_bytes(NUMBER_BYTES, "big")


def id_key(text: str) -> bytes:
    """A transaction, batch or block id (128 hex characters) as a key."""
    return bytes.fromhex(text)


def checksum_of(table: str, name: bytes, content: bytes) -> int:
    """Of what stands under the key ``name`` of a table: it tells every change of up to 32 bits in a row."""
    return zlib.crc32(content, zlib.crc32(name, _SEEDS[table]))


def sealed(table: str, name: bytes, content: bytes) -> bytes:
    """The record that keeps ``content`` under the key ``name`` of a table."""
    return content + _SEAL.pack(checksum_of(table, name, content))


def opened(table: str, name: bytes, record: bytes) -> bytes | None:
    """The content of a record; None where it is not what was written there."""
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
    """What follows the number of the record."""
    return _invalid_encoder.encode(entry._replace(transaction_ids=()))


def decode_invalid(record: bytes) -> InvalidBatch:
    """Raises msgspec.MsgspecError and UnicodeDecodeError for bytes that ``encode_invalid`` never makes."""
    return _invalid_decoder.decode(record[NUMBER_BYTES:])


def encode_pruned(pruned: Pruned) -> bytes:
    return _PRUNED.pack(*pruned)


def decode_pruned(record: bytes) -> Pruned:
    return Pruned(*_PRUNED.unpack(record))


def number_key(record: bytes) -> bytes:
    """The key under which its order names a record that begins with its number."""
    return record[:NUMBER_BYTES]


def encode_numbers(numbers: list[int]) -> bytes:
    return struct.pack(f">{len(numbers)}Q", *numbers)


def decode_numbers(record: bytes) -> list[int]:
    """Raises struct.error for bytes that ``encode_numbers`` never makes."""
    return [number for (number,) in _NUMBER.iter_unpack(record)]
