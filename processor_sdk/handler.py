"""The base class of transaction handlers, and the checks of their declarations. No sockets, no messages, no state."""

import difflib
import inspect
import re
import typing
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, TypeVar

from dovetail.ledger.access import namespace_refusal
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
"""The similarity, from 0 to 1, from which a name counts as a misspelling of another."""


class TransactionHandler(ABC, Generic[P]):
    """The rules of one family in one version; ``P`` is the type of its payloads.

    A subclass that implements ``apply`` declares its family in class attributes. They are checked when the class is
    made and again for each instance before it serves. A TypeError names the attribute, the fault and the correction.
    """

    family_name: ClassVar[str]
    """As in the transactions: 1 to 256 characters, no control characters, no blanks at the ends."""

    family_version: ClassVar[str]
    """Exactly as in the transactions: text under the rules of ``family_name``."""

    namespaces: ClassVar[tuple[str, ...]]
    """The prefixes under which the handler may write: 6 lower-case hex characters each, or a name to be hashed.

    The class holds the hashed form: ``namespaces = ("intkey",)`` becomes ``("1cf126",)``.
    """

    encodings: ClassVar[Mapping[str, Codec[Any]]] = MappingProxyType({})
    """The codec for each payload_encoding. The first also decodes payloads of transactions that name no encoding.

    Without encodings ``apply`` gets every payload as bytes.
    """

    migrates: ClassVar[bool] = False
    """Whether the class migrates the state of an earlier version. Set when the class is made.

    True if the class defines ``migrate``, or inherits it from a class with the same ``family_version`` or with none. A
    ``migrate`` of another version does not count; to run it again, write ``migrate = Earlier.migrate``.
    """

    @abstractmethod
    def apply(self, transaction: Transaction[P], context: Context) -> None:
        """Check ``transaction`` and write its changes to ``context``.

        The result must depend only on the two arguments: no clock, randomness, network or earlier transactions. Raise
        InvalidTransaction to refuse the transaction. After any other exception the validator tries again.
        """

    def migrate(self, context: MigrationContext) -> None:
        """Migrate one slice of the state of an earlier version. Define it only in versions that migrate.

        Runs once for each slice, before the version's first transaction (docs/reference/sdk.md). A ``migrate`` that is
        inherited from a class of another version does not run (``migrates``). The result must depend only on the slice:
        not on the clock, on chance or on other slices. Raise InvalidTransaction if the state cannot be migrated: then
        no slice is changed, and the version is not activated.
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
        cls.namespaces = _namespaces(where, cls.family_name, getattr(cls, "namespaces", None))
        cls.encodings = _encodings(where, cls.encodings)
        _check_payload_type(where, cls)

    def check_declaration(self) -> None:
        """Check the attributes of this instance as those of a class are checked, and hash its namespaces.

        The runtime calls it once, before the first transaction. Raises TypeError as making the class does.
        """
        where = type(self).__qualname__
        for attribute in ("family_name", "family_version"):
            check_name(where, attribute, getattr(self, attribute, None))
        namespaces = _namespaces(where, self.family_name, self.namespaces)
        if namespaces != self.namespaces:
            vars(self)["namespaces"] = namespaces
        _encodings(where, self.encodings)


def _migrates(handler: type[TransactionHandler[Any]]) -> bool:
    """Whether ``migrate`` is of this version: defined, and not inherited from a handler of another version."""
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
    """Check that no attribute is a misspelling of a name that the class does not declare itself."""
    for name, value in declared.items():
        if name.startswith("_") or name in _NAMES or callable(value) or hasattr(value, "__get__"):
            continue
        meant = difflib.get_close_matches(name, _NAMES, 1, _CLOSE) or [_MISTAKEN.get(name, name)]
        # An inherited attribute does not count: the misspelled one may have been meant to replace it.
        if meant[0] in _NAMES and meant[0] not in declared:
            raise TypeError(
                f"{where} has {name}, which means nothing here; write {meant[0]}, or, if it is something of your own,"
                f" _{name}"
            )


def check_apply(where: str, apply: Any) -> None:
    """Check that ``apply`` can be called with a transaction and a context. Raises TypeError."""
    _check_method(where, "apply", apply, "transaction", "context")


def _check_method(where: str, name: str, method: Any, *parameters: str) -> None:
    """Check that a method is a plain function that can be called with ``parameters``. Raises TypeError."""
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
    """Check that ``value`` can be the name or the version of a family. Raises TypeError."""
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


def _namespaces(where: str, family_name: str, declared: object) -> tuple[str, ...]:
    if not isinstance(declared, tuple | list) or not declared:
        raise TypeError(
            f'{where}.namespaces is {declared!r}; it must be a tuple of at least one, as in ("my_family",)'
            f" with the comma"
        )
    namespaces = tuple(_namespace(where, namespace) for namespace in declared)
    refusal = namespace_refusal(family_name, namespaces)
    if refusal is not None:
        raise TypeError(f"{where}.namespaces: {refusal}")
    return namespaces


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
        # A misspelled prefix must not silently become the hash of a name.
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
    except TypeError:  # TypedDict and Protocol support no issubclass.
        return True


def _check_payload_type(where: str, handler: type[TransactionHandler[Any]]) -> None:
    """Check that the codecs make the payload type that the class declares, if they have a ``kind``."""
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
