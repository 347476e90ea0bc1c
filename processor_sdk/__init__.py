"""The names that a family author imports: the handler base class, its arguments, its exceptions and the codecs.

``processor_sdk.runtime`` (sockets, processes, signals) is not imported here, so that a handler can be imported and
tested without ZeroMQ.
"""

from processor_sdk.codecs import CborCodec, Codec, JsonCodec, NotDecodable, ProtobufCodec, RawCodec
from processor_sdk.context import Context
from processor_sdk.errors import AuthorizationException, InternalError, InvalidTransaction
from processor_sdk.handler import TransactionHandler
from processor_sdk.migration import MigrationContext
from processor_sdk.transaction import Transaction

__all__ = [
    "AuthorizationException",
    "CborCodec",
    "Codec",
    "Context",
    "InternalError",
    "InvalidTransaction",
    "JsonCodec",
    "MigrationContext",
    "NotDecodable",
    "ProtobufCodec",
    "RawCodec",
    "Transaction",
    "TransactionHandler",
]
