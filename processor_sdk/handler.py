"""The base class of a transaction family's rules. No sockets, no messages, no state of its own."""

import difflib
import inspect
import re
import typing
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, TypeVar

from dovetail.ledger.addresses import NAMESPACE_CHARACTERS, namespace_of
from dovetail.ledger.transaction import FAMILY_CHARACTERS_MAX
from processor_sdk.codecs.codec import Codec
from processor_sdk.context import Context
from processor_sdk.migration import INHERITED_MIGRATE, MigrationContext
from processor_sdk.transaction import Transaction

P = TypeVar("P")

_is_namespace = re.compile(rf"[0-9a-f]{{{NAMESPACE_CHARACTERS}}}").fullmatch
_is_hex = re.compile(r"[0-9a-fA-F]+").fullmatch

_NAMES: Final = ("family_name", "family_version", "namespaces", "encodings")
_MISTAKEN: Final = {
    "family": "family_name", "name": "family_name", "version": "family_version", "payload_encodings": "encodings",
}  # fmt: skip
_CLOSE: Final = 0.85
"""How alike two names are, from 0 to 1, for one to be taken for a slip of the pen."""


class TransactionHandler(ABC, Generic[P]):
    """The rules of one family in one version; ``P`` is the type of its payloads.

    A subclass that implements ``apply`` names its family in class attributes, checked when the class is made
    (TypeError that says which one, why, and what to write), and for each instance when it begins to serve.
    """

    family_name: ClassVar[str]
    """As transactions name it; 1 to 256 characters, no control characters, no blanks at its ends."""

    family_version: ClassVar[str]
    """As transactions name it, to the letter: text, 1 to 256 characters, as for ``family_name``."""

    namespaces: ClassVar[tuple[str, ...]]
    """Where it may write: each 6 lower-case hex characters, or a name that is hashed to such.

    The class holds them hashed: of ``namespaces = ("intkey",)`` remains ``("1cf126",)``.
    """

    encodings: ClassVar[Mapping[str, Codec[Any]]] = MappingProxyType({})
    """The codec for each payload_encoding that a transaction may name; the first also for those that name none.

    Where there are none, ``apply`` gets every payload as bytes.
    """

    migrates: ClassVar[bool] = False
    """Whether the class migrates the state that its version takes over; found when it is made.

    It does where ``migrate`` stands in it, or comes from a class of the same ``family_version``, or of none. What comes
    from a class of another version has been run for that one: who wants it again writes ``migrate = Earlier.migrate``.
    """

    @abstractmethod
    def apply(self, transaction: Transaction[P], context: Context) -> None:
        """Judge ``transaction`` and write what it changes to ``context``.

        Must depend on nothing but its two arguments: no clock, randomness, network or earlier transactions. Raises
        InvalidTransaction to refuse; any other exception is no verdict and the transaction is tried again.
        """

    def migrate(self, context: MigrationContext) -> None:
        """Change the state that this version takes over from an earlier one; declared only by versions that do.

        One that is inherited from a class of another version is that version's, and not run (``migrates``).
        Run once for each slice of that state, before the version's first transaction (docs/reference/sdk.md). Must
        depend on nothing but the slice: not on the clock, on chance, or on what was done for another slice. Raises
        InvalidTransaction where the state cannot be migrated: then nothing is, and the version is not activated.
        """
        raise NotImplementedError(f"{type(self).__qualname__} declares no migrate; {INHERITED_MIGRATE}")

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if inspect.isabstract(cls):
            return
        where = cls.__qualname__
        _check_style(where, cls)
        _check_spelling(where, vars(cls))
        check_apply(where, inspect.getattr_static(cls, "apply"))
        if "migrates" in vars(cls):
            raise TypeError(
                f"{where} has migrates; it is found by itself: write def migrate(self, context), or nothing"
            )
        _check_method(where, "migrate", inspect.getattr_static(cls, "migrate"), "context")
        for attribute in ("family_name", "family_version"):
            check_name(where, attribute, getattr(cls, attribute, None))
        cls.migrates = _migrates(cls)
        cls.namespaces = _namespaces(where, getattr(cls, "namespaces", None))
        cls.encodings = _encodings(where, cls.encodings)
        _check_payload_type(where, cls)

    def check_declaration(self) -> None:
        """That this instance can serve: what it, or its class since it was made, has set is checked as in a class.

        Called by the runtime, once, before the instance gets its first transaction. Namespaces that are names are
        hashed. Raises TypeError as the making of a class does.
        """
        where = type(self).__qualname__
        for attribute in ("family_name", "family_version"):
            check_name(where, attribute, getattr(self, attribute, None))
        namespaces = _namespaces(where, self.namespaces)
        if namespaces != self.namespaces:
            vars(self)["namespaces"] = namespaces
        _encodings(where, self.encodings)


