"""The checks of a handler's class, and the refusals of a context."""

import functools
import struct
import types
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict

import pytest

from dovetail.ledger.addresses import AccessList, namespace_of
from dovetail.ledger.receipt import Event, decode_event
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
from processor_sdk.apply.dispatch import Dispatcher
from tests.processor_sdk.scripts import NAMESPACE, ScriptHandler, Spec, State, address, single


@dataclass(frozen=True)
class Point:
    x: int
    y: int


GOOD: dict[str, Any] = {"family_name": "f", "family_version": "1.0", "namespaces": (NAMESPACE,)}


def apply(self: Any, transaction: Transaction[Any], context: Context) -> None:
    pass


async def apply_later(self: Any, transaction: Transaction[Any], context: Context) -> None:
    pass


async def apply_later_bit_by_bit(self: Any, transaction: Transaction[Any], context: Context) -> Any:
    yield


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
        ({"apply": apply_later_bit_by_bit}, "generator"),
        ({"apply": None}, r"Made\.apply is None; it must be a method"),
        ({"apply": property(lambda self: apply)}, r"Made\.apply is <property"),
        ({"apply": staticmethod(apply)}, "must be a method"),
        ({"apply": functools.partial(apply)}, "must be a method"),
        ({"encoding": {"text/plain": RawCodec()}}, "has encoding, which means nothing here; write encodings"),
        ({"payload_encodings": {"text/plain": RawCodec()}}, "write encodings"),
        ({"family_name": " f"}, "begin or end with a blank"),
        ({"family_version": "1.0\n"}, "begin or end with a blank"),
        ({"family_name": "a\x00b"}, "control characters"),
        ({"family_name": "a\ud800"}, "lone surrogates"),
        ({"namespaces": (" intkey",)}, "begin or end with a blank"),
        ({"namespaces": ("0x1cf126",)}, "without 0x: '1cf126'"),
    ],
)
def test_a_wrong_attribute_is_named_when_the_class_is_made(attributes: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        make(**attributes)


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("namespace", "namespaces"),
        ("family", "family_name"),
        ("name", "family_name"),
        ("version", "family_version"),
        ("family_versoin", "family_version"),
    ],
)
def test_a_name_beside_the_right_one_is_named(slip: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"Made has {slip}, .* write {meant}"):
        type("Made", (make(),), {slip: "2.0"})


@pytest.mark.parametrize(
    "own",
    [
        {"encoding": "text/plain", "encodings": {"text/plain": RawCodec()}},
        {"name": "The books", "version": (1, 0)},
        {"_encoding": "text/plain", "title_characters_max": 80, "encodings_seen": 0, "NAMESPACE": "1cf126"},
        {"namespace": lambda self: "1cf126", "encoding": property(str)},
    ],
)
def test_what_a_class_has_of_its_own_is_no_slip(own: dict[str, Any]) -> None:
    assert make(**own)().namespaces == (NAMESPACE,)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"namespaces": ["zzz"], "family_name": 5}, "family_name is 5"),
        ({"namespaces": ["abc"]}, "hex of 3 characters"),
        ({"family_version": "1.0 "}, "blank"),
        ({"encodings": {"application/json": JsonCodec}}, "is the class JsonCodec"),
    ],
)
def test_attributes_of_an_instance_are_checked_before_it_serves(attributes: dict[str, Any], said: str) -> None:
    handler = make()()
    vars(handler).update(attributes)
    with pytest.raises(TypeError, match=said):
        Dispatcher([handler])


def test_later_changes_of_a_class_are_checked_before_an_instance_serves() -> None:
    made = make()
    made.namespaces = ("abc",)
    with pytest.raises(TypeError, match="hex of 3 characters"):
        Dispatcher([made()])


def test_the_namespaces_of_an_instance_are_hashed() -> None:
    handler = make()()
    handler.namespaces = ["intkey"]
    Dispatcher([handler])
    assert handler.namespaces == ("1cf126",)
    assert type(handler).namespaces == (NAMESPACE,)


class BuggyCodec:
    """Decodes four bytes, and fails unexpectedly for others."""

    def decode(self, data: bytes) -> int:
        number: int = struct.unpack(">I", data)[0]
        return number

    def encode(self, value: int) -> bytes:
        return struct.pack(">I", value)


def test_a_codec_that_breaks_is_no_verdict_and_is_named() -> None:
    class Numbers(ScriptHandler):
        encodings: ClassVar = {"application/x": BuggyCodec()}

    response = single(Dispatcher([Numbers()]), Spec((), (), []), State({}))
    assert response.status == response.INTERNAL_ERROR
    assert response.message.startswith("InternalError: the codec of application/x raised struct.error: unpack requires")
    assert response.message.endswith("; a codec refuses with NotDecodable or ValueError")


class Judging(TransactionHandler[Any]):
    """An author's base class: it applies, and leaves one step to subclasses."""

    def apply(self, transaction: Transaction[Any], context: Context) -> None:
        self.judge(transaction)

    @abstractmethod
    def judge(self, transaction: Transaction[Any]) -> None: ...


