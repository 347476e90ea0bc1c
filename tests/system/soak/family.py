"""A family of counters. The version of its handler is taken from the environment, so that many versions can follow."""

import os
from hashlib import sha512

from processor_sdk import Context, Transaction, TransactionHandler

VERSION_VARIABLE = "SOAK_VERSION"
FAMILY = "soak_counter"
NAMESPACE = sha512(FAMILY.encode()).hexdigest()[:6]
HANDLER = "tests.system.soak.family:CounterHandler"


def address(name: str) -> str:
    """The address of the counter ``name``."""
    return NAMESPACE + sha512(name.encode()).hexdigest()[:64]


class CounterHandler(TransactionHandler[bytes]):
    """Adds one to the counter at the transaction's only output."""

    family_name = FAMILY
    family_version = os.environ.get(VERSION_VARIABLE, "1.0")
    namespaces = (NAMESPACE,)

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        (place,) = transaction.header.outputs
        context.set(place, str(int(context.get(place) or b"0") + 1).encode())