def _migrates(handler: type[TransactionHandler[Any]]) -> bool:
    """Whether ``migrate`` is this version's: declared, and not inherited from a handler of another version."""
    if "migrate" in vars(handler):
        return True
    if handler.migrate is TransactionHandler.migrate:
        return False
    return not any(
        getattr(base, "family_version", handler.family_version) != handler.family_version
        and getattr(base, "migrate", None) is handler.migrate
        for base in handler.__mro__[1:]
    )


def _check_style(where: str, handler: type) -> None:
    declared = {name: getattr(handler, name, None) for name in ("family_name", "family_version", "namespaces")}
    properties = [name for name, value in declared.items() if isinstance(value, property)]
    if hasattr(handler, "family_versions"):
        found = "has family_versions, the 1.x name: here a class handles one family_version"
    elif properties:
        found = f"has properties ({', '.join(properties)}), as in 1.x: here they are class attributes"
    else:
        return
    raise TypeError(
        f"{where} {found}. To run a handler of the Sawtooth 1.x SDK as it is, import TransactionHandler from"
        f" processor_sdk.sawtooth; docs/how-to/migrating.md shows both styles"
    )


def _check_spelling(where: str, declared: Mapping[str, object]) -> None:
    """That a class which declares one name does not mean another, which it does not declare itself."""
    for name, value in declared.items():
        if name.startswith("_") or name in _NAMES or callable(value) or hasattr(value, "__get__"):
            continue
        meant = difflib.get_close_matches(name, _NAMES, 1, _CLOSE) or [_MISTAKEN.get(name, name)]
        # What is inherited is no excuse: it may be what the slip was to replace.
        if meant[0] in _NAMES and meant[0] not in declared:
            raise TypeError(
                f"{where} has {name}, which means nothing here; write {meant[0]}, or, if it is something of your own,"
                f" _{name}"
            )


def check_apply(where: str, apply: Any) -> None:
    """That ``apply``, as its class has it, can be called with a transaction and a context. Raises TypeError."""
    _check_method(where, "apply", apply, "transaction", "context")


def _check_method(where: str, name: str, method: Any, *parameters: str) -> None:
    """That a method, as its class has it, is a plain function that can be called with so many arguments."""
    takes = ", ".join(("self", *parameters))
    if not inspect.isfunction(method):
        raise TypeError(f"{where}.{name} is {method!r}; it must be a method: def {name}({takes})")
    if inspect.iscoroutinefunction(method) or inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
        raise TypeError(f"{where}.{name} is a coroutine or generator function; it must be a plain function")
    signature = inspect.signature(method, follow_wrapped=False)
    try:
        signature.bind(None, *parameters)
    except TypeError:
        raise TypeError(f"{where}.{name} takes {signature}; it must take ({takes})") from None


def check_name(where: str, attribute: str, value: object) -> None:
    """That ``value`` can be the name or the version of a family. Raises TypeError."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"{where}.{attribute} is {value!r}; it must be a string that is not empty")
    if len(value) > FAMILY_CHARACTERS_MAX:
        raise TypeError(f"{where}.{attribute} has {len(value)} characters; at most {FAMILY_CHARACTERS_MAX} are allowed")
    _check_plain(f"{where}.{attribute} is {value!r}", value)


def _check_plain(found: str, value: str) -> None:
    if value != value.strip():
        raise TypeError(f"{found}; it must not begin or end with a blank")
    if {unicodedata.category(character) for character in value} & {"Cc", "Cs"}:
        raise TypeError(f"{found}; it must not hold control characters or halves of characters (lone surrogates)")


def _namespaces(where: str, declared: object) -> tuple[str, ...]:
    if not isinstance(declared, tuple | list) or not declared:
        raise TypeError(
            f'{where}.namespaces is {declared!r}; it must be a tuple of at least one, as in ("my_family",)'
            f" with the comma"
        )
    return tuple(_namespace(where, namespace) for namespace in declared)


def _namespace(where: str, declared: object) -> str:
    if not isinstance(declared, str) or not declared:
        raise TypeError(
            f"{where}.namespaces holds {declared!r}; a namespace is {NAMESPACE_CHARACTERS} lower-case hex characters,"
            f" or a name that is hashed to such"
        )
    if _is_namespace(declared):
        return declared
    _check_plain(f"{where}.namespaces holds {declared!r}", declared)
    if declared[:2].lower() == "0x" and _is_hex(declared[2:]):
        raise TypeError(f"{where}.namespaces holds {declared!r}; hex is written without 0x: {declared[2:].lower()!r}")
    if _is_hex(declared):
        # A slip of the pen in a prefix must not silently become the hash of a name.
        raise TypeError(
            f"{where}.namespaces holds {declared!r}, hex of {len(declared)} characters; a namespace has"
            f" {NAMESPACE_CHARACTERS}, in lower case. If it is a name, write namespace_of({declared!r})"
            f" (from dovetail.ledger.addresses)"
        )
    return namespace_of(declared)


def _encodings(where: str, declared: object) -> Mapping[str, Codec[Any]]:
    if not isinstance(declared, Mapping):
        raise TypeError(f"{where}.encodings is {declared!r}; it must be a mapping from payload_encoding to codec")
    for encoding, codec in declared.items():
        if not isinstance(encoding, str) or not encoding:
            raise TypeError(f"{where}.encodings has the key {encoding!r}; it must be a payload_encoding, not empty")
        if isinstance(codec, type):
            raise TypeError(
                f"{where}.encodings[{encoding!r}] is the class {codec.__name__}; it must be a codec, as in"
                f" CborCodec({codec.__name__})"
            )
        if not (callable(getattr(codec, "decode", None)) and callable(getattr(codec, "encode", None))):
            raise TypeError(f"{where}.encodings[{encoding!r}] is {codec!r}; a codec has the methods decode and encode")
    return MappingProxyType(dict(declared))


def _is_kind(kind: type, payload: type) -> bool:
    try:
        return issubclass(kind, payload)
    except TypeError:  # Of a TypedDict or a Protocol that cannot be told.
        return True


def _check_payload_type(where: str, handler: type[TransactionHandler[Any]]) -> None:
    """That the payloads which the class says it handles are what its codecs make, as far as these say it (``kind``)."""
    for base in getattr(handler, "__orig_bases__", ()):
        if typing.get_origin(base) is not TransactionHandler:
            continue
        (payload,) = typing.get_args(base)
        if not isinstance(payload, type) or payload in (Any, object):
            continue
        if not handler.encodings and payload is not bytes:
            raise TypeError(
                f"{where} handles payloads of the type {payload.__name__} and declares no encodings, so that it would"
                f' get bytes; write encodings = {{"application/json": JsonCodec({payload.__name__})}} or the like'
            )
        for encoding, codec in handler.encodings.items():
            kind = getattr(codec, "kind", None)
            if isinstance(kind, type) and not _is_kind(kind, payload):
                raise TypeError(
                    f"{where} handles payloads of the type {payload.__name__}, but encodings[{encoding!r}] makes"
                    f" {kind.__name__}"
                )
