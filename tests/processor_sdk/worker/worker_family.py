"""A family whose payloads act on their worker process. Any process can import it."""

import ctypes
import functools
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from processor_sdk import Context, Transaction, TransactionHandler
from processor_sdk.runtime import TransactionProcessor
from processor_sdk.worker import process as worker
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
        elif word == "hold all":
            with socket.create_connection(("127.0.0.1", int(argument))):
                ctypes.PyDLL(None).sleep(DAY_S)
        elif word == "deaf":
            signal.signal(signal.SIGABRT, signal.SIG_IGN)
            ctypes.PyDLL(None).sleep(DAY_S)
        elif word == "exit":
            os._exit(int(argument))
        elif word == "fork":
            with socket.create_connection(("127.0.0.1", int(argument))) as gate:
                if os.fork() == 0:
                    gate.recv(1)
                    os._exit(0)
        elif word == "fork and go on":
            with socket.create_connection(("127.0.0.1", int(argument))) as gate:
                if os.fork() == 0:
                    # The descriptor is open until the child ends.
                    os.dup(gate.fileno())
                    gate.send(b"here")
        elif word == "memory":
            bytearray(int(argument))
        elif word == "speak":
            print("printed", "in two lines", sep="\n")
            print("no end", end="", flush=True)
            sys.stdout.write("long " * 5000)
            sys.stdout.write("cut " * 5000 + "\n")
            logging.getLogger("author").info("logged")
        elif word == "hold":
            with socket.create_connection(("127.0.0.1", int(argument))) as gate:
                gate.recv(1)


class Unpicklable(WorkerHandler):
    def __init__(self) -> None:
        self.held: Any = lambda: None


class OldUnpicklable:
    """A 1.x handler."""

    family_name = FAMILY
    family_versions = (VERSION,)
    namespaces = (NAMESPACE,)

    def __init__(self) -> None:
        self.held: Any = lambda: None

    def apply(self, transaction: Any, context: Any) -> None:
        """Do nothing."""


class Large(WorkerHandler):
    """A handler larger than a pipe's buffer."""

    def __init__(self) -> None:
        self.held = bytes(1024 * 1024)


def log_to(path: Path) -> None:
    """Log every record to a file."""
    file = logging.FileHandler(path)
    file.setFormatter(logging.Formatter(LOG_FORMAT, defaults=dict.fromkeys(("transaction", "batch", "family"), "-")))
    file.formatter._style._defaults["version"] = "-"  # type: ignore[union-attr]
    logging.basicConfig(level=logging.DEBUG, handlers=[file])


def begin(alone_margin_s: float) -> None:
    """Print the blocked signals to stderr, in one line."""
    worker.ALONE_MARGIN_S = alone_margin_s  # type: ignore[misc]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    print("blocked:", *sorted(signal.Signals(number).name for number in blocked), file=sys.stderr, flush=True)


def die_where(path: Path) -> None:
    """End the process if the file exists."""
    if path.exists():
        os._exit(4)


if __name__ == "__main__":
    url, stop_s_max, apply_timeout_ms, alone_margin_s = [*sys.argv[1:], str(DAY_S * 1000), "20"][:4]
    processor = TransactionProcessor(url, apply_timeout_ms=int(apply_timeout_ms), stop_s_max=float(stop_s_max))
    processor.add(WorkerHandler()).run(configure_logging=functools.partial(begin, float(alone_margin_s)))
