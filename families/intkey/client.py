"""What a client of intkey needs: the address of a name, signed transactions, and the meaning of a leaf."""

from families.intkey import payload
from families.intkey.addresses import NAMESPACE, intkey_address
from families.intkey.payload import decode_leaf
from ledger.building import SignedTransaction, build_transaction
from ledger.signing import Signer

__all__ = ["NAMESPACE", "decode_leaf", "intkey_address", "intkey_transaction"]


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
