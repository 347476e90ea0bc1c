"""The root of a state, computed from all of its leaves: a second implementation of the hash rules of
``dovetail.validator.core.state``, without updates and stored nodes. This module must not import the project's packages.
"""

import hashlib
from collections.abc import Mapping

NIBBLES = "0123456789abcdef"


def root_hash(leaves: Mapping[str, bytes]) -> bytes:
    """The root over ``leaves`` (address of 70 hex characters to value): 32 bytes."""
    return _subtree(sorted(leaves.items())) if leaves else hashlib.sha256(b"").digest()


def _subtree(leaves: list[tuple[str, bytes]]) -> bytes:
    if len(leaves) == 1:
        address, value = leaves[0]
        return hashlib.sha256(b"\x00" + bytes.fromhex(address) + value).digest()
    depth = 0
    while leaves[0][0][depth] == leaves[-1][0][depth]:
        depth += 1
    prefix = leaves[0][0][:depth]
    bitmap = 0
    hashes = b""
    for position, nibble in enumerate(NIBBLES):
        group = [leaf for leaf in leaves if leaf[0][depth] == nibble]
        if group:
            bitmap += 1 << position
            hashes += _subtree(group)
    return hashlib.sha256(b"\x01" + bytes([depth]) + prefix.encode() + bitmap.to_bytes(2) + hashes).digest()
