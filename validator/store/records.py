"""What the store keeps: tables, and how each record looks as bytes. No LMDB here.

Blocks, batches and transactions are numbered from 0 without gaps; a block record holds the numbers of its first batch
and transaction, so that any page of any list is found by arithmetic and one binary search. What no signature and no
state root covers carries a checksum: of a disk that errs, not of anybody who means harm.
"""

import struct
import zlib
from typing import Final, NamedTuple

import msgspec

from ledger.ids import BlockId, StateRoot
from validator.journal.model import InvalidBatch
from validator.state.nodes import Ref

FORMAT: Final = b"dovetail-store-2"
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
_TRANSACTION: Final = struct.Struct(">QII")
_CHECKSUM: Final = struct.Struct(">I")
_NUMBER: Final = struct.Struct(">Q")
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
    """``position``: its index in the batch. ``checksum``: as it was written, of its key and the receipt."""

    number: int
    batch_number: int
    position: int
    checksum: int
    receipt: bytes


def key(number: int) -> bytes:
    """A number as a key, so that ascending numbers are ascending keys."""
    return number.to_bytes(NUMBER_BYTES, "big")


def id_key(text: str) -> bytes:
    """A transaction, batch or block id (128 hex characters) as a key."""
    return bytes.fromhex(text)


def checksum(name: bytes, content: bytes) -> int:
    """Of what stands under the key ``name``: it tells every change of up to 32 bits in a row."""
    return zlib.crc32(content, zlib.crc32(name))


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


def encode_transaction(name: bytes, batch_number: int, position: int, receipt: bytes) -> bytes:
    """``name``: its key."""
    return _TRANSACTION.pack(batch_number, position, checksum(name, receipt)) + receipt


def decode_transaction(number: int, record: bytes) -> StoredTransaction:
    batch_number, position, written = _TRANSACTION.unpack_from(record)
    return StoredTransaction(number, batch_number, position, written, record[_TRANSACTION.size :])


def encode_pending(name: bytes, raw: bytes) -> bytes:
    """``name``: its key."""
    return _CHECKSUM.pack(checksum(name, raw)) + raw


def decode_pending(record: bytes) -> tuple[int, bytes]:
    """The checksum as it was written, of its key and the batch; the bytes of the batch."""
    (written,) = _CHECKSUM.unpack_from(record)
    return written, record[_CHECKSUM.size :]


def encode_invalid(name: bytes, entry: InvalidBatch) -> bytes:
    """What follows the number of the record. ``name``: its key."""
    content = _invalid_encoder.encode(entry._replace(transaction_ids=()))
    return _CHECKSUM.pack(checksum(name, content)) + content


def decode_invalid(record: bytes) -> InvalidBatch:
    """Raises msgspec.MsgspecError and UnicodeDecodeError for bytes that ``encode_invalid`` never makes."""
    return _invalid_decoder.decode(record[NUMBER_BYTES + _CHECKSUM.size :])


def is_invalid_whole(name: bytes, record: bytes) -> bool:
    """Whether the checksum of its key and content is as it was written. Raises struct.error."""
    written: int = _CHECKSUM.unpack_from(record, NUMBER_BYTES)[0]
    return checksum(name, record[NUMBER_BYTES + _CHECKSUM.size :]) == written


def number_key(record: bytes) -> bytes:
    """The key under which its order names a record that begins with its number."""
    return record[:NUMBER_BYTES]


def encode_numbers(numbers: list[int]) -> bytes:
    return struct.pack(f">{len(numbers)}Q", *numbers)


def decode_numbers(record: bytes) -> list[int]:
    """Raises struct.error for bytes that ``encode_numbers`` never makes."""
    return [number for (number,) in _NUMBER.iter_unpack(record)]
