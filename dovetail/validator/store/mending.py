"""Corrects a record with one wrong bit, which the checksum identifies. No LMDB here."""

from typing import Final, NamedTuple

from dovetail.validator.store import records
from dovetail.validator.store.records import SEAL_BYTES, checksum_of

_POLYNOMIAL: Final = 0xEDB88320
"""CRC-32, reflected."""

MENDED_BYTES_MAX: Final = 1024 * 1024
"""The largest record that is corrected; the search takes a second for it."""


class Mended(NamedTuple):
    """The key and the content as they were written. ``bit``: which bit was wrong, in words; empty if none was."""

    name: bytes
    content: bytes
    bit: str


def mended(table: str, name: bytes, record: bytes) -> Mended | None:
    """The record as written, if at most one bit of key, content or checksum is wrong; None otherwise.

    In a record of up to 512 MiB, each single wrong bit changes the checksum differently, so it is always found. Of
    records with many wrong bits, one in 2**32 / (8 * length) looks like one with a single wrong bit. Callers therefore
    check the result against the ids, signatures and roots that cover it.
    """
    if len(record) < SEAL_BYTES or len(record) > MENDED_BYTES_MAX:
        return None
    content = record[:-SEAL_BYTES]
    difference = checksum_of(table, name, content) ^ int.from_bytes(record[-SEAL_BYTES:], "big")
    if difference == 0:
        return Mended(name, content, "")
    if difference.bit_count() == 1:
        return Mended(name, content, "a bit of its checksum")
    # ``effect`` is the change of the checksum by one wrong bit. The loop goes backwards from the last bit, with one
    # more CRC step for each bit.
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
