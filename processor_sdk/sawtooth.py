"""An adapter for handlers that were written for the Python SDK of the Sawtooth 1.x line, under that SDK's names.

It holds the names of ``sawtooth_sdk.processor.handler``, ``.context``, ``.exceptions``, ``.core`` and ``.log``, so that
a handler changes only its imports. Each name behaves as in release 1.2.5 beside a 1.x validator, unless its
docstring says otherwise. Dispatch and runtime see the handlers that ``adapted`` makes. A new family uses
``processor_sdk`` itself; docs/how-to/migrating.md shows the step.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import dovetail.ledger.transaction as ledger_transaction
import processor_sdk
from dovetail.ledger.access import namespace_refusal
from dovetail.ledger.addresses import is_prefix
from dovetail.ledger.ids import TransactionId
from processor_sdk.handler import check_apply, check_name

__all__ = [
    "AuthorizationException",
    "Context",
    "InternalError",
    "InvalidTransaction",
    "LocalConfigurationError",
    "StateEntry",
    "TpProcessRequest",
    "TransactionHandler",
    "TransactionHeader",
    "TransactionProcessor",
    "adapted",
    "init_console_logging",
]


class TransactionHandler(ABC):
    """The rules of one family, in any number of versions.

    As in 1.x, any object with these four names is a handler, if ``apply`` is a plain method of its class. The names are
    read and checked once, when the handler is added.
    """

    @property
    @abstractmethod
    def family_name(self) -> str:
        """As in the transactions: 1 to 256 characters."""

    @property
    @abstractmethod
    def family_versions(self) -> Collection[str]:
        """A list, tuple or set of the handled versions, as in the transactions."""

    @property
    @abstractmethod
    def namespaces(self) -> Collection[str]:
        """A list, tuple or set of prefixes for writes: even numbers of lower-case hex characters, 0 to 70."""

    @abstractmethod
    def apply(self, transaction: Any, context: Any) -> Any:
        """Check ``transaction`` (TpProcessRequest) and write its changes to ``context`` (Context).

        InvalidTransaction and AuthorizationException refuse the transaction for good. After any other exception the
        validator tries again. The return value is ignored.
        """


class TransactionHeader(ledger_transaction.TransactionHeader):
    """The header, with the names of the seed specification and those of 1.x. Lists are tuples."""

    __slots__ = ()

    @property
    def signer_public_key(self) -> str:
        """The key that signed the transaction: ``signer_pubkey``."""
        return self.signer_pubkey

    @property
    def batcher_public_key(self) -> str:
        """The key that may put the transaction into a batch: ``batcher_pubkey``."""
        return self.batcher_pubkey


class TpProcessRequest(NamedTuple):
    """One transaction. ``signature``: its id. ``header`` and ``header_bytes`` are both set in either header style.

    Unlike 1.x it has no ``context_id``.
    """

    header: TransactionHeader
    payload: bytes
    signature: TransactionId
    header_bytes: bytes


class StateEntry(NamedTuple):
    """An entry of the state."""

    address: str
    data: bytes


class InvalidTransaction(processor_sdk.InvalidTransaction):
    """The family refuses the transaction for good."""

    def __init__(self, message: object, extended_data: bytes | None = None) -> None:
        super().__init__(str(message), b"" if extended_data is None else extended_data)


class InternalError(processor_sdk.InternalError):
    """The transaction cannot be executed here and now. The validator tries again, a few times."""

    def __init__(self, message: object, extended_data: bytes | None = None) -> None:
        super().__init__(message)
        self.extended_data = extended_data


class AuthorizationException(Exception):
    """The handler used an address that the transaction or the handler does not declare. Nothing was changed.

    As in 1.x, this is not an InvalidTransaction: a handler may catch it and go on. If no handler code catches it, the
    transaction is invalid.
    """


class LocalConfigurationError(Exception):
    """For programs that raise or catch it. This SDK never raises it."""


class Context:
    """The state that one transaction may read and change. ``timeout`` is ignored: the runtime bounds every apply."""

    __slots__ = ("_context",)

    def __init__(self, context: processor_sdk.Context) -> None:
        self._context = context

    def get_state(self, addresses: Iterable[str], timeout: float | None = None) -> list[StateEntry]:
        """The entries at ``addresses``, in their order, without missing and empty ones.

        Raises AuthorizationException outside the transaction's inputs.
        """
        asked = list(addresses)
        try:
            found = self._context.get_many(asked)
        except processor_sdk.AuthorizationException as refusal:
            raise self._refusal(refusal) from None
        return [StateEntry(address, found[address]) for address in asked if address in found]

    def set_state(self, entries: Mapping[str, bytes], timeout: float | None = None) -> list[str]:
        """Write all of ``entries``, or nothing. Returns their addresses.

        Raises AuthorizationException outside the transaction's outputs or the handler's namespaces.
        """
        try:
            self._context.set_many(entries)
        except processor_sdk.AuthorizationException as refusal:
            raise self._refusal(refusal) from None
        return list(entries)

    def delete_state(self, addresses: Iterable[str], timeout: float | None = None) -> list[str]:
        """Remove the entries at ``addresses``. Returns all addresses, even missing ones, as 1.x validators do.

        Raises AuthorizationException as ``set_state`` does, and then removes nothing.
        """
        asked = list(addresses)
        try:
            self._context.delete_many(asked)
        except processor_sdk.AuthorizationException as refusal:
            raise self._refusal(refusal) from None
        return asked

    def add_receipt_data(self, data: bytes, timeout: float | None = None) -> None:
        """Add bytes of the family to the transaction's receipt."""
        self._context.add_receipt_data(data)

    def add_event(
        self,
        event_type: str,
        attributes: Mapping[str, str] | Iterable[tuple[str, str]] | None = None,
        data: bytes | None = None,
        timeout: float | None = None,
    ) -> None:
        """Raise an event, which is published if the transaction is committed. ``attributes``: pairs or a mapping."""
        self._context.add_event(event_type, attributes or (), data or b"")

    def _refusal(self, refusal: processor_sdk.AuthorizationException) -> AuthorizationException:
        # In 1.x the handler decides whether a refused access makes the transaction invalid.
        self._context.refused = None
        return AuthorizationException(str(refusal))


