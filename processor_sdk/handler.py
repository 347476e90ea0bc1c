"""The base class of a transaction family's rules. No sockets, no messages, no state of its own."""

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from ledger.addresses import NAMESPACE_CHARACTERS, namespace_of
from ledger.transaction import FAMILY_CHARACTERS_MAX
from processor_sdk.codecs.codec import Codec
from processor_sdk.context import Context
from processor_sdk.transaction import Transaction

P = TypeVar("P")

_is_namespace = re.compile(rf"[0-9a-f]{{{NAMESPACE_CHARACTERS}}}").fullmatch
_is_hex = re.compile(r"[0-9a-fA-F]+").fullmatch


class TransactionHandler(ABC, Generic[P]):
    """The rules of one family in one version; ``P`` is the type of its payloads.

    A subclass that implements ``apply`` names its family in class attributes, checked when the class is made
    (TypeError that says which one, why, and what to write).
    """

    family_name: ClassVar[str]
    """As transactions name it; 1 to 256 characters."""

    family_version: ClassVar[str]
    """As transactions name it, to the letter: text, 1 to 256 characters."""

    namespaces: ClassVar[tuple[str, ...]]
    """Where it may write: each 6 lower-case hex characters, or a name that is hashed to such.

    The class holds them hashed: of ``namespaces = ("intkey",)`` remains ``("1cf126",)``.
    """

    encodings: ClassVar[Mapping[str, Codec[Any]]] = MappingProxyType({})
    """The codec for each payload_encoding that a transaction may name; the first also for those that name none.

    Where there are none, ``apply`` gets every payload as bytes.
    """

    @abstractmethod
    def apply(self, transaction: Transaction[P], context: Context) -> None:
        """Judge ``transaction`` and write what it changes to ``context``.

        Must depend on nothing but its two arguments: no clock, randomness, network or earlier transactions. Raises
        InvalidTransaction to refuse; any other exception is no verdict and the transaction is tried again.
        """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if getattr(cls.apply, "__isabstractmethod__", False):
            return
        where = cls.__qualname__
        _check_style(where, cls)
        check_apply(where, cls.apply)
        for attribute in ("family_name", "family_version"):
            check_name(where, attribute, getattr(cls, attribute, None))
        cls.namespaces = _namespaces(where, getattr(cls, "namespaces", None))
        cls.encodings = _encodings(where, cls.encodings)


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
        f" processor_sdk.sawtooth; docs/migrating.md shows both styles"
    )


def check_apply(where: str, apply: Any) -> None:
    """That ``apply``, as its class has it, can be called with a transaction and a context. Raises TypeError."""
    if inspect.iscoroutinefunction(apply) or inspect.isgeneratorfunction(apply) or inspect.isasyncgenfunction(apply):
        raise TypeError(f"{where}.apply is a coroutine or generator function; it must be a plain function")
    try:
        inspect.signature(apply).bind(None, None, None)
    except TypeError:
        raise TypeError(
            f"{where}.apply takes {inspect.signature(apply)}; it must take (self, transaction, context)"
        ) from None


def check_name(where: str, attribute: str, value: object) -> None:
    """That ``value`` can be the name or the version of a family. Raises TypeError."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"{where}.{attribute} is {value!r}; it must be a string that is not empty")
    if len(value) > FAMILY_CHARACTERS_MAX:
        raise TypeError(f"{where}.{attribute} has {len(value)} characters; at most {FAMILY_CHARACTERS_MAX} are allowed")


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
    if _is_hex(declared):
        # A slip of the pen in a prefix must not silently become the hash of a name.
        raise TypeError(
            f"{where}.namespaces holds {declared!r}, hex of {len(declared)} characters; a namespace has"
            f" {NAMESPACE_CHARACTERS}, in lower case. If it is a name, write namespace_of({declared!r})"
            f" (from ledger.addresses)"
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
