"""The families of the simulated world: the payloads of their transactions, and what these do.

A payload is a small program whose written values depend on everything read before, so that a different order gives
a different state. Some values have no bytes. ``steps`` yields requests and receives the answers. A processor gets them
over the wire, the model from its dictionary.
"""

import hashlib
from collections.abc import Generator
from typing import Any, Final, NamedTuple

from dovetail.ledger import settings
from dovetail.ledger.addresses import Address
from dovetail.ledger.permitted import PERMITTED_AT
from dovetail.ledger.settings import TRANSACTION_FAMILIES, FamilyVersion, encode_setting

HOT = FamilyVersion("hot", "1.0")
HOT_NEXT = FamilyVersion("hot", "2.0")
LIST = FamilyVersion("list", "1.0")
FLAKY = FamilyVersion("flaky", "1.0")
SETTINGS = FamilyVersion(settings.FAMILY_NAME, settings.FAMILY_VERSION)
MIGRATED: Final = "aaaaaa"
"""The prefix that HOT_NEXT migrates."""

NAMESPACES: Final = {
    HOT: (MIGRATED,),
    HOT_NEXT: (MIGRATED,),
    LIST: ("bbbbbb",),
    FLAKY: (MIGRATED, "bbbbbb"),
    SETTINGS: (settings.NAMESPACE,),
}
ADDRESSES: Final = 64
"""Half of the addresses are in each namespace, four under each prefix of eight characters."""

Found = list[tuple[str, bytes]]


class Ask(NamedTuple):
    """A request of a program: get, list, set or delete, at an address or prefix."""

    kind: str
    place: str
    data: bytes = b""


class Invalid(Exception):
    """The transaction is invalid."""


Steps = Generator[Ask, Any, bytes]


def address(number: int) -> str:
    namespace = (MIGRATED, "bbbbbb")[number // (ADDRESSES // 2) % 2]
    return f"{namespace}{number // 4 % 8:02x}{number % 4:02x}".ljust(70, "0")


def may_fail(payload: str) -> bool:
    """Whether honest processors may find a program invalid."""
    return any(operation[0] in "few" for operation in payload.split())


def steps(family: FamilyVersion, payload: bytes, migrated: tuple[str, ...]) -> Steps:
    """Apply a transaction. Returns a digest of everything read. ``migrated``: the prefixes of a migration, else empty.

    Operations: g(et), s(et), d(elete), l(ist under the first eight characters), f(ail), e: fail if the digest is even,
    w(rite an undeclared address).
    """
    seen = hashlib.sha256(repr(family).encode() + payload)
    if migrated:
        for prefix in migrated:
            found: Found = yield Ask("list", prefix)
            for name, data in found:
                seen.update(data)
                yield Ask("set", name, seen.digest()[:8])
        return seen.digest()
    if family == SETTINGS:
        yield Ask("get", PERMITTED_AT)
        yield Ask("set", PERMITTED_AT, encode_setting({TRANSACTION_FAMILIES: payload.decode()}))
        return seen.digest()
    for operation in payload.decode().split():
        kind, place = operation[0], address(int(operation[1:] or 0))
        if kind == "g":
            seen.update(repr((yield Ask("get", place))).encode())
        elif kind == "s":
            yield Ask("set", place, seen.digest()[:8] if seen.digest()[0] % 4 else b"")
        elif kind == "d":
            yield Ask("delete", place)
        elif kind == "l":
            listed: Found = yield Ask("list", place[:8])
            seen.update(repr(listed).encode())
        elif kind == "w":
            yield Ask("set", Address("c" * 70), b"wild")
        elif kind == "f" or (kind == "e" and seen.digest()[0] % 2 == 0):
            raise Invalid(f"failed after {seen.hexdigest()[:8]}")
    return seen.digest()
