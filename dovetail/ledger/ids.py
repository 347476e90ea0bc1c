"""The types of ids and keys, and the form of their text. No hashing, no signing.

The types are distinct, so that the type checker finds a batch id in the place of a transaction id.
"""

import re
from typing import Final, NewType

PublicKey = NewType("PublicKey", str)
"""A compressed secp256k1 public key: 66 lower-case hex characters (WIRE.md, Transport)."""

TransactionId = NewType("TransactionId", str)
BatchId = NewType("BatchId", str)
BlockId = NewType("BlockId", str)
"""Header signatures: 128 lower-case hex characters."""

StateRoot = NewType("StateRoot", str)
"""The Merkle root of a state: 64 lower-case hex characters."""

NULL_BLOCK_ID: Final = BlockId("0" * 16)
"""The previous block id of the genesis block."""

ID_CHARACTERS: Final = 128
_is_id = re.compile(rf"[0-9a-f]{{{ID_CHARACTERS}}}").fullmatch
_is_public_key = re.compile(r"0[23][0-9a-f]{64}").fullmatch


def is_id(text: str) -> bool:
    """Whether ``text`` can be a transaction, batch or block id."""
    return _is_id(text) is not None


def is_public_key(text: str) -> bool:
    """Whether ``text`` has the form of a compressed public key; it may still name no point of the curve."""
    return _is_public_key(text) is not None
