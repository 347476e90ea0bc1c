"""The rules of intkey 1.0 (WIRE.md, Families). Encodings are in ``payload``, addresses in ``addresses``."""

from families.intkey.addresses import NAMESPACE, intkey_address
from families.intkey.payload import ENCODINGS, FAMILY_NAME, FAMILY_VERSION, LEAF, VALUE_MAX, IntkeyPayload, Verb
from processor_sdk import Context, InvalidTransaction, Transaction, TransactionHandler


class IntkeyHandler(TransactionHandler[IntkeyPayload]):
    """set makes a name that does not exist; inc and dec change one that does, within 0 to 2^32-1."""

    family_name = FAMILY_NAME
    family_version = FAMILY_VERSION
    namespaces = (NAMESPACE,)
    encodings = ENCODINGS

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        payload = transaction.payload
        address = intkey_address(payload.name)
        leaf = context.get(address, LEAF) or {}
        for value in leaf.values():
            if not 0 <= value <= VALUE_MAX:
                raise InvalidTransaction(f"the entry at {address} is damaged: it holds the value {value}")
        leaf[payload.name] = _changed(payload.verb, payload.name, payload.value, leaf.get(payload.name))
        context.set(address, leaf, LEAF)


def _changed(verb: Verb, name: str, value: int, current: int | None) -> int:
    if verb == "set":
        if current is not None:
            raise InvalidTransaction(f"{name!r} exists already, with the value {current}")
        return value
    if current is None:
        raise InvalidTransaction(f"{name!r} does not exist: {verb} needs a name that was set")
    result = current + value if verb == "inc" else current - value
    if not 0 <= result <= VALUE_MAX:
        raise InvalidTransaction(f"{verb} of {name!r} from {current} by {value} leaves 0 to {VALUE_MAX}")
    return result
