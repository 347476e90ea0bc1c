"""What a client of intkey needs: the address of a name, signed transactions, and the meaning of a leaf."""

import hashlib
from typing import Final

from families.intkey import payload
from families.intkey.payload import decode_leaf
from ledger.addresses import Address, namespace_of
from ledger.building import SignedTransaction, build_transaction
from ledger.signing import Signer

__all__ = ["NAMESPACE", "decode_leaf", "intkey_address", "intkey_transaction"]

NAMESPACE: Final = namespace_of(payload.FAMILY_NAME)


def intkey_address(name: str) -> Address:
    """Where ``name`` is stored: the namespace, then the last 64 hex characters of its SHA-512 (WIRE.md, Families)."""
    return Address(NAMESPACE + hashlib.sha512(name.encode()).hexdigest()[-64:])


def intkey_transaction(
    signer: Signer, batcher_pubkey: str, verb: str, name: str, value: int, nonce: str
) -> SignedTransaction:
    """A transaction that does ``verb`` (set, inc or dec). Raises ``payload.Malformed`` where it can never be valid."""
    encoded = payload.encode_payload(payload.IntkeyPayload(verb, name, value))
    addresses = (intkey_address(name),)
    return build_transaction(
        signer,
        batcher_pubkey=batcher_pubkey,
        family_name=payload.FAMILY_NAME,
        family_version=payload.FAMILY_VERSION,
        inputs=addresses,
        outputs=addresses,
        payload=encoded,
        payload_encoding=payload.PAYLOAD_ENCODING,
        nonce=nonce,
    )
