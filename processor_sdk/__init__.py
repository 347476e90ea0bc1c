"""What a family author imports: the handler base class, the context of a transaction, and the verdicts.

``processor_sdk.runtime`` (sockets, threads, signals) is imported by itself, so that a handler can be imported and
tested without ZeroMQ.
"""

from processor_sdk.context import Context
from processor_sdk.errors import AuthorizationException, InternalError, InvalidTransaction
from processor_sdk.handler import TransactionHandler

__all__ = ["AuthorizationException", "Context", "InternalError", "InvalidTransaction", "TransactionHandler"]
