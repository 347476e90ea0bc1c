"""The exceptions of the domain, each with the offending values in its message.

The rejection of a transaction by its family is a verdict, not an exception.
"""

from collections.abc import Sequence


class LedgerError(Exception):
    """Base of all refusals of this package."""


class NotDecodable(LedgerError):
    """The bytes are not a serialized message of the expected kind."""


class InvalidKey(LedgerError):
    """A text is no private or public key."""


class RefusedBatch(LedgerError):
    """A submitted batch breaks a rule of the seed specification ("Rules on transactions and batches").

    ``rule``: one word for scripts. ``message``: names batch, transaction and values; the ids in it are unverified.
    """

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message

    def __reduce__(self) -> tuple[type["RefusedBatch"], tuple[str, str]]:
        return (RefusedBatch, (self.rule, self.message))


def some_of(names: Sequence[str], most: int) -> str:
    """The first ``most`` of ``names`` and the number of the others, for a message; empty if there are no names."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
