"""Migrations: the injected transactions by which a version changes the state that it takes over, as all know them.

The same on every node, because they say nothing of the node: the key that signs them is no secret, so that their
signatures prove nothing. What keeps clients from making them is the validator's door (``ledger.batch``), what keeps
them to their place ``validator.journal``. Signing is not done here: who only processes transactions has no curve
library.
"""

from collections.abc import Sequence
from typing import Final

from ledger.addresses import ADDRESS_CHARACTERS

PRIVATE_KEY: Final = "d9318172ce9a1971202a4f0749e67402f3dcc959559e9367af077f9b317850dd"
"""The SHA-256 of the ASCII text ``dovetail migration``: anybody may know it."""

PUBLIC_KEY: Final = "024f13e9e979c6bf0274ae9c281143df2b6b394c7a8582261bcb72961c869a8c25"
"""Whoever sees it as ``signer_pubkey`` has a migration before him."""

PAYLOAD_ENCODING: Final = "application/x-dovetail-migration"
"""The ``payload_encoding`` of a migration, whose payload is empty."""

LEAVES_MAX: Final = 2_000
"""Most leaves that are migrated in one transaction; where there are more, there are SLICES transactions."""

SLICES: Final = 256
"""One for each two characters that may follow a prefix."""


def slices(prefixes: Sequence[str], leaves: int) -> list[tuple[str, ...]]:
    """What each transaction of a migration reads and writes, in their order: every address under ``prefixes`` in one.

    One slice where there are at most LEAVES_MAX ``leaves`` under all of ``prefixes`` together, else SLICES. A prefix
    that another covers adds nothing; one that is a whole address is in the first slice.
    """
    apart = [prefix for prefix in sorted(set(prefixes)) if not prefix.startswith(_all_but(prefixes, prefix))]
    if leaves <= LEAVES_MAX:
        return [tuple(apart)]
    whole = [prefix for prefix in apart if len(prefix) == ADDRESS_CHARACTERS]
    parts = [prefix for prefix in apart if len(prefix) < ADDRESS_CHARACTERS]
    cut = [tuple(f"{prefix}{number:02x}" for prefix in parts) for number in range(SLICES)]
    cut[0] = tuple(sorted((*cut[0], *whole)))
    return [prefixes for prefixes in cut if prefixes]


def nonce(number: int, slices: int) -> str:
    """What tells the transactions of one migration apart; ``number``: of the slice, from 0."""
    return f"migration {number + 1}/{slices}"


def _all_but(prefixes: Sequence[str], one: str) -> tuple[str, ...]:
    return tuple(prefix for prefix in prefixes if prefix != one)
