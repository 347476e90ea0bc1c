"""Migrations: injected transactions with which a new family version changes the state that it takes over.

Every node builds the same migrations, and signs them with a key that is no secret, so their signatures prove nothing.
``batch`` refuses migrations from clients, and ``dovetail.validator.core.journal`` checks that migrations are due. No
signing here: processors use this module and have no curve library.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from dovetail.ledger.addresses import ADDRESS_CHARACTERS

PRIVATE_KEY: Final = "d9318172ce9a1971202a4f0749e67402f3dcc959559e9367af077f9b317850dd"
"""The SHA-256 of the ASCII text ``dovetail migration``; no secret."""

PUBLIC_KEY: Final = "024f13e9e979c6bf0274ae9c281143df2b6b394c7a8582261bcb72961c869a8c25"
"""The ``signer_pubkey`` of every migration, and of no other transaction."""

PAYLOAD_ENCODING: Final = "application/x-dovetail-migration"
"""The ``payload_encoding`` of a migration, whose payload is empty."""

LEAVES_MAX: Final = 2_000
BYTES_MAX: Final = 1024 * 1024
"""The most leaves, and the most bytes in leaves, that one transaction migrates. A larger state is migrated in SLICES
transactions."""

SLICES: Final = 256
"""The number of transactions of a sliced migration: one for each two hex characters after a prefix."""


def is_sliced(values: Iterable[bytes]) -> bool:
    """Whether state with these values is migrated in SLICES transactions. Stops reading when the answer is certain."""
    data_bytes = 0
    for leaves, value in enumerate(values, 1):
        data_bytes += len(value)
        if leaves > LEAVES_MAX or data_bytes > BYTES_MAX:
            return True
    return False


def slices(prefixes: Iterable[str], *, sliced: bool) -> list[tuple[str, ...]]:
    """The prefixes that each transaction of a migration reads and writes, in order. They cover ``prefixes`` once.

    No prefix may cover another. Whole addresses are in the first slice.
    """
    apart = sorted(set(prefixes))
    if not sliced:
        return [tuple(apart)]
    whole = [prefix for prefix in apart if len(prefix) == ADDRESS_CHARACTERS]
    parts = [prefix for prefix in apart if len(prefix) < ADDRESS_CHARACTERS]
    cut = [tuple(f"{prefix}{number:02x}" for prefix in parts) for number in range(SLICES)]
    cut[0] = tuple(sorted((*cut[0], *whole)))
    return [covered for covered in cut if covered]


def nonce(number: int, count: int, from_block: int, prefixes: Iterable[str]) -> str:
    """The nonce of transaction ``number`` (from 0) of ``count``, which differs between plans."""
    plan = hashlib.sha256(" ".join(sorted(set(prefixes))).encode()).hexdigest()[:16]
    return f"migration {number + 1}/{count} from block {from_block} of {plan}"
