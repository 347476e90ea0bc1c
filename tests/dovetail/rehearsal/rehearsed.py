"""Handlers for rehearsals: variants of intkey, each with one change."""

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
"""The environment variable NAME:FILE: the intkey name at which a handler misbehaves, and a file."""


class WithEvent(IntkeyHandler):
    """intkey with an event and receipt data. The handlers below are rehearsed against its history."""

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        super().apply(transaction, context)
        self.tell(transaction.payload, context)

    def tell(self, payload: IntkeyPayload, context: Context) -> None:
        context.add_event(f"intkey/{payload.verb}", {"name": payload.name})
        context.add_receipt_data(payload.name.encode())


class DecByOneMore(IntkeyHandler):
    """dec subtracts one more, and refuses results below zero."""

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


class DecRaisesAnotherEvent(WithEvent):
    """dec has another event and other receipt data."""

    def tell(self, payload: IntkeyPayload, context: Context) -> None:
        if payload.verb != "dec":
            super().tell(payload, context)
        else:
            context.add_event("intkey/dec", {"name": payload.name, "by": str(payload.value)})


class DecAddsData(WithEvent):
    """dec adds more receipt data."""

    def tell(self, payload: IntkeyPayload, context: Context) -> None:
        super().tell(payload, context)
        if payload.verb == "dec":
            context.add_receipt_data(b"more")


class DecWritesElsewhere(IntkeyHandler):
    """dec removes its name instead of writing it; other verbs also remove a missing entry."""

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
    """dec writes outside its outputs."""

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        super().apply(transaction, context)
        if transaction.payload.verb == "dec":
            context.set(intkey_address("another"), b"")


class DecRaises(IntkeyHandler):
    """dec raises an exception that is no verdict."""

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        super().apply(transaction, context)
        print("not for stdout")
        if transaction.payload.verb == "dec":
            raise KeyError("dec")


class Lister(IntkeyHandler):
    """Reads its entries with list, where intkey uses get."""

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        address = intkey_address(transaction.payload.name)
        if dict(context.list(address)) != context.get_many([address]):
            raise InvalidTransaction("list and get do not agree")
        super().apply(transaction, context)


class RefusesWhateverHappens(IntkeyHandler):
    """Turns every exception into a refusal, in apply and in migrate."""

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
    """dec never ends, and catches every Exception."""

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        while transaction.payload.verb == "dec":
            try:
                signal.pause()
            except Exception:
                continue
        # Other verbs get no time limit, because a busy machine may stall for as long as the limit.
        limit = signal.setitimer(signal.ITIMER_REAL, 0)
        super().apply(transaction, context)
        signal.setitimer(signal.ITIMER_REAL, *limit)


class EndsItsProcess(IntkeyHandler):
    """At the name in NAMED, creates the file in NAMED and exits its process; does so only once."""

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        name, _, file = os.environ.get(NAMED, "").partition(":")
        if transaction.payload.name == name and not Path(file).exists():
            Path(file).touch()
            os._exit(3)
        super().apply(transaction, context)


class WaitsForCtrlC(DecByOneMore):
    """At the name in NAMED, writes a line to the pipe in NAMED, so that the test knows, and waits for a signal."""

    def apply(self, transaction: Transaction[IntkeyPayload], context: Context) -> None:
        name, _, file = os.environ.get(NAMED, "").partition(":")
        if transaction.payload.name == name:
            Path(file).write_text("here\n")
            signal.pause()
        super().apply(transaction, context)


class Doubles(IntkeyHandler):
    """Its migration doubles values, removes 7, writes 1 unchanged, and refuses 13."""

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
    """Writes its payload to intkey's addresses."""

    family_name = "other"
    family_version = "1.0"
    namespaces = (NAMESPACE,)
    encodings: ClassVar[dict[str, Any]] = {}

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        context.set(transaction.header.outputs[0], transaction.payload)


class OtherRemoves(OtherFamily):
    """Also removes the entry at its second output, which it does not read."""

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        super().apply(transaction, context)
        context.delete(transaction.header.outputs[1])


class SaysWhatIsPermitted(TransactionHandler[bytes]):
    """Writes its payload to the leaf of the setting of permitted families, as if votes had changed the setting."""

    family_name = settings.FAMILY_NAME
    family_version = settings.FAMILY_VERSION
    namespaces = (settings.NAMESPACE,)

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        context.set(PERMITTED_AT, transaction.payload)
