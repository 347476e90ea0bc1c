"""A record with one wrong bit, made right: which bit it is follows from the checksum. No LMDB here."""

from typing import Final, NamedTuple

from dovetail.validator.store import records
from dovetail.validator.store.records import SEAL_BYTES, checksum_of

_POLYNOMIAL: Final = 0xEDB88320
"""Of CRC-32, its lowest power first."""

MENDED_BYTES_MAX: Final = 1024 * 1024
"""Of a record: the search takes a second for so many."""


class Mended(NamedTuple):
    """The key and the content as they were written. ``bit``: what was wrong, in words."""

    name: bytes
    content: bytes
    bit: str


def mended(table: str, name: bytes, record: bytes) -> Mended | None:
    """What was written, where one bit at most of key, content or checksum is wrong; None where more are.

    Any two records that differ in one bit have different checksums, up to 512 MiB. So one wrong bit is always found. Of
    records with many wrong bits, one in 2**32 / (8 * length) is taken for one with a single wrong bit: who mends
    compares what comes out with the ids, signatures and roots that cover it.
    """
    if len(record) < SEAL_BYTES or len(record) > MENDED_BYTES_MAX:
        return None
    content = record[:-SEAL_BYTES]
    difference = checksum_of(table, name, content) ^ int.from_bytes(record[-SEAL_BYTES:], "big")
    if difference == 0:
        return Mended(name, content, "")
    if difference.bit_count() == 1:
        return Mended(name, content, "a bit of its checksum")
    # What a wrong bit adds to the checksum, beginning with the last bit of the content: each one before is one step on.
    both = bytearray(name + content)
    effect = _POLYNOMIAL
    for from_end in range(8 * len(both)):
        if effect == difference:
            at = len(both) - 1 - from_end // 8
            both[at] ^= 0x80 >> from_end % 8
            where = f"byte {at - len(name)}" if at >= len(name) else "its key"
            found = Mended(bytes(both[: len(name)]), bytes(both[len(name) :]), f"a bit of {where}")
            assert records.opened(table, found.name, found.content + record[-SEAL_BYTES:]) is not None
            return found
        effect = effect >> 1 ^ (_POLYNOMIAL if effect & 1 else 0)
    return None
