"""What a handler, or the SDK on its behalf, raises to end an apply. No messages, no logging."""

from collections.abc import Sequence
from typing import Final

from dovetail.ledger.errors import some_of

_DECLARED_SHOWN_MAX: Final = 8


class InvalidTransaction(Exception):
    """The family refuses the transaction; final. Message and ``extended_data`` travel to the submitter.

    Raise it only for reasons that every node finds alike: the transaction itself and the state that it reads.
    """

    extended_data: bytes = b""

    def __init__(self, message: str, extended_data: bytes = b"") -> None:
        if not isinstance(extended_data, bytes):
            raise TypeError(f"extended_data is {type(extended_data).__name__}, not bytes")
        super().__init__(message)
        self.extended_data = extended_data


class AuthorizationException(InvalidTransaction):
    """The handler touched an address that the transaction or the handler does not declare. Nothing was changed."""

    @classmethod
    def for_read(cls, address: str, inputs: Sequence[str]) -> "AuthorizationException":
        """``address`` is not covered by the ``inputs`` of the transaction."""
        return cls(
            f"may not read {address}: the transaction declares the inputs {_shown(inputs)};"
            f" its client must add the address, or a prefix of it: {_line('inputs', address)}"
        )

    @classmethod
    def for_list(cls, prefix: str, inputs: Sequence[str]) -> "AuthorizationException":
        """What lies under ``prefix`` is not covered by one of the ``inputs`` of the transaction."""
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
        """``address`` can be no address."""
        return cls(
            f"{address[:140]!r} ({len(address)} characters) is no address: an address is 70 lower-case hex characters"
        )

    @classmethod
    def for_malformed_prefix(cls, prefix: str) -> "AuthorizationException":
        """``prefix`` can be no prefix of an address."""
        return cls(
            f"{prefix[:140]!r} ({len(prefix)} characters) is no prefix of an address: an even number of lower-case hex"
            f" characters, 0 to 70"
        )


class InternalError(Exception):
    """The transaction cannot be judged here and now; it is no verdict, and the validator tries again."""


class StateUnavailable(BaseException):
    """The validator did not answer a state call as the protocol says, or its connection is lost.

    Not an ``Exception``: a handler that catches everything it can must not turn a missing answer into a verdict.
    """


def _shown(declared: Sequence[str]) -> str:
    return f"[{some_of(declared, _DECLARED_SHOWN_MAX)}]"


def _line(argument: str, entry: str) -> str:
    """What to write where the client makes its transaction."""
    return f'{argument}=[…, "{entry}"]'