class TransactionProcessor:
    """Serves handlers to one validator, in this process and thread.

    ``dovetail processor`` and ``processor_sdk.runtime`` serve the same handlers with worker processes and a time limit.
    """

    def __init__(self, url: str) -> None:
        """``url``: the validator's address, as ``tcp://127.0.0.1:4004``. Raises ValueError for a malformed one."""
        # Not at the top of the file, because handlers are imported and tested without ZeroMQ.
        from processor_sdk import runtime

        self._processor = runtime.TransactionProcessor(url)

    def add_handler(self, handler: object) -> None:
        """Add ``handler`` in all its versions, before ``start``. Raises TypeError as ``adapted`` does."""
        for version in adapted(handler):
            self._processor.add(version)

    def set_header_style(self, style: object) -> None:
        """Do nothing: a request has the header in both styles."""

    def start(self) -> None:
        """Serve until ``stop``, SIGTERM or SIGINT, then finish the tasks in flight. Reconnects for ever."""
        self._processor.run_in_process()

    def stop(self) -> None:
        """Make ``start`` return. May be called from any thread."""
        self._processor.stop()


def init_console_logging(verbose_level: int = 2) -> None:
    """Log to stderr: warnings at 0, info at 1, debug above."""
    logging.basicConfig(level={0: logging.WARNING, 1: logging.INFO}.get(verbose_level, logging.DEBUG))


def adapted(handler: object) -> tuple[processor_sdk.TransactionHandler[bytes], ...]:
    """A 1.x handler as handlers of this SDK: one for each of its versions, in ascending order.

    Raises TypeError that names the wrong attribute and the correction.
    """
    where = type(handler).__qualname__
    if isinstance(handler, type):
        raise TypeError(f"{handler.__qualname__} is a class; make a handler of it: {handler.__qualname__}()")
    apply = getattr(type(handler), "apply", None)
    if apply is None:
        raise TypeError(f"{where} has no apply: it is no handler of the 1.x line")
    name = _read(where, handler, "family_name")
    check_name(where, "family_name", name)
    versions = _texts(f"{where}.family_versions", _read(where, handler, "family_versions"))
    namespaces = _texts(f"{where}.namespaces", _read(where, handler, "namespaces"))
    if not versions:
        raise TypeError(f'{where}.family_versions is empty; name at least one version, as in ["1.0"]')
    for namespace in namespaces:
        if not is_prefix(namespace):
            raise TypeError(
                f"{where}.namespaces holds {namespace!r}; each must be an even number of lower-case hex characters,"
                f" 0 to 70"
            )
    refusal = namespace_refusal(name, namespaces)
    if refusal is not None:
        raise TypeError(f"{where}.namespaces: {refusal}")
    for version in versions:
        check_name(where, "family_versions[…]", version)
    check_apply(where, apply)
    return tuple(_Version(handler, name, version, namespaces) for version in versions)


class _CheckedByInstance(processor_sdk.TransactionHandler[bytes]):
    """A base class whose subclasses are not checked: the attributes are set on instances."""

    def __init_subclass__(cls) -> None:
        pass

    def check_declaration(self) -> None:
        """Do nothing: ``adapted`` has checked the handler, whose namespaces are prefixes of any length."""


class _Version(_CheckedByInstance):
    """A 1.x handler, in one of its versions."""

    def __init__(self, handler: Any, name: str, version: str, namespaces: tuple[str, ...]) -> None:
        self.wrapped = handler
        # These attributes are declared as class variables, so the type checker forbids ordinary assignment.
        vars(self).update(family_name=name, family_version=version, namespaces=namespaces)

    def apply(self, transaction: processor_sdk.Transaction[bytes], context: processor_sdk.Context) -> None:
        header = TransactionHeader._make(transaction.header)
        request = TpProcessRequest(header, transaction.payload_bytes, transaction.id, transaction.header_bytes)
        try:
            self.wrapped.apply(request, Context(context))
        except AuthorizationException as refusal:
            raise processor_sdk.AuthorizationException(str(refusal)) from refusal


def _read(where: str, handler: object, attribute: str) -> Any:
    try:
        return getattr(handler, attribute)
    except AttributeError as error:
        raise TypeError(f"{where}.{attribute}, which a handler of the 1.x line has, cannot be read: {error}") from error


def _texts(where: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        # The characters of a string would count as a list of strings.
        raise TypeError(f"{where} is the string {value!r}; write a list: [{value!r}]")
    if not isinstance(value, list | tuple | set | frozenset):
        raise TypeError(f"{where} is {value!r}; it must be a list, tuple or set of strings")
    for text in value:
        if not isinstance(text, str):
            raise TypeError(f"{where} holds {text!r}; it must hold strings")
    return tuple(sorted(set(value)))
