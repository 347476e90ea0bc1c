"""Makes the headers of blocks; no other module does. Runs nothing and writes nothing."""

from collections.abc import Sequence
from typing import NamedTuple

from dovetail.ledger import block, signing
from dovetail.ledger.block import BlockHeader, Consensus, Seal, SealedBlock
from dovetail.ledger.errors import InvalidKey, NotDecodable
from dovetail.ledger.ids import BlockId, PublicKey, StateRoot, is_id
from dovetail.ledger.signing import Signer
from dovetail.validator.core.journal.model import CommittedBatch
from dovetail.validator.core.state.nodes import Ref


class Parent(NamedTuple):
    """The block that another one extends; number -1 before block 0. ``next_node``: the store's first free node number.

    ``time_ms``: when the parent was proposed.
    """

    num: int
    id: BlockId
    root: Ref
    next_node: int
    time_ms: int


class WrongSeal(Exception):
    """The result of a proposal differs from its proposer's seal; the message names both values."""


class OwnSeal(NamedTuple):
    """Seals this node's own proposal. ``block`` takes the applied batches in order, and the state after them."""

    signer: Signer
    consensus: Consensus

    def block(self, parent: Parent, applied: Sequence[CommittedBatch], root: Ref) -> SealedBlock | None:
        """A block whose time is never before its parent's, whatever the clock says."""
        if not applied:
            return None
        consensus = self.consensus._replace(time_ms=max(self.consensus.time_ms, parent.time_ms))
        header = _header(parent, applied, root, self.signer.public_key, block.encode_consensus(consensus))
        return block.seal(self.signer, header, [batch.raw for batch in applied])


class GivenSeal(NamedTuple):
    """Checks another node's proposal against its seal. ``engine`` and ``height``: those that the seal must name."""

    seal: Seal | None
    engine: str
    height: int

    def block(self, parent: Parent, applied: Sequence[CommittedBatch], root: Ref) -> SealedBlock | None:
        """The block as its proposer made it. Raises WrongSeal."""
        seal = self.seal
        num = parent.num + 1
        if seal is None:
            if applied:
                raise WrongSeal(f"block {num}: {len(applied)} batches apply here, its proposer sealed no block")
            return None
        if not applied:
            raise WrongSeal(f"block {num}: no batch applies here, its proposer sealed a block")
        computed = StateRoot(root.hash.hex())
        if computed != seal.state_root_hash:
            raise WrongSeal(
                f"block {num}: the state root here is {computed}, its proposer sealed {seal.state_root_hash}"
            )
        try:
            consensus = block.decode_consensus(seal.consensus)
        except NotDecodable as error:
            raise WrongSeal(f"block {num}: {error}") from None
        if (consensus.engine, consensus.height) != (self.engine, self.height):
            raise WrongSeal(
                f"block {num}: it is sealed for height {consensus.height} of {consensus.engine!r}, not for height"
                f" {self.height} of {self.engine!r}"
            )
        if consensus.time_ms < parent.time_ms:
            raise WrongSeal(f"block {num}: its time {consensus.time_ms} ms is before its parent's {parent.time_ms} ms")
        header = _header(parent, applied, root, seal.signer_pubkey, seal.consensus)
        header_bytes = block.encode_block_header(header)
        try:
            # A signature in upper case would be a second id of the same block.
            signed = is_id(seal.signature) and signing.verify(seal.signer_pubkey, header_bytes, seal.signature)
        except InvalidKey as error:
            raise WrongSeal(f"block {num}: {error}") from None
        if not signed:
            raise WrongSeal(
                f"block {num}: {seal.signature} is no signature of {seal.signer_pubkey} over the header made here, of"
                f" {len(applied)} batches on block {parent.id}"
            )
        return SealedBlock(seal.signature, header, header_bytes, tuple(batch.raw for batch in applied))


def seal_of(sealed: SealedBlock) -> Seal:
    """The seal that a proposal carries for a sealed block."""
    header = sealed.header
    return Seal(header.signer_pubkey, sealed.id, header.consensus, header.state_root_hash)


def _header(
    parent: Parent, applied: Sequence[CommittedBatch], root: Ref, signer_pubkey: PublicKey, consensus: bytes
) -> BlockHeader:
    return BlockHeader(
        block_num=parent.num + 1,
        previous_block_id=parent.id,
        signer_pubkey=signer_pubkey,
        batch_ids=tuple(batch.id for batch in applied),
        consensus=consensus,
        state_root_hash=StateRoot(root.hash.hex()),
    )
