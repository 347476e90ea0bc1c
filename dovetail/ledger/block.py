"""Blocks: header, sealing, decoding, verification of the seal. Batches stay the bytes that were received."""

from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from dovetail.ledger import signing
from dovetail.ledger.errors import NotDecodable
from dovetail.ledger.ids import BatchId, BlockId, PublicKey, StateRoot
from dovetail.ledger.signing import Signer
from protos import block_pb2, consensus_pb2, raw_pb2


class BlockHeader(NamedTuple):
    """The signed part of a block (seed specification, Block header members)."""

    block_num: int
    previous_block_id: BlockId
    signer_pubkey: PublicKey
    batch_ids: tuple[BatchId, ...]
    consensus: bytes
    state_root_hash: StateRoot


class SealedBlock(NamedTuple):
    """A signed block: ``id`` is the signature over ``header_bytes``; ``batches`` are serialized Batch messages."""

    id: BlockId
    header: BlockHeader
    header_bytes: bytes
    batches: tuple[bytes, ...]


class Seal(NamedTuple):
    """The members of a sealed block that other nodes cannot make from its batches, and the state root.

    From the seal and the batches every node makes the same header, and so the same block, whichever node writes the
    block first (ADR 20).
    """

    signer_pubkey: PublicKey
    signature: BlockId
    consensus: bytes
    state_root_hash: StateRoot


class Consensus(NamedTuple):
    """The content of a header's ``consensus`` (protos/consensus.proto)."""

    engine: str
    height: int
    time_ms: int


def encode_consensus(consensus: Consensus) -> bytes:
    """The bytes of a header's ``consensus``."""
    return consensus_pb2.BlockConsensus(**consensus._asdict()).SerializeToString(deterministic=True)


def decode_consensus(content: bytes) -> Consensus:
    """The fields of a header's ``consensus``. Raises NotDecodable."""
    try:
        found = consensus_pb2.BlockConsensus.FromString(content)
    except DecodeError:
        raise NotDecodable("the consensus field is no BlockConsensus") from None
    return Consensus(found.engine, found.height, found.time_ms)


def seal(signer: Signer, header: BlockHeader, batches: Sequence[bytes]) -> SealedBlock:
    """Sign a block whose header names exactly ``batches``, in their order."""
    header_bytes = encode_block_header(header)
    return SealedBlock(BlockId(signer.sign(header_bytes)), header, header_bytes, tuple(batches))


def encode_block_header(header: BlockHeader) -> bytes:
    """The bytes that a block's signer signs."""
    return block_pb2.BlockHeader(
        block_num=header.block_num,
        previous_block_id=header.previous_block_id,
        signer_pubkey=header.signer_pubkey,
        batch_ids=header.batch_ids,
        consensus=header.consensus,
        state_root_hash=header.state_root_hash,
    ).SerializeToString(deterministic=True)


def encode_block(block_id: BlockId, header_bytes: bytes, batches: Sequence[bytes]) -> bytes:
    return raw_pb2.RawBlock(header=header_bytes, header_signature=block_id, batches=batches).SerializeToString()


def decode_block_header(header_bytes: bytes) -> BlockHeader:
    """The fields of a serialized BlockHeader. Raises NotDecodable."""
    try:
        header = block_pb2.BlockHeader.FromString(header_bytes)
    except DecodeError:
        raise NotDecodable("the header is no BlockHeader") from None
    return BlockHeader(
        block_num=header.block_num,
        previous_block_id=BlockId(header.previous_block_id),
        signer_pubkey=PublicKey(header.signer_pubkey),
        batch_ids=tuple(map(BatchId, header.batch_ids)),
        consensus=header.consensus,
        state_root_hash=StateRoot(header.state_root_hash),
    )


def is_sealed(block_id: BlockId, header_bytes: bytes) -> bool:
    """Whether ``block_id`` is the signature of the header's own signer over the header.

    Raises NotDecodable if the bytes are no header, InvalidKey if the signer is no key.
    """
    return signing.verify(decode_block_header(header_bytes).signer_pubkey, header_bytes, block_id)
