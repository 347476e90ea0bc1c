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
from typing import Final, NamedTuple

LEAF: Final = 0
BRANCH: Final = 1

HASH_BYTES: Final = 32
_LOCAL: Final = struct.Struct(">QI")
_BITMAP: Final = struct.Struct(">H")
_NIBBLES: Final = "0123456789abcdef"


class Ref(NamedTuple):
    """A subtree: the hash of its top node, the number that node is stored under, and how many leaves it holds."""

    hash: bytes
    number: int
    leaves: int


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
        bitmap |= 1 << int(nibble, 16)
        hashes.append(child.hash)
        local.append(_LOCAL.pack(child.number, child.leaves))
    hashed = b"".join((b"\x01", bytes((len(prefix),)), prefix.encode(), _BITMAP.pack(bitmap), *hashes))
    return b"".join((hashed, *local)), hashlib.sha256(hashed).digest()


def branch_prefix(node: bytes) -> str:
    return node[2 : 2 + node[1]].decode()


def branch_children(node: bytes) -> dict[str, Ref]:
    """All children of a branch by next hex character, in ascending order."""
    start = 2 + node[1]
    bitmap = _BITMAP.unpack_from(node, start)[0]
    hash_at = start + 2
    local_at = hash_at + HASH_BYTES * bitmap.bit_count()
    children = {}
    for value, nibble in enumerate(_NIBBLES):
        if bitmap >> value & 1:
            number, leaves = _LOCAL.unpack_from(node, local_at)
            children[nibble] = Ref(node[hash_at : hash_at + HASH_BYTES], number, leaves)
            hash_at += HASH_BYTES
            local_at += _LOCAL.size
    return children


def branch_child(node: bytes, nibble: str) -> Ref | None:
    """One child of a branch; None where there is none. Reads no other child."""
    place = _place(node, nibble)
    if not place.held:
        return None
    number, leaves = _LOCAL.unpack_from(node, place.local_at)
    return Ref(node[place.hash_at : place.hash_at + HASH_BYTES], number, leaves)


def branch_child_number(node: bytes, nibble: str) -> int:
    """The number of one child of a branch; 0 where there is none. Every read of a leaf passes here several times."""
    start = 2 + node[1]
    bitmap: int = _BITMAP.unpack_from(node, start)[0]
    bit = 1 << int(nibble, 16)
    if not bitmap & bit:
        return 0
    local_at = start + 2 + HASH_BYTES * bitmap.bit_count() + _LOCAL.size * (bitmap & (bit - 1)).bit_count()
    number: int = _LOCAL.unpack_from(node, local_at)[0]
    return number


def with_child(node: bytes, nibble: str, child: Ref) -> tuple[bytes, bytes]:
    """The branch with another child in the place of a standing one: its stored bytes and its hash."""
    place = _place(node, nibble)
    hashed = node[: place.hash_at] + child.hash + node[place.hash_at + HASH_BYTES : place.hashed_end]
    local = _LOCAL.pack(child.number, child.leaves)
    rest = node[place.hashed_end : place.local_at] + local + node[place.local_at + _LOCAL.size :]
    return hashed + rest, hashlib.sha256(hashed).digest()


class _Place(NamedTuple):
    """Where a child stands, or would stand, in a branch."""

    held: int
    hash_at: int
    hashed_end: int
    local_at: int


def _place(node: bytes, nibble: str) -> _Place:
    start = 2 + node[1]
    bitmap = _BITMAP.unpack_from(node, start)[0]
    bit = 1 << int(nibble, 16)
    position = (bitmap & (bit - 1)).bit_count()
    hashed_end = start + 2 + HASH_BYTES * bitmap.bit_count()
    return _Place(bitmap & bit, start + 2 + HASH_BYTES * position, hashed_end, hashed_end + _LOCAL.size * position)


def node_hash(node: bytes) -> bytes:
    """The hash that a parent, or the root, must name for these bytes."""
    if node[0] == LEAF:
        return hashlib.sha256(node).digest()
    start = 2 + node[1]
    bitmap = _BITMAP.unpack_from(node, start)[0]
    return hashlib.sha256(node[: start + 2 + HASH_BYTES * bitmap.bit_count()]).digest()
