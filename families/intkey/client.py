"""What a client of intkey needs: the address of a name, signed transactions, and the codec of the leaves."""

from families.intkey.addresses import NAMESPACE, intkey_address
from families.intkey.payload import ENCODINGS, FAMILY_NAME, FAMILY_VERSION, LEAF, IntkeyPayload, Verb
from ledger.building import SignedTransaction, build_transaction
from ledger.signing import Signer

__all__ = ["LEAF", "NAMESPACE", "intkey_address", "intkey_transaction"]


def intkey_transaction(
    signer: Signer,
    batcher_pubkey: str,
    verb: Verb,
    name: str,
    value: int,
    nonce: str,
    payload_encoding: str = "application/cbor",
) -> SignedTransaction:
    """A transaction that does ``verb`` (set, inc or dec), in one of the family's encodings.

    Raises ValueError where it can never be valid.
    """
    addresses = (intkey_address(name),)
    return build_transaction(
        signer,
        batcher_pubkey=batcher_pubkey,
        family_name=FAMILY_NAME,
        family_version=FAMILY_VERSION,
        inputs=addresses,
        outputs=addresses,
        payload=ENCODINGS[payload_encoding].encode(IntkeyPayload(verb, name, value)),
        payload_encoding=payload_encoding,
        nonce=nonce,
    )
