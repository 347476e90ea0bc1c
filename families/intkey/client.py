"""intkey for clients: the address of a name, signed transactions, and the codec of the leaves."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from dovetail.ledger.building import SignedTransaction, build_transaction
from dovetail.ledger.signing import Signer
from families.intkey import payload as v1
from families.intkey.addresses import NAMESPACE, intkey_address
from families.intkey.payload import FAMILY_NAME, LEAF, Verb
from families.intkey.v2 import payload as v2
from processor_sdk.codecs import Codec

__all__ = ["LEAF", "NAMESPACE", "VERSIONS", "intkey_address", "intkey_transaction"]


class Version(NamedTuple):
    """The payloads of one version."""

    payload: type[v1.IntkeyPayload]
    encodings: Mapping[str, Codec[Any]]
    """The codec of each payload_encoding; the first is the default."""


VERSIONS: Final[Mapping[str, Version]] = MappingProxyType(
    {
        v1.FAMILY_VERSION: Version(v1.IntkeyPayload, v1.ENCODINGS),
        v2.FAMILY_VERSION: Version(v2.IntkeyPayload, v2.ENCODINGS),
    }
)
"""The versions by family_version, the oldest first."""


def intkey_transaction(
    signer: Signer,
    batcher_pubkey: str,
    verb: Verb,
    name: str,
    value: int,
    nonce: str,
    payload_encoding: str | None = None,
    family_version: str = v1.FAMILY_VERSION,
) -> SignedTransaction:
    """A transaction with ``verb`` (set, inc or dec). ``payload_encoding``: by default the version's first.

    Raises ValueError if the transaction can never be valid.
    """
    version = VERSIONS[family_version]
    payload_encoding = payload_encoding or next(iter(version.encodings))
    addresses = (intkey_address(name),)
    return build_transaction(
        signer,
        batcher_pubkey=batcher_pubkey,
        family_name=FAMILY_NAME,
        family_version=family_version,
        inputs=addresses,
        outputs=addresses,
        payload=version.encodings[payload_encoding].encode(version.payload(verb, name, value)),
        payload_encoding=payload_encoding,
        nonce=nonce,
    )
