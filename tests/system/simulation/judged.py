"""The settings family of the simulated world, which its node judges itself."""

from typing import Any

from dovetail.node.judged_here import judged_here
from dovetail.validator.processors.own import OwnFamilies
from processor_sdk import Context, InvalidTransaction, Transaction, TransactionHandler
from tests.system.simulation.programs import NAMESPACES, SETTINGS, steps


class _Settings(TransactionHandler[bytes]):
    family_name, family_version = SETTINGS
    namespaces = NAMESPACES[SETTINGS]

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        running = steps(SETTINGS, transaction.payload, ())
        answer: Any = None
        while True:
            try:
                ask = running.send(answer)
            except StopIteration as done:
                context.add_receipt_data(done.value)
                return
            if ask.kind == "get":
                answer = context.get(ask.place)
            elif ask.kind == "set":
                context.set(ask.place, ask.data)
                answer = None
            else:
                raise InvalidTransaction(f"no program of this family has a {ask.kind}")


def judged_settings() -> OwnFamilies:
    return judged_here([_Settings()])
