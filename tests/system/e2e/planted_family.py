"""Handlers of intkey that are not what they say: one judges ``dec`` otherwise, one ends its process once."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from families.intkey.handler import IntkeyHandler
from processor_sdk import Context, Transaction

KILL_ONCE = "TEST_KILL_ONCE"
"""The variable that names the file whose absence kills."""


class Planted(IntkeyHandler):
    """``dec`` takes away one more."""

    def apply(self, transaction: Transaction[Any], context: Context) -> None:
        if transaction.payload.verb == "dec":
            more = replace(transaction.payload, value=transaction.payload.value + 1)
            transaction = transaction._replace(payload=more)
        super().apply(transaction, context)


class KilledOnce(IntkeyHandler):
    """Dies of its first transaction, and of no other."""

    def apply(self, transaction: Transaction[Any], context: Context) -> None:
        mark = Path(os.environ[KILL_ONCE])
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        super().apply(transaction, context)
