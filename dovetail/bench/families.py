"""The families of a load: intkey, intkey's rules under further names, and both without packed execution.

All share intkey's namespace, but each family of a load has its own names, so that no two write the same address. The
processors of a load import this module; the node does not.
"""

from typing import Final, Self

from dovetail.ledger.building import SignedTransaction, build_transaction
from dovetail.ledger.signing import Signer
from families.intkey.client import intkey_address
from families.intkey.handler import IntkeyHandler
from families.intkey.payload import ENCODINGS, FAMILY_NAME, FAMILY_VERSION, IntkeyPayload, Verb
from processor_sdk.worker import registration

FAMILIES_MAX: Final = 16

_ENCODING: Final = "application/cbor"


def family_name(number: int) -> str:
    """The name of family ``number``, from 0: intkey, intkey_2, intkey_3 and so on."""
    return f"{FAMILY_NAME}_{number + 1}" if number else FAMILY_NAME


def family_of(name: int, names: int, families: int) -> int:
    """The number of the family that a name belongs to. Each family has an equal, non-empty range of names."""
    return ((name + 1) * families - 1) // names


def names_of(family: int, names: int, families: int) -> range:
    """The names of ``family``, as ``family_of`` splits them."""
    return range(family * names // families, (family + 1) * names // families)


def intkey_processors(families: int, processes: int, *, legacy: bool) -> list[tuple[str, str]]:
    """Name and MODULE:HANDLER of each processor. Each family has ``processes`` processors."""
    prefix = "legacy" if legacy else "plain"
    return [
        (f"{family_name(family)}-{process}", f"{__name__}:{prefix}_{family_name(family)}")
        for family in range(families)
        for process in range(1, processes + 1)
    ]


def load_transaction(signer: Signer, family: int, verb: Verb, name: str, nonce: str) -> SignedTransaction:
    """A transaction of family number ``family``: ``verb`` with value 1 on ``name``. The signer is also the batcher."""
    addresses = (intkey_address(name),)
    return build_transaction(
        signer,
        batcher_pubkey=signer.public_key,
        family_name=family_name(family),
        family_version=FAMILY_VERSION,
        inputs=addresses,
        outputs=addresses,
        payload=ENCODINGS[_ENCODING].encode(IntkeyPayload(verb, name, 1)),
        payload_encoding=_ENCODING,
        nonce=nonce,
    )


class _Legacy(IntkeyHandler):
    """Turns packed execution off in its process, so that the validator uses the 1.x conversation."""

    def __new__(cls) -> Self:
        # The SDK has no switch for this. A worker makes its handlers before it registers them.
        registration.PACKED_VERSION = 0  # type: ignore[misc]
        return super().__new__(cls)


for _number in range(FAMILIES_MAX):
    for _prefix, _base in (("plain", IntkeyHandler), ("legacy", _Legacy)):
        _name = f"{_prefix}_{family_name(_number)}"
        # A worker finds the class by its name in this module.
        globals()[_name] = type(_name, (_base,), {"family_name": family_name(_number), "__module__": __name__})
