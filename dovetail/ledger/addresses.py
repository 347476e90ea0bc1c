"""State addresses, prefixes and namespaces, and lists of addresses that limit access.

``AccessList`` implements the rule "reads within inputs, writes within outputs and namespaces". The validator enforces
the rule, and the processor SDK checks it too, to fail early.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Final, NewType

Address = NewType("Address", str)
"""70 lower-case hex characters, of which the first 6 are the namespace (WIRE.md, Transport)."""

ADDRESS_CHARACTERS: Final = 70
"""Length of an address."""

NAMESPACE_CHARACTERS: Final = 6
"""Length of a namespace, with which an address begins."""

_is_address = re.compile(r"[0-9a-f]{70}").fullmatch
_is_prefix = re.compile(r"(?:[0-9a-f]{2}){0,35}").fullmatch


def is_address(text: str) -> bool:
    """Whether ``text`` is a full state address."""
    return _is_address(text) is not None


def is_prefix(text: str) -> bool:
    """Whether ``text`` is an address or a prefix of one: an even number of lower-case hex characters, 0 to 70."""
    return _is_prefix(text) is not None


def namespace_of(family_name: str) -> str:
    """The conventional namespace of a family: the first 6 hex characters of the SHA-512 of its name."""
    return hashlib.sha512(family_name.encode()).hexdigest()[:NAMESPACE_CHARACTERS]


class AccessList:
    """The addresses that a list of full addresses and prefixes covers (seed specification, rule 5 on transactions)."""

    __slots__ = ("_prefixes", "declared", "entries")

    def __init__(self, declared: Iterable[str]) -> None:
        self.declared = tuple(declared)
        self.entries = frozenset(self.declared)
        """The declared texts as a set, to find fully declared addresses fast."""
        # Computed on demand: most transactions access only addresses that they declare in full.
        self._prefixes: tuple[str, ...] | None = None

    def permits(self, address: str) -> bool:
        """Whether ``address`` (70 characters) is covered."""
        if address in self.entries:
            return True
        if self._prefixes is None:
            self._prefixes = tuple([entry for entry in self.declared if len(entry) < ADDRESS_CHARACTERS])
        return address.startswith(self._prefixes)

    def permits_prefix(self, prefix: str) -> bool:
        """Whether a single entry covers every address that begins with ``prefix``."""
        return prefix.startswith(self.declared)