def test_a_base_class_may_apply_and_leave_a_step_open() -> None:
    with pytest.raises(TypeError, match="family_name is None"):
        type("Made", (Judging,), {"judge": lambda self, transaction: None})
    assert type("Made", (Judging,), {**GOOD, "judge": lambda self, transaction: None})


def test_a_wrapped_apply_takes_what_its_wrapper_takes() -> None:
    def with_store(self: Any, transaction: Transaction[Any], context: Context, store: object) -> None: ...

    @functools.wraps(with_store)
    def wrapper(self: Any, transaction: Transaction[Any], context: Context) -> None: ...

    @functools.wraps(apply)
    def too_few(self: Any) -> None: ...

    assert make(apply=wrapper)
    with pytest.raises(TypeError, match=r"takes \(self: Any\)"):
        make(apply=too_few)


class Typed(TypedDict):
    x: int


class TypedCodec:
    kind = dict

    def decode(self, data: bytes) -> Typed:
        return Typed(x=int(data))

    def encode(self, value: Typed) -> bytes:
        return b"%d" % value["x"]


def test_the_payload_type_is_what_the_codecs_make() -> None:
    def handler_of(kind: Any, **attributes: Any) -> Any:
        return types.new_class(
            "Made", (TransactionHandler[kind],), {}, lambda space: space.update({**GOOD, "apply": apply, **attributes})
        )

    assert handler_of(Point, encodings={"a": CborCodec(Point), "b": JsonCodec(Point)})
    assert all(map(handler_of, (bytes, Any, object)))
    assert handler_of(object, encodings={"a": CborCodec(Point)})
    assert handler_of(Typed, encodings={"a": TypedCodec()})
    with pytest.raises(TypeError, match=r"of the type Point and declares no encodings.*JsonCodec\(Point\)"):
        handler_of(Point)
    with pytest.raises(TypeError, match=r"of the type Point, but encodings\['b'\] makes bytes"):
        handler_of(Point, encodings={"a": CborCodec(Point), "b": RawCodec()})


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
    assert context.changes == {A: None, B: None}


def test_an_entry_without_bytes_reads_as_none() -> None:
    context = context_of((A, B), (A, B), {A: b"", B: b"b"})
    context.set(B, b"")
    codec = CborCodec(Point)
    assert (context.get(A), context.get(B), context.get(A, codec)) == (None, None, None)
    assert (context.get_many([A, B]), context.get_many([A, B], codec)) == ({}, {})
    assert context.delete_many([A, B]) == []
    assert context.changes == {A: None, B: None}


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
    with pytest.raises(InvalidTransaction, match=f"{B} does not fit its codec"):
        context.get(B, codec)
    context.set_many({A: Point(5, 6), B: Point(7, 8)}, codec)
    assert context.get_many([A, B], codec) == {A: Point(5, 6), B: Point(7, 8)}
    with pytest.raises(
        InvalidTransaction, match=f"the entry for {B} does not fit: x is an integer of 65 bits, not from"
    ):
        context.set_many({A: Point(0, 0), B: Point(2**64, 8)}, codec)
    with pytest.raises(InvalidTransaction, match=f"the entry for {A} does not fit: is None, not Point"):
        context.set(A, None, codec)  # type: ignore[misc]
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
        lambda context: context.add_event("type", ["ke"]),
        lambda context: context.add_event("type", "ke"),
        lambda context: context.add_event("type", data="text"),
        lambda context: context.add_event(1),
        lambda context: context.get(A.encode()),
        lambda context: context.get_many(A),
        lambda context: context.delete_many(A),
        lambda _: InvalidTransaction("message", "text"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_type_is_an_error_where_it_happens(misuse: Callable[[Context], Any]) -> None:
    context = context_of((A,), (A,), {})
    with pytest.raises((TypeError, ValueError)):
        misuse(context)
    assert (context.changes, context.events, context.receipt_data) == ({}, [], [])


def test_attributes_are_pairs_or_a_mapping() -> None:
    context = context_of((), (), {})
    context.add_event("moved", {"id": "5", "to": "bob"})
    context.add_event("moved", [("to", "bob"), ["to", "ann"]], b"data")  # type: ignore[list-item]
    assert [decode_event(event) for event in context.events] == [
        Event("moved", (("id", "5"), ("to", "bob"))),
        Event("moved", (("to", "bob"), ("to", "ann")), b"data"),
    ]


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"id": 5}, "the attribute 'id' of the event 'moved' is 5, not text"),
        ([("id", "5"), ("to", None)], "the attribute 'to' of the event 'moved' is None, not text"),
        ([(1, "5")], "the event 'moved' has the attribute 1, whose key is not text"),
        (["id"], "an attribute of the event 'moved' is 'id', not a pair"),
        ([("id", "5", "6")], "not a pair"),
    ],
)
def test_a_wrong_attribute_of_an_event_is_named(attributes: Any, said: str) -> None:
    context = context_of((), (), {})
    with pytest.raises(TypeError, match=said):
        context.add_event("moved", attributes)
    assert not context.events


def test_a_long_declaration_is_cut() -> None:
    context = context_of(tuple(address(n) for n in range(10, 1010)), (), {})
    with pytest.raises(AuthorizationException, match="and 992 more"):
        context.get(A)
