"""The encoding of trie nodes: fields and hashes. No reading, no walking.

A leaf holds its whole address and a branch its whole prefix, so that splitting or merging an edge rewrites no node
below. The part after the hashed part is local to a store: the children's numbers and leaf counts.

    leaf    00 | address, 35 bytes | value
    branch  01 | prefix length n | prefix, n hex characters | child bitmap, 16 bits | child hashes, 32 bytes each
            || child numbers (64 bits) and leaf counts (32 bits)          <- not hashed
"""

import hashlib
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

LEAF: Final = 0
BRANCH: Final = 1

HASH_BYTES: Final = 32
_LOCAL: Final = struct.Struct(">QI")
_NUMBER_BYTES: Final = 8
_BITS: Final = {nibble: 1 << value for value, nibble in enumerate("0123456789abcdef")}


Layout = tuple[int, int, int]
"""The bitmap of a branch's children, and the offsets of their hashes and of the end of the hashed part."""


class Ref(NamedTuple):
    """A subtree: the hash and the number of its top node, and its count of leaves."""

    hash: bytes
    number: int
    leaves: int


class WrongNode(ValueError):
    """A stored node that no update of the trie could have written: it was changed since."""


EMPTY: Final = Ref(hashlib.sha256(b"").digest(), 0, 0)
"""The empty state. No node has the number 0."""


def encode_leaf(address: str, value: bytes) -> bytes:
    return b"\x00" + bytes.fromhex(address) + value


def leaf_address(node: bytes) -> str:
    return node[1:36].hex()


def leaf_value(node: bytes) -> bytes:
    return node[36:]


def encode_branch(prefix: str, children: dict[str, Ref]) -> tuple[bytes, bytes]:
    """The stored bytes and the hash of a branch. ``children``: at least two, by their next hex character."""
    bitmap = 0
    hashes = []
    local = []
    for nibble in sorted(children):
        child = children[nibble]
        bitmap |= _BITS[nibble]
        hashes.append(child.hash)
        local.append(_LOCAL.pack(child.number, child.leaves))
    hashed = b"".join((b"\x01", bytes((len(prefix),)), prefix.encode(), bitmap.to_bytes(2, "big"), *hashes))
    return b"".join((hashed, *local)), hashlib.sha256(hashed).digest()


def branch_prefix(node: bytes) -> str:
    return node[2 : 2 + node[1]].decode()


def branch_children(node: bytes) -> dict[str, Ref]:
    """All children of a branch by next hex character, in ascending order."""
    bitmap, hash_at, local_at = layout(node)
    children = {}
    for nibble, bit in _BITS.items():
        if bitmap & bit:
            number, leaves = _LOCAL.unpack_from(node, local_at)
            children[nibble] = Ref(node[hash_at : hash_at + HASH_BYTES], number, leaves)
            hash_at += HASH_BYTES
            local_at += _LOCAL.size
    return children


def children_below(node: bytes, number: int) -> dict[str, Ref]:
    """``branch_children`` of the branch with this number, each checked to have a lower number. Raises WrongNode."""
    children = branch_children(node)
    for child in children.values():
        check_below(number, child.number)
    return children


def check_below(number: int, child: int) -> None:
    """Raises WrongNode unless the child has a lower number than its parent. So every path down the trie ends."""
    if child >= number:
        raise WrongNode(f"node {number} names node {child} as its child, which was not stored before it")


def branch_child(node: bytes, parts: Layout, nibble: str) -> Ref | None:
    """One child of a branch with the layout ``parts``, or None. Decodes no other child."""
    bitmap, hashes_at, hashed_end = parts
    bit = _BITS[nibble]
    if not bitmap & bit:
        return None
    position = (bitmap & (bit - 1)).bit_count()
    number, leaves = _LOCAL.unpack_from(node, hashed_end + _LOCAL.size * position)
    hash_at = hashes_at + HASH_BYTES * position
    return Ref(node[hash_at : hash_at + HASH_BYTES], number, leaves)


def child_number(node: bytes, address: str) -> int:
    """The number of the child on the path to ``address``; 0 if there is none.

    Does not compare the branch's prefix, because the leaf holds its whole address. Speed matters: each read of a leaf
    calls this several times.
    """
    length = node[1]
    bitmap = node[2 + length] << 8 | node[3 + length]
    bit = _BITS[address[length]]
    if not bitmap & bit:
        return 0
    local_at = 4 + length + HASH_BYTES * bitmap.bit_count() + _LOCAL.size * (bitmap & (bit - 1)).bit_count()
    return int.from_bytes(node[local_at : local_at + _NUMBER_BYTES], "big")


def with_children(node: bytes, parts: Layout, changed: Iterable[tuple[str, Ref]]) -> tuple[bytes, bytes]:
    """Stored bytes and hash of a branch with the layout ``parts`` after some existing children have changed."""
    bitmap, hashes_at, hashed_end = parts
    spliced = bytearray(node)
    for nibble, (child_hash, number, leaves) in changed:
        position = (bitmap & (_BITS[nibble] - 1)).bit_count()
        hash_at = hashes_at + HASH_BYTES * position
        spliced[hash_at : hash_at + HASH_BYTES] = child_hash
        _LOCAL.pack_into(spliced, hashed_end + _LOCAL.size * position, number, leaves)
    return bytes(spliced), hashlib.sha256(spliced[:hashed_end]).digest()


def node_hash(node: bytes) -> bytes:
    """The hash of a stored node."""
    if node[0] == LEAF:
        return hashlib.sha256(node).digest()
    return hashlib.sha256(node[: layout(node)[2]]).digest()


def layout(node: bytes) -> Layout:
    """The layout of a branch, for callers that read or change several children one by one."""
    length = node[1]
    bitmap = node[2 + length] << 8 | node[3 + length]
    return bitmap, 4 + length, 4 + length + HASH_BYTES * bitmap.bit_count()
