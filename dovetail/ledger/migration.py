"""Migrations: the injected transactions by which a version changes the state that it takes over, as all know them.

The same on every node, because they say nothing of the node: the key that signs them is no secret, so that their
signatures prove nothing. What keeps clients from making them is the validator's door (``dovetail.ledger.batch``),
what keeps
them to their place ``dovetail.validator.core.journal``. Signing is not done here: who only processes transactions has
no curve
library.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from dovetail.ledger.addresses import ADDRESS_CHARACTERS

PRIVATE_KEY: Final = "d9318172ce9a1971202a4f0749e67402f3dcc959559e9367af077f9b317850dd"
"""The SHA-256 of the ASCII text ``dovetail migration``: anybody may know it."""

PUBLIC_KEY: Final = "024f13e9e979c6bf0274ae9c281143df2b6b394c7a8582261bcb72961c869a8c25"
"""Whoever sees it as ``signer_pubkey`` has a migration before him."""

PAYLOAD_ENCODING: Final = "application/x-dovetail-migration"
"""The ``payload_encoding`` of a migration, whose payload is empty."""

LEAVES_MAX: Final = 2_000
BYTES_MAX: Final = 1024 * 1024
"""Most leaves, and most bytes in them, that one transaction migrates; beyond either, there are SLICES of them."""

SLICES: Final = 256
"""One for each two characters that may follow a prefix."""


def is_sliced(values: Iterable[bytes]) -> bool:
    """Whether state with these values goes in SLICES; looks at no more of them than it takes to tell."""
    data_bytes = 0
    for leaves, value in enumerate(values, 1):
        data_bytes += len(value)
        if leaves > LEAVES_MAX or data_bytes > BYTES_MAX:
            return True
    return False


def slices(prefixes: Iterable[str], *, sliced: bool) -> list[tuple[str, ...]]:
    """What each transaction of a migration reads and writes, in their order: every address under ``prefixes`` in one.

    No prefix may cover another. One that is a whole address is in the first slice.
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
    """What tells the transactions of migrations apart: which of how many, from 0, and of which plan."""
    plan = hashlib.sha256(" ".join(sorted(set(prefixes))).encode()).hexdigest()[:16]
    return f"migration {number + 1}/{count} from block {from_block} of {plan}"
