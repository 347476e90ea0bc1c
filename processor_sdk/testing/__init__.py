"""What an author's tests import: a ledger in memory that applies transactions under the validator's own rules.

Every apply runs more than once, in different surroundings, so that what would make nodes disagree fails the test; see
``Ledger`` for what is found and what is not. No sockets; signed transactions need the curve library, unsigned ones do
not.
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
