"""The addresses of names. No keys, no encodings."""

import hashlib
from typing import Final

from dovetail.ledger.addresses import Address, namespace_of
from families.intkey.payload import FAMILY_NAME

NAMESPACE: Final = namespace_of(FAMILY_NAME)


def intkey_address(name: str) -> Address:
    """The address of ``name``: the namespace, then the last 64 hex characters of its SHA-512 (WIRE.md, Families)."""
    return Address(NAMESPACE + hashlib.sha512(name.encode()).hexdigest()[-64:])
