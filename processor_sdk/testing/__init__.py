"""The test kit for handlers: a ledger in memory that applies transactions under the validator's own rules.

Every apply runs several times in different environments, so that a test finds what would make nodes disagree.
``Ledger`` lists what is found and what is not. No sockets. Only signed transactions need the curve library.
"""

from dovetail.ledger.receipt import Event, Receipt
from processor_sdk.testing.ledger import Ledger
from processor_sdk.testing.model import ApplyFailed, CannotRunTwice, NonDeterministic, Result, Verdict
from processor_sdk.testing.state import State
from processor_sdk.testing.transactions import SIGNER, UnsignedTransaction

__all__ = [
    "SIGNER", "ApplyFailed", "CannotRunTwice", "Event", "Ledger", "NonDeterministic", "Receipt", "Result", "State",
    "UnsignedTransaction", "Verdict",
]  # fmt: skip
