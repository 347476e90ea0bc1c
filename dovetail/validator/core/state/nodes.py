"""Trie nodes as bytes: encoding, fields, hashes. No reading, no walking.

A node names its place absolutely (a leaf its address, a branch its prefix), so that splitting or merging an edge
rewrites no node below it. What follows the hashed part is local to one store: the numbers under which the children are
kept, and how many leaves each holds.

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


Places = tuple[int, int, int]
"""Of a branch: the bitmap of its children, where their hashes begin, and where the hashed part ends."""


class Ref(NamedTuple):
    """A subtree: the hash of its top node, the number that node is stored under, and how many leaves it holds."""

    hash: bytes
    number: int
    leaves: int


class WrongNode(ValueError):
    """A stored node that no update of the trie makes: a disk or somebody has changed it."""


EMPTY: Final = Ref(hashlib.sha256(b"").digest(), 0, 0)
"""The state without leaves; no node is stored under number 0."""


def encode_leaf(address: str, value: bytes) -> bytes:
    return b"\x00" + bytes.fromhex(address) + value


def leaf_address(node: bytes) -> str:
    return node[1:36].hex()


def leaf_value(node: bytes) -> bytes:
    return node[36:]


def encode_branch(prefix: str, children: dict[str, Ref]) -> tuple[bytes, bytes]:
    """A branch over at least two children, by next hex character: its stored bytes and its hash."""
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
    bitmap, hash_at, local_at = places(node)
    children = {}
    for nibble, bit in _BITS.items():
        if bitmap & bit:
            number, leaves = _LOCAL.unpack_from(node, local_at)
            children[nibble] = Ref(node[hash_at : hash_at + HASH_BYTES], number, leaves)
            hash_at += HASH_BYTES
            local_at += _LOCAL.size
    return children


def children_below(node: bytes, number: int) -> dict[str, Ref]:
    """The same for the branch that is stored under ``number``, on the way down. Raises WrongNode."""
    children = branch_children(node)
    for child in children.values():
        check_below(number, child.number)
    return children


def check_below(number: int, child: int) -> None:
    """A child is stored before its parent, so that every way down has an end. Raises WrongNode."""
    if child >= number:
        raise WrongNode(f"node {number} names node {child} as its child, which was not stored before it")


def branch_child(node: bytes, at: Places, nibble: str) -> Ref | None:
    """One child of a branch, whose ``places`` are ``at``; None where there is none. Reads no other child."""
    bitmap, hashes_at, hashed_end = at
    bit = _BITS[nibble]
    if not bitmap & bit:
        return None
    position = (bitmap & (bit - 1)).bit_count()
    number, leaves = _LOCAL.unpack_from(node, hashed_end + _LOCAL.size * position)
    hash_at = hashes_at + HASH_BYTES * position
    return Ref(node[hash_at : hash_at + HASH_BYTES], number, leaves)


def child_number(node: bytes, address: str) -> int:
    """The number of the child on the way to ``address``; 0 where there is none, or the address ends elsewhere.

    The branch's prefix is not compared: the leaf at the end of the way names its whole address. Every read of a leaf
    passes here several times.
    """
    length = node[1]
    bitmap = node[2 + length] << 8 | node[3 + length]
    bit = _BITS[address[length]]
    if not bitmap & bit:
        return 0
    local_at = 4 + length + HASH_BYTES * bitmap.bit_count() + _LOCAL.size * (bitmap & (bit - 1)).bit_count()
    return int.from_bytes(node[local_at : local_at + _NUMBER_BYTES], "big")


def with_children(node: bytes, at: Places, changed: Iterable[tuple[str, Ref]]) -> tuple[bytes, bytes]:
    """The branch, whose ``places`` are ``at``, with other children in standing ones: its stored bytes and its hash."""
    bitmap, hashes_at, hashed_end = at
    spliced = bytearray(node)
    for nibble, (child_hash, number, leaves) in changed:
        position = (bitmap & (_BITS[nibble] - 1)).bit_count()
        hash_at = hashes_at + HASH_BYTES * position
        spliced[hash_at : hash_at + HASH_BYTES] = child_hash
        _LOCAL.pack_into(spliced, hashed_end + _LOCAL.size * position, number, leaves)
    return bytes(spliced), hashlib.sha256(spliced[:hashed_end]).digest()


def node_hash(node: bytes) -> bytes:
    """The hash that a parent, or the root, must name for these bytes."""
    if node[0] == LEAF:
        return hashlib.sha256(node).digest()
    return hashlib.sha256(node[: places(node)[2]]).digest()


def places(node: bytes) -> Places:
    """Where the parts of a branch are: for who takes several of its children one by one."""
    length = node[1]
    bitmap = node[2 + length] << 8 | node[3 + length]
    return bitmap, 4 + length, 4 + length + HASH_BYTES * bitmap.bit_count()
