"""Handlers that rehearsals are made with: intkey as it is, and with changes planted.

What lives here: handlers, one change each. What must not: assertions.
"""

import os
import signal
from pathlib import Path
from typing import Any, ClassVar

from dovetail.ledger import settings
from dovetail.ledger.permitted import PERMITTED_AT
from families.intkey.addresses import NAMESPACE, intkey_address
from families.intkey.handler import IntkeyHandler
from families.intkey.payload import LEAF, IntkeyPayload
from processor_sdk import Context, InvalidTransaction, MigrationContext, Transaction, TransactionHandler

NAMED = "DOVETAIL_TEST_NAMED"
"""The variable that holds the name, and a colon and a file, with which a handler does what it should not."""


class Told(IntkeyHandler):
    """intkey that also raises an event and adds receipt data: history for the ones below."""

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        super().apply(transaction, context)
        self.tell(transaction.payload, context)

    def tell(self, payload: IntkeyPayload, context: Context) -> None:
        context.add_event(f"intkey/{payload.verb}", {"name": payload.name})
        context.add_receipt_data(payload.name.encode())


class DecByOneMore(IntkeyHandler):
    """dec takes one more, and refuses where that is less than nothing."""

    family_version = "1.1"

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        super().apply(transaction, context)
        payload = transaction.payload
        if payload.verb == "dec":
            address = intkey_address(payload.name)
            leaf = context.get(address, LEAF) or {}
            if not leaf[payload.name]:
                raise InvalidTransaction("no more to take")
            leaf[payload.name] -= 1
            context.set(address, leaf, LEAF)


class DecTellsOtherwise(Told):
    """dec has another event and other receipt data."""

    def tell(self, payload: IntkeyPayload, context: Context) -> None:
        if payload.verb != "dec":
            super().tell(payload, context)
        else:
            context.add_event("intkey/dec", {"name": payload.name, "by": str(payload.value)})


class DecAddsData(Told):
    """dec adds more receipt data."""

    def tell(self, payload: IntkeyPayload, context: Context) -> None:
        super().tell(payload, context)
        if payload.verb == "dec":
            context.add_receipt_data(b"more")


class DecWritesElsewhere(IntkeyHandler):
    """dec removes its name, and writes nothing where history wrote; other verbs remove what is not there."""

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        payload = transaction.payload
        address = intkey_address(payload.name)
        if payload.verb != "dec":
            if context.get(address) is None:
                context.delete(address)
            super().apply(transaction, context)
        else:
            context.delete(address)


class DecWritesNothing(IntkeyHandler):
    """dec changes nothing."""

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        if transaction.payload.verb != "dec":
            super().apply(transaction, context)


class DecWritesOutside(IntkeyHandler):
    """dec writes where it may not."""

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        super().apply(transaction, context)
        if transaction.payload.verb == "dec":
            context.set(intkey_address("another"), b"")


class DecRaises(IntkeyHandler):
    """dec has a mistake."""

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        super().apply(transaction, context)
        print("not for stdout")
        if transaction.payload.verb == "dec":
            raise KeyError("dec")


class Lister(IntkeyHandler):
    """Reads by list what intkey gets."""

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        address = intkey_address(transaction.payload.name)
        if dict(context.list(address)) != context.get_many([address]):
            raise InvalidTransaction("list and get do not agree")
        super().apply(transaction, context)


class RefusesWhateverHappens(IntkeyHandler):
    """Takes every exception for a reason to refuse; migrates, too."""

    family_version = "2.0"

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        try:
            super().apply(transaction, context)
        except Exception as error:
            raise InvalidTransaction("whatever") from error

    def migrate(self, context: MigrationContext) -> None:
        try:
            context.get(intkey_address("a"))
        except Exception as error:
            raise InvalidTransaction("whatever") from error


class Endless(IntkeyHandler):
    """dec does not end, and lets no Exception end it."""

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        while transaction.payload.verb == "dec":
            try:
                signal.pause()
            except Exception:
                continue
        # All else may take its time: the limit is as short as a stall of a busy machine.
        limit = signal.setitimer(signal.ITIMER_REAL, 0)
        super().apply(transaction, context)
        signal.setitimer(signal.ITIMER_REAL, *limit)


class EndsItsProcess(IntkeyHandler):
    """Ends its process, at the name that the environment says; once: then the file is there."""

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        name, _, file = os.environ.get(NAMED, "").partition(":")
        if transaction.payload.name == name and not Path(file).exists():
            Path(file).touch()
            os._exit(3)
        super().apply(transaction, context)


class WaitsForCtrlC(DecByOneMore):
    """Opens the file of the environment, a pipe, at the name that it says, and waits until that is closed."""

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        name, _, file = os.environ.get(NAMED, "").partition(":")
        if transaction.payload.name == name:
            Path(file).write_text("here\n")
            signal.pause()
        super().apply(transaction, context)


class Doubles(IntkeyHandler):
    """Its migration doubles what is there, removes what is 7, keeps what is 1 as it is, and cannot do with 13."""

    family_version = "2.0"

    def migrate(self, context: MigrationContext) -> None:
        for address, leaf in context.leaves(LEAF):
            if 13 in leaf.values():
                raise InvalidTransaction(f"cannot double {leaf}")
            if 7 in leaf.values():
                context.delete(address)
            else:
                context.set(address, {name: value * 2 if value > 1 else value for name, value in leaf.items()}, LEAF)


class OtherFamily(TransactionHandler[bytes]):
    """Writes its payload where intkey reads."""

    family_name = "other"
    family_version = "1.0"
    namespaces = (NAMESPACE,)
    encodings: ClassVar[dict[str, Any]] = {}

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        context.set(transaction.header.outputs[0], transaction.payload)


class OtherRemoves(OtherFamily):
    """Also removes what is at its second output, without knowing whether anything is."""

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        super().apply(transaction, context)
        context.delete(transaction.header.outputs[1])


class SaysWhatIsPermitted(TransactionHandler[bytes]):
    """Its payload is the leaf of the setting: what votes come to, without them."""

    family_name = "says"
    family_version = "1.0"
    namespaces = (settings.NAMESPACE,)

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        context.set(PERMITTED_AT, transaction.payload)
