"""The intkey family under further names, and as the 1.x line spoke to it: what ``--families`` and ``--legacy`` serve.

The rules are intkey's own, unchanged. All names share intkey's namespace; the load gives each family names of its own,
so that they meet at no address. Imported by the processes of these processors, not by the node.
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
    """Of family ``number``, from 0: intkey itself, then intkey_2, intkey_3 and so on."""
    return f"{FAMILY_NAME}_{number + 1}" if number else FAMILY_NAME


def family_of(name: int, names: int, families: int) -> int:
    """Whose a name is: each family has the next of equal runs of the ``names``, at least one."""
    return ((name + 1) * families - 1) // names


def names_of(family: int, names: int, families: int) -> range:
    """The names for which ``family_of`` says ``family``."""
    return range(family * names // families, (family + 1) * names // families)


def intkey_processors(families: int, processes: int, *, legacy: bool) -> list[tuple[str, str]]:
    """Name and MODULE:HANDLER of each processor: so many ``processes`` of each family."""
    prefix = "legacy" if legacy else "plain"
    return [
        (f"{family_name(family)}-{process}", f"{__name__}:{prefix}_{family_name(family)}")
        for family in range(families)
        for process in range(1, processes + 1)
    ]


def load_transaction(signer: Signer, family: int, verb: Verb, name: str, nonce: str) -> SignedTransaction:
    """``verb`` by 1 on ``name``, of family ``number``; the signer is the batcher too."""
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
    """Where one is made, all that this interpreter registers is offered to the 1.x conversation alone."""

    def __new__(cls) -> Self:
        # A processor that always speaks packed is what the SDK is for, so it has no switch. A worker makes its handlers
        # before it registers them.
        registration.PACKED_VERSION = 0  # type: ignore[misc]
        return super().__new__(cls)


for _number in range(FAMILIES_MAX):
    for _prefix, _base in (("plain", IntkeyHandler), ("legacy", _Legacy)):
        _name = f"{_prefix}_{family_name(_number)}"
        # By its name in this module a worker finds the class.
        globals()[_name] = type(_name, (_base,), {"family_name": family_name(_number), "__module__": __name__})
