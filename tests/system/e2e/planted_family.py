"""Faulty handlers of intkey: one applies ``dec`` wrongly, one ends its process once."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from families.intkey.handler import IntkeyHandler
from processor_sdk import Context, Transaction

KILL_ONCE = "TEST_KILL_ONCE"
"""The variable that names a file. The process is killed if the file does not exist."""


class Planted(IntkeyHandler):
    """``dec`` subtracts one too many."""

    def apply(self, transaction: Transaction[Any], context: Context) -> None:
        if transaction.payload.verb == "dec":
            more = replace(transaction.payload, value=transaction.payload.value + 1)
            transaction = transaction._replace(payload=more)
        super().apply(transaction, context)


class KilledOnce(IntkeyHandler):
    """Kills its process at the first transaction, and at no other."""

    def apply(self, transaction: Transaction[Any], context: Context) -> None:
        mark = Path(os.environ[KILL_ONCE])
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        super().apply(transaction, context)
