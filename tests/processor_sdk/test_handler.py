"""What is checked when a handler's class is made, and what a context refuses."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from ledger.addresses import AccessList, namespace_of
from processor_sdk import (
    AuthorizationException,
    CborCodec,
    Context,
    InvalidTransaction,
    JsonCodec,
    RawCodec,
    Transaction,
    TransactionHandler,
)
from tests.processor_sdk.scripts import NAMESPACE, address


@dataclass(frozen=True)
class Point:
    x: int
    y: int


GOOD: dict[str, Any] = {"family_name": "f", "family_version": "1.0", "namespaces": (NAMESPACE,)}


def apply(self: Any, transaction: Transaction[Any], context: Context) -> None:
    pass


async def apply_later(self: Any, transaction: Transaction[Any], context: Context) -> None:
    pass


def apply_two(self: Any, transaction: Transaction[Any]) -> None:
    pass


def apply_bit_by_bit(self: Any, transaction: Transaction[Any], context: Context) -> Any:
    yield


def make(**attributes: Any) -> Any:
    return type("Made", (TransactionHandler,), {**GOOD, "apply": apply, **attributes})


@pytest.mark.parametrize(
    ("namespaces", "hashed"),
    [
        (("aaaaaa",), ("aaaaaa",)),
        (["aaaaaa", "1cf126"], ("aaaaaa", "1cf126")),
        (("intkey",), ("1cf126",)),
        (("aaaaaa", "intkey"), ("aaaaaa", "1cf126")),
        ((namespace_of("cafe"),), (namespace_of("cafe"),)),
    ],
)
def test_a_namespace_is_hex_or_a_name_that_is_hashed(namespaces: Any, hashed: tuple[str, ...]) -> None:
    made = make(namespaces=namespaces)
    assert made.namespaces == made().namespaces == hashed


def test_encodings_are_those_that_are_declared() -> None:
    codec = RawCodec()
    assert dict(make(encodings={"text/plain": codec}).encodings) == {"text/plain": codec}
    assert dict(make().encodings) == {}


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"family_name": ""}, "family_name"),
        ({"family_name": None}, "family_name"),
        ({"family_version": 1.0}, "family_version"),
        ({"namespaces": "aaaaaa"}, "tuple"),
        ({"namespaces": ()}, "tuple"),
        ({"namespaces": ("aaaaaa", "aaaa")}, "'aaaa'"),
        ({"namespaces": ("AAAAAA",)}, "lower case"),
        ({"namespaces": ("aaaaaaa",)}, "hex of 7 characters"),
        ({"namespaces": ("cafe",)}, r"namespace_of\('cafe'\)"),
        ({"namespaces": ("",)}, "6 lower-case hex"),
        ({"family_name": "x" * 257}, "257 characters"),
        ({"apply": apply_two}, r"must take \(self, transaction, context\)"),
        ({"apply": apply_bit_by_bit}, "generator"),
        ({"encodings": [RawCodec()]}, "mapping"),
        ({"encodings": {"": RawCodec()}}, "not empty"),
        ({"encodings": {"application/json": Point}}, r"as in CborCodec\(Point\)"),
        ({"encodings": {"application/json": JsonCodec}}, "is the class JsonCodec"),
        ({"encodings": {"application/json": "json"}}, "decode and encode"),
        ({"namespaces": (b"aaaaaa",)}, "namespace"),
        ({"apply": apply_later}, "coroutine"),
    ],
)
def test_a_wrong_attribute_is_named_when_the_class_is_made(attributes: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        make(**attributes)


def test_a_missing_attribute_is_named() -> None:
    with pytest.raises(TypeError, match="namespaces is None"):
        type("Made", (TransactionHandler,), {"family_name": "f", "family_version": "1", "apply": apply})


def test_a_base_class_without_apply_needs_no_names() -> None:
    base = type("Base", (TransactionHandler,), {})
    assert issubclass(type("Made", (base,), {**GOOD, "apply": apply}), base)


def context_of(inputs: tuple[str, ...], outputs: tuple[str, ...], state: dict[str, bytes]) -> Context:
    class Before:
        def fetch(self, addresses: Collection[str]) -> Mapping[str, bytes]:
            return {name: state[name] for name in addresses if name in state}

        def under(self, prefix: str) -> Iterator[tuple[str, bytes]]:
            return iter(sorted(item for item in state.items() if item[0].startswith(prefix)))

    return Context(AccessList(inputs), AccessList(outputs), (NAMESPACE,), Before())


A, B, FOREIGN = address(1), address(2), address(1, "bbbbbb")


def test_many_are_written_and_removed_all_or_none() -> None:
    context = context_of((A, B), (A, B), {A: b"a"})
    with pytest.raises(AuthorizationException):
        context.set_many({A: b"x", FOREIGN: b"x"})
    with pytest.raises(AuthorizationException):
        context.delete_many([A, FOREIGN])
    assert context.changes == {}
    context.set_many({A: b"1", B: b"2"})
    assert context.get_many([B, A]) == {B: b"2", A: b"1"}
    assert context.delete_many([A, B]) == [A, B]
    assert context.changes == {A: None}


def test_the_last_write_wins() -> None:
    context = context_of((A,), (A,), {A: b"a"})
    assert context.delete(A)
    assert not context.delete(A)
    context.set(A, b"again")
    assert context.get(A) == b"again"
    assert context.changes == {A: b"again"}


def test_typed_entries_go_through_a_codec() -> None:
    codec = CborCodec(Point)
    context = context_of((A, B), (A, B), {A: codec.encode(Point(1, 2)), B: b"rubbish"})
    assert context.get(A, codec) == Point(1, 2)
    context.set(A, Point(3, 4), codec)
    assert context.get(A, codec) == Point(3, 4)
    assert context.get_many([A], codec) == {A: Point(3, 4)}
    assert context.get(A) == codec.encode(Point(3, 4))
    with pytest.raises(InvalidTransaction, match=f"{B} is damaged"):
        context.get(B, codec)
    context.set_many({A: Point(5, 6), B: Point(7, 8)}, codec)
    assert context.get_many([A, B], codec) == {A: Point(5, 6), B: Point(7, 8)}
    with pytest.raises(ValueError, match="x is 'text', not an integer"):
        context.set_many({A: Point(0, 0), B: Point("text", 8)}, codec)  # type: ignore[arg-type]
    assert context.get(A, codec) == Point(5, 6)
    context.delete(A)
    assert context.get(A, codec) is None


@pytest.mark.parametrize(
    "misuse",
    [
        lambda context: context.set(A, "text"),
        lambda context: context.set(A, bytearray(b"x")),
        lambda context: context.set_many({A: None}),
        lambda context: context.add_receipt_data("text"),
        lambda context: context.add_event("type", [("key", 1)]),
        lambda context: context.add_event("type", {"key": "value"}),
        lambda context: context.add_event(1),
        lambda context: context.get(A.encode()),
        lambda _: InvalidTransaction("message", "text"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_type_is_an_error_where_it_happens(misuse: Callable[[Context], Any]) -> None:
    context = context_of((A,), (A,), {})
    with pytest.raises((TypeError, ValueError)):
        misuse(context)
    assert (context.changes, context.events, context.receipt_data) == ({}, [], [])


def test_a_long_declaration_is_cut() -> None:
    context = context_of(tuple(address(n) for n in range(10, 1010)), (), {})
    with pytest.raises(AuthorizationException, match="and 992 more"):
        context.get(A)
