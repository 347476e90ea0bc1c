"""secp256k1 ECDSA over SHA-256, with compact low-s signatures as hex (WIRE.md, Transport).

The only module of the node that imports the curve library, so that another binding can replace it. No messages, no key
files.
"""

import re
from functools import lru_cache
from typing import Final

from coincurve import PrivateKey, PublicKey
from coincurve.ecdsa import cdata_to_der, der_to_cdata, deserialize_compact, serialize_compact

from dovetail.ledger import ids
from dovetail.ledger.errors import InvalidKey

_HALF_ORDER: Final = bytes.fromhex("7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0")
_PARSED_KEYS_MAX: Final = 4096

_is_private_key = re.compile(r"[0-9a-fA-F]{64}").fullmatch


class Signer:
    """A private key, parsed once."""

    __slots__ = ("_key", "public_key")

    def __init__(self, private_key: str) -> None:
        """``private_key``: 64 hex characters. Raises InvalidKey, whose message never holds the key."""
        if not _is_private_key(private_key):
            raise InvalidKey(f"{len(private_key)} characters that are not a private key of 64 hex characters")
        try:
            self._key = PrivateKey(bytes.fromhex(private_key))
        except ValueError:
            raise InvalidKey("the private key is zero, or not below the order of the curve") from None
        self.public_key = ids.PublicKey(self._key.public_key.format(compressed=True).hex())

    def sign(self, message: bytes) -> str:
        """The signature over ``message``: 128 lower-case hex characters, low-s."""
        return serialize_compact(der_to_cdata(self._key.sign(message))).hex()  # type: ignore[no-any-return]


def is_high_s(signature: str) -> bool:
    """Whether a signature of 128 hex characters has the higher of its two valid s values, which is refused."""
    return bytes.fromhex(signature[64:]) > _HALF_ORDER


def verify(public_key: str, message: bytes, signature: str) -> bool:
    """Whether ``public_key`` (66 hex) made ``signature`` (128 hex, low-s) over ``message``. Raises InvalidKey."""
    key = _parse(public_key)
    try:
        return key.verify(cdata_to_der(deserialize_compact(bytes.fromhex(signature))), message)
    except ValueError:
        return False


def check_public_key(public_key: str) -> None:
    """Raise InvalidKey, with the reason, if no signature can ever be made with ``public_key``."""
    _parse(public_key)


@lru_cache(maxsize=_PARSED_KEYS_MAX)
def _parse(public_key: str) -> PublicKey:
    if not ids.is_public_key(public_key):
        raise InvalidKey(f"{public_key[:80]!r} is not a compressed public key of 66 lower-case hex characters")
    try:
        return PublicKey(bytes.fromhex(public_key))
    except ValueError:
        raise InvalidKey(f"{public_key} is no point of the curve") from None
