"""The exceptions that end an apply. Handlers raise them, or the SDK. No protocol messages, no logging."""

from collections.abc import Sequence
from typing import Final

from dovetail.ledger.errors import some_of

_DECLARED_SHOWN_MAX: Final = 8


class InvalidTransaction(Exception):
    """The family refuses the transaction for good. The submitter gets the message and ``extended_data``.

    Raise it only for reasons that are the same on every node: the transaction and the state that it reads.
    """

    extended_data: bytes = b""

    def __init__(self, message: str, extended_data: bytes = b"") -> None:
        if not isinstance(extended_data, bytes):
            raise TypeError(f"extended_data is {type(extended_data).__name__}, not bytes")
        super().__init__(message)
        self.extended_data = extended_data


class AuthorizationException(InvalidTransaction):
    """The handler used an address that the transaction or the handler does not declare. Nothing was changed."""

    @classmethod
    def for_read(cls, address: str, inputs: Sequence[str]) -> "AuthorizationException":
        """``address`` is not covered by the ``inputs`` of the transaction."""
        return cls(
            f"may not read {address}: the transaction declares the inputs {_shown(inputs)};"
            f" its client must add the address, or a prefix of it: {_line('inputs', address)}"
        )

    @classmethod
    def for_list(cls, prefix: str, inputs: Sequence[str]) -> "AuthorizationException":
        """No single one of the transaction's ``inputs`` covers ``prefix``."""
        return cls(
            f"may not list {prefix!r}: the transaction declares the inputs {_shown(inputs)};"
            f" its client must add the prefix, or a shorter one: {_line('inputs', prefix)}"
        )

    @classmethod
    def for_write(cls, address: str, outputs: Sequence[str]) -> "AuthorizationException":
        """``address`` is not covered by the ``outputs`` of the transaction."""
        return cls(
            f"may not write {address}: the transaction declares the outputs {_shown(outputs)};"
            f" its client must add the address, or a prefix of it: {_line('outputs', address)}"
        )

    @classmethod
    def for_namespace(cls, address: str, namespaces: Sequence[str]) -> "AuthorizationException":
        """``address`` lies outside the ``namespaces`` of the handler."""
        return cls(
            f"may not write {address}: the handler declares the namespaces {_shown(namespaces)};"
            f" write under one of them, or add {address[:6]} to the handler's namespaces"
        )

    @classmethod
    def for_malformed(cls, address: str) -> "AuthorizationException":
        """``address`` is malformed."""
        return cls(
            f"{address[:140]!r} ({len(address)} characters) is no address: an address is 70 lower-case hex characters"
        )

    @classmethod
    def for_malformed_prefix(cls, prefix: str) -> "AuthorizationException":
        """``prefix`` is malformed."""
        return cls(
            f"{prefix[:140]!r} ({len(prefix)} characters) is no prefix of an address: an even number of lower-case hex"
            f" characters, 0 to 70"
        )


class InternalError(Exception):
    """The transaction cannot be executed here and now. No verdict: the validator tries again."""


class StateUnavailable(BaseException):
    """The validator broke the protocol in its answer to a state call, or the connection is lost.

    Not an ``Exception``, so that a handler with ``except Exception`` does not turn a missing answer into a verdict.
    """


def _shown(declared: Sequence[str]) -> str:
    return f"[{some_of(declared, _DECLARED_SHOWN_MAX)}]"


def _line(argument: str, entry: str) -> str:
    """The argument that the client must write when it builds the transaction."""
    return f'{argument}=[…, "{entry}"]'
