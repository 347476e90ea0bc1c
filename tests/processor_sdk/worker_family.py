"""A family whose payloads do to their worker what a test wants, importable from any process. No assertions."""

import ctypes
import logging
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from processor_sdk import Context, Transaction, TransactionHandler
from processor_sdk.runtime import TransactionProcessor
from tests.processor_sdk.scripts import FAMILY, NAMESPACE, VERSION

DAY_S = 86_400
LOG_FORMAT = "%(levelname)s|%(name)s|%(message)s|%(transaction)s|%(batch)s|%(family)s|%(version)s|%(worker)s"


class WorkerHandler(TransactionHandler[bytes]):
    """The payload is a JSON list of [word, argument] pairs as ``scripts.Spec`` makes it."""

    family_name = FAMILY
    family_version = VERSION
    namespaces = (NAMESPACE,)

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        word, _, argument = transaction.payload_bytes.decode().strip('[]"').partition('", "')
        if word == "sleep":
            time.sleep(DAY_S)
        elif word == "gil":
            ctypes.PyDLL(None).sleep(DAY_S)
        elif word == "exit":
            os._exit(9)
        elif word == "memory":
            bytearray(int(argument))
        elif word == "speak":
            print("printed", "in two lines", sep="\n")
            print("no end", end="", flush=True)
            sys.stdout.write("long " * 5000)
            logging.getLogger("author").info("logged")
        elif word == "hold":
            with socket.create_connection(("127.0.0.1", int(argument))) as gate:
                gate.recv(1)


class Unpicklable(WorkerHandler):
    def __init__(self) -> None:
        self.held: Any = lambda: None


def log_to(path: Path) -> None:
    """Every record to a file."""
    file = logging.FileHandler(path)
    file.setFormatter(logging.Formatter(LOG_FORMAT, defaults=dict.fromkeys(("transaction", "batch", "family"), "-")))
    file.formatter._style._defaults["version"] = "-"  # type: ignore[union-attr]
    logging.basicConfig(level=logging.DEBUG, handlers=[file])


if __name__ == "__main__":
    url, stop_s_max = sys.argv[1:]
    processor = TransactionProcessor(url, apply_timeout_ms=DAY_S * 1000, stop_s_max=float(stop_s_max))
    processor.add(WorkerHandler()).run()
