"""On-chain settings: addresses, encoding, and the names of those that the validator reads.

The settings family (``families.settings``) decides who may change a setting.
"""

import hashlib
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from dovetail.ledger.addresses import Address
from dovetail.ledger.errors import NotDecodable
from protos import setting_pb2

FAMILY_NAME: Final = "sawtooth_settings"
FAMILY_VERSION: Final = "1.0"
NAMESPACE: Final = "000000"

AUTHORIZED_KEYS: Final = "sawtooth.settings.vote.authorized_keys"
APPROVAL_THRESHOLD: Final = "sawtooth.settings.vote.approval_threshold"
PROPOSALS: Final = "sawtooth.settings.vote.proposals"
TRANSACTION_FAMILIES: Final = "sawtooth.validator.transaction_families"

_ADDRESS_PARTS: Final = 4


def setting_address(key: str) -> Address:
    """The address of a setting: the namespace, then 16 hex characters for each of four parts of its key (WIRE.md)."""
    parts = key.split(".", _ADDRESS_PARTS - 1)
    parts += [""] * (_ADDRESS_PARTS - len(parts))
    return Address(NAMESPACE + "".join(hashlib.sha256(part.encode()).hexdigest()[:16] for part in parts))


def decode_setting(data: bytes | None) -> dict[str, str]:
    """The key-value entries of a stored Setting; empty for None (no leaf). Raises NotDecodable."""
    try:
        setting = setting_pb2.Setting.FromString(data or b"")
    except DecodeError:
        raise NotDecodable("the leaf is no Setting") from None
    return {entry.key: entry.value for entry in setting.entries}


def split_keys(value: str) -> tuple[str, ...]:
    """The keys in a value of AUTHORIZED_KEYS, which separates them by commas."""
    return tuple(key for part in value.split(",") if (key := part.strip()))


def value_digest(value: str | None) -> str:
    """What a proposal names the setting's value by that it was made against: 64 hex characters, or ``unset``."""
    return "unset" if value is None else hashlib.sha256(value.encode()).hexdigest()


def encode_setting(entries: dict[str, str]) -> bytes:
    """A serialized Setting, entries in ascending key order."""
    message = setting_pb2.Setting()
    for key in sorted(entries):
        message.entries.add(key=key, value=entries[key])
    return message.SerializeToString()


class FamilyVersion(NamedTuple):
    """The exact name and version of a family."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


SETTINGS: Final = FamilyVersion(FAMILY_NAME, FAMILY_VERSION)
"""The settings family."""
