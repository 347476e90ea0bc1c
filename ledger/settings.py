"""On-chain settings as everybody reads them: addresses, stored form, and the settings that the validator obeys.

Who may change a setting is the settings family's business (``families.settings``).
"""

import hashlib
import json
import re
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from ledger.addresses import Address
from ledger.errors import NotDecodable
from protos import setting_pb2

FAMILY_NAME: Final = "sawtooth_settings"
FAMILY_VERSION: Final = "1.0"
NAMESPACE: Final = "000000"

AUTHORIZED_KEYS: Final = "sawtooth.settings.vote.authorized_keys"
APPROVAL_THRESHOLD: Final = "sawtooth.settings.vote.approval_threshold"
PROPOSALS: Final = "sawtooth.settings.vote.proposals"
TRANSACTION_FAMILIES: Final = "sawtooth.validator.transaction_families"

_ADDRESS_PARTS: Final = 4
_NESTING_MAX: Final = 16
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]").search


def setting_address(key: str) -> Address:
    """Where ``key`` is stored: the namespace, then 16 hex characters for each of four parts (WIRE.md)."""
    parts = key.split(".", _ADDRESS_PARTS - 1)
    parts += [""] * (_ADDRESS_PARTS - len(parts))
    return Address(NAMESPACE + "".join(hashlib.sha256(part.encode()).hexdigest()[:16] for part in parts))


def decode_setting(data: bytes | None) -> dict[str, str]:
    """The key-value entries of one stored Setting; None (no leaf) gives none. Raises NotDecodable."""
    try:
        setting = setting_pb2.Setting.FromString(data or b"")
    except DecodeError:
        raise NotDecodable("the leaf is no Setting") from None
    return {entry.key: entry.value for entry in setting.entries}


def encode_setting(entries: dict[str, str]) -> bytes:
    """A serialized Setting, entries in ascending key order."""
    message = setting_pb2.Setting()
    for key in sorted(entries):
        message.entries.add(key=key, value=entries[key])
    return message.SerializeToString()


class FamilyVersion(NamedTuple):
    """A family as transactions and processors name it: exact name and exact version."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def decode_permitted_families(value: str) -> frozenset[FamilyVersion]:
    """The value of ``sawtooth.validator.transaction_families``: a JSON array of objects with family and version.

    Raises NotDecodable that says what is wrong with it. What is nested too deeply is refused before it is parsed, so
    that the verdict is the same on every node, whatever the depth of its stack.
    """
    depth = _nesting(value)
    if depth > _NESTING_MAX:
        raise NotDecodable(f"{TRANSACTION_FAMILIES} is nested {depth} deep, at most {_NESTING_MAX} is allowed")
    try:
        entries = json.loads(value)
    except ValueError as error:
        raise NotDecodable(f"{TRANSACTION_FAMILIES} is no JSON: {error}") from None
    if not isinstance(entries, list):
        raise NotDecodable(f"{TRANSACTION_FAMILIES} is a JSON {type(entries).__name__}, not an array")
    families = set()
    for entry in entries:
        if not isinstance(entry, dict):
            raise NotDecodable(f"{TRANSACTION_FAMILIES}: {entry!r} is not an object")
        name, version = entry.get("family"), entry.get("version")
        if not isinstance(name, str) or not isinstance(version, str):
            raise NotDecodable(f"{TRANSACTION_FAMILIES}: {entry!r} does not hold the strings family and version")
        if _LONE_SURROGATE(name) or _LONE_SURROGATE(version):
            raise NotDecodable(f"{TRANSACTION_FAMILIES}: {entry!r} holds half a character, which is no text")
        families.add(FamilyVersion(name, version))
    return frozenset(families)


def _nesting(text: str) -> int:
    """How deep the arrays and objects of a JSON text are nested."""
    depth = deepest = 0
    in_string = escaped = False
    for character in text:
        if in_string:
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            in_string = True
        elif character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest
