"""Refusals of the domain: what was wrong with what somebody sent, with the values.

A refusal is typed and carries its evidence. A transaction that a family rejects is a value (a verdict), not one of
these.
"""

from collections.abc import Sequence


class LedgerError(Exception):
    """Base of all refusals of this package."""


class NotDecodable(LedgerError):
    """The bytes are not a serialized message of the expected kind."""


class InvalidKey(LedgerError):
    """A private or public key that is none."""


class RefusedBatch(LedgerError):
    """A submitted batch breaks a rule of the seed specification ("Rules on transactions and batches").

    ``rule`` is one word for scripts; ``message`` names batch, transaction and the values. Neither id is a verified one.
    """

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message

    def __reduce__(self) -> tuple[type["RefusedBatch"], tuple[str, str]]:
        return (RefusedBatch, (self.rule, self.message))


def some_of(names: Sequence[str], most: int) -> str:
    """The first ``most`` of ``names`` and how many more there are, for a message; empty where there are none."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
