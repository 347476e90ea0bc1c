"""The base class of a transaction family's rules. No sockets, no messages, no state of its own."""

import inspect
from abc import ABC, abstractmethod
from typing import ClassVar

from ledger.addresses import NAMESPACE_CHARACTERS, is_prefix
from ledger.transaction import Transaction
from processor_sdk.context import Context


class TransactionHandler(ABC):
    """The rules of one family in one version.

    A subclass that implements ``apply`` names its family in class attributes, checked when the class is made
    (TypeError that says which one and why): ``family_name`` and ``family_version`` as transactions name them, and
    ``namespaces``, the address prefixes that it may write: each an even number of lower-case hex characters, 6 to 70.
    """

    family_name: ClassVar[str]
    family_version: ClassVar[str]
    namespaces: ClassVar[tuple[str, ...]]

    @abstractmethod
    def apply(self, transaction: Transaction, context: Context) -> None:
        """Judge ``transaction`` and write what it changes to ``context``.

        Must depend on nothing but its two arguments: no clock, randomness, network or earlier transactions. Raises
        InvalidTransaction to refuse; any other exception is no verdict and the transaction is tried again.
        """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if getattr(cls.apply, "__isabstractmethod__", False):
            return
        if inspect.iscoroutinefunction(cls.apply):
            raise TypeError(f"{cls.__qualname__}.apply is a coroutine function; it must be a plain function")
        for attribute in ("family_name", "family_version"):
            value = getattr(cls, attribute, None)
            if not isinstance(value, str) or not value:
                raise TypeError(f"{cls.__qualname__}.{attribute} is {value!r}; it must be a string that is not empty")
        _check_namespaces(cls.__qualname__, getattr(cls, "namespaces", None))


def _check_namespaces(where: str, namespaces: object) -> None:
    if not isinstance(namespaces, tuple) or not namespaces:
        raise TypeError(f"{where}.namespaces is {namespaces!r}; it must be a tuple of at least one prefix")
    for namespace in namespaces:
        if not isinstance(namespace, str) or len(namespace) < NAMESPACE_CHARACTERS or not is_prefix(namespace):
            raise TypeError(
                f"{where}.namespaces holds {namespace!r}; a namespace is an even number of lower-case hex characters,"
                f" {NAMESPACE_CHARACTERS} to 70"
            )
