"""Blocks: sealing, decoding, and headers on the wire."""

import pytest

from dovetail.ledger.block import BlockHeader, decode_block_header, encode_block, is_sealed, seal
from dovetail.ledger.errors import InvalidKey, NotDecodable
from dovetail.ledger.ids import NULL_BLOCK_ID, BatchId, BlockId, StateRoot
from dovetail.ledger.signing import Signer
from protos import block_pb2
from tests.system.independent import client, secp256k1
from tests.system.independent import protobuf_wire as wire

SIGNER = Signer(secp256k1.private_key_from("node"))
SAMPLE = client.make_sample("chain")
HEADER = BlockHeader(
    block_num=3,
    previous_block_id=BlockId("ab" * 64),
    signer_pubkey=SIGNER.public_key,
    batch_ids=(BatchId(SAMPLE.batch.id),),
    consensus=b"solo",
    state_root_hash=StateRoot("cd" * 32),
)


def test_a_sealed_block_is_signed_by_its_signer() -> None:
    raw = SAMPLE.batch.to_bytes()
    sealed = seal(SIGNER, HEADER, [raw])
    assert secp256k1.verify(SIGNER.public_key, sealed.header_bytes, sealed.id)
    assert is_sealed(sealed.id, sealed.header_bytes)
    assert decode_block_header(sealed.header_bytes) == HEADER
    message = block_pb2.Block.FromString(encode_block(sealed.id, sealed.header_bytes, sealed.batches))
    assert (message.header, message.header_signature) == (sealed.header_bytes, sealed.id)
    assert [batch.header_signature for batch in message.batches] == [SAMPLE.batch.id]


def test_what_is_not_sealed() -> None:
    sealed = seal(SIGNER, HEADER, [])
    other = seal(Signer(secp256k1.private_key_from("another node")), HEADER, [])
    assert not is_sealed(other.id, sealed.header_bytes)
    assert not is_sealed(sealed.id, seal(SIGNER, HEADER._replace(block_num=4), []).header_bytes)
    assert not is_sealed(BlockId(secp256k1.to_high_s(sealed.id)), sealed.header_bytes)
    assert not is_sealed(NULL_BLOCK_ID, sealed.header_bytes)
    assert not is_sealed(BlockId("zz"), sealed.header_bytes)
    with pytest.raises(InvalidKey):
        is_sealed(sealed.id, b"")
    with pytest.raises(NotDecodable, match="no BlockHeader"):
        decode_block_header(b"\x0a")


def test_the_header_has_the_wires_field_numbers() -> None:
    assert wire.decode(seal(SIGNER, HEADER, []).header_bytes) == {
        1: [3],
        2: [HEADER.previous_block_id.encode()],
        3: [SIGNER.public_key.encode()],
        4: [SAMPLE.batch.id.encode()],
        5: [b"solo"],
        6: [HEADER.state_root_hash.encode()],
    }
