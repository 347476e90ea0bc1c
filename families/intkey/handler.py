"""The rules of intkey 1.0 (WIRE.md, Families). Encodings are in ``payload``, addresses in ``addresses``."""

from families.intkey import payload
from families.intkey.addresses import NAMESPACE, intkey_address
from ledger.transaction import Transaction
from processor_sdk import Context, InvalidTransaction, TransactionHandler


class IntkeyHandler(TransactionHandler):
    """set makes a name that does not exist; inc and dec change one that does, within 0 to 2^32-1."""

    family_name = payload.FAMILY_NAME
    family_version = payload.FAMILY_VERSION
    namespaces = (NAMESPACE,)

    def apply(self, transaction: Transaction, context: Context) -> None:
        encoding = transaction.header.payload_encoding
        if encoding not in ("", payload.PAYLOAD_ENCODING):
            raise InvalidTransaction(f"payload_encoding is {encoding!r}, not {payload.PAYLOAD_ENCODING}")
        try:
            verb, name, value = payload.decode_payload(transaction.payload)
        except payload.Malformed as error:
            raise InvalidTransaction(str(error)) from None
        address = intkey_address(name)
        stored = context.get(address)
        try:
            leaf = {} if stored is None else payload.decode_leaf(stored)
        except payload.Malformed as error:
            raise InvalidTransaction(f"state at {address} is damaged: {error}") from None
        leaf[name] = _changed(verb, name, value, leaf.get(name))
        context.set(address, payload.encode_leaf(leaf))


def _changed(verb: str, name: str, value: int, current: int | None) -> int:
    if verb == "set":
        if current is not None:
            raise InvalidTransaction(f"{name!r} exists already, with the value {current}")
        return value
    if current is None:
        raise InvalidTransaction(f"{name!r} does not exist: {verb} needs a name that was set")
    result = current + value if verb == "inc" else current - value
    if not 0 <= result <= payload.VALUE_MAX:
        raise InvalidTransaction(f"{verb} of {name!r} from {current} by {value} leaves 0 to {payload.VALUE_MAX}")
    return result
