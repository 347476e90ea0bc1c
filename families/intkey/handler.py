"""The rules of intkey 1.0 (WIRE.md, Families). Encodings are in ``payload``, addresses in ``addresses``."""

from collections.abc import Mapping
from typing import Any, ClassVar

from families.intkey.addresses import NAMESPACE, intkey_address
from families.intkey.payload import ENCODINGS, FAMILY_NAME, FAMILY_VERSION, LEAF, IntkeyPayload
from processor_sdk import Codec, Context, InvalidTransaction, Transaction, TransactionHandler


class IntkeyHandler(TransactionHandler[IntkeyPayload]):
    """set creates a name; inc and dec change an existing one, within 0 to 2^32-1."""

    family_name = FAMILY_NAME
    family_version = FAMILY_VERSION
    namespaces = (NAMESPACE,)
    encodings: ClassVar[Mapping[str, Codec[Any]]] = ENCODINGS

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        payload = transaction.payload
        address = intkey_address(payload.name)
        leaf = context.get(address, LEAF) or {}
        for value in leaf.values():
            if not 0 <= value <= payload.value_max:
                # The entry is damaged or from a version with wider values. This version must not change it.
                raise InvalidTransaction(
                    f"the entry at {address} holds the value {value}; {self.family_name} {self.family_version} knows"
                    f" 0 to {payload.value_max}"
                )
        leaf[payload.name] = _changed(payload, leaf.get(payload.name))
        context.set(address, leaf, LEAF)


def _changed(payload: IntkeyPayload, current: int | None) -> int:
    verb, name, value = payload.verb, payload.name, payload.value
    if verb == "set":
        if current is not None:
            raise InvalidTransaction(f"{name!r} exists already, with the value {current}")
        return value
    if current is None:
        raise InvalidTransaction(f"{name!r} does not exist: {verb} needs a name that was set")
    result = current + value if verb == "inc" else current - value
    if not 0 <= result <= payload.value_max:
        raise InvalidTransaction(f"{verb} of {name!r} from {current} by {value} leaves 0 to {payload.value_max}")
    return result
