"""A family whose handler writes much to every stream. As a program it serves as an author's script does."""

import logging
import sys

from processor_sdk import Context, Transaction, TransactionHandler
from processor_sdk.runtime import TransactionProcessor

_LINE = "x" * 10_000


class NoisyHandler(TransactionHandler[bytes]):
    family_name = "noisy"
    family_version = "1.0"
    namespaces = ("noisy",)

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        for _ in range(5):
            print(_LINE)
            print(_LINE, file=sys.stderr)
            logging.getLogger("noisy").warning(_LINE)


if __name__ == "__main__":
    # Before the SDK runs, as scripts do: this handler holds the interpreter's own stderr.
    logging.basicConfig(level=logging.INFO)
    processor = TransactionProcessor(sys.argv[1]).add(NoisyHandler())
    if sys.argv[2] == "workers":
        processor.run()
    else:
        processor.run_in_process()
