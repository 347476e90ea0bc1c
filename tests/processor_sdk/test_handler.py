"""What is checked when a handler's class is made, and what a context refuses."""

from collections.abc import Callable
from typing import Any

import pytest

from ledger.addresses import AccessList
from ledger.transaction import Transaction
from processor_sdk import AuthorizationException, Context, InvalidTransaction, TransactionHandler
from tests.processor_sdk.scripts import NAMESPACE, address

GOOD: dict[str, Any] = {"family_name": "f", "family_version": "1.0", "namespaces": (NAMESPACE,)}


def apply(self: TransactionHandler, transaction: Transaction, context: Context) -> None:
    pass


async def apply_later(self: TransactionHandler, transaction: Transaction, context: Context) -> None:
    pass


def make(**attributes: Any) -> type:
    return type("Made", (TransactionHandler,), {**GOOD, "apply": apply, **attributes})


@pytest.mark.parametrize("namespaces", [("aaaaaa",), ("aaaaaa", "bbbbbb00"), ("0" * 70,)])
def test_good_attributes_make_a_class(namespaces: tuple[str, ...]) -> None:
    assert isinstance(make(namespaces=namespaces)(), TransactionHandler)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"family_name": ""}, "family_name"),
        ({"family_name": None}, "family_name"),
        ({"family_version": 1.0}, "family_version"),
        ({"namespaces": "aaaaaa"}, "tuple"),
        ({"namespaces": ()}, "tuple"),
        ({"namespaces": ("aaaaaa", "aaaa")}, "'aaaa'"),
        ({"namespaces": ("AAAAAA",)}, "lower-case"),
        ({"namespaces": ("aaaaaaa",)}, "even"),
        ({"namespaces": ("0" * 72,)}, "70"),
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
    def fetch(addresses: Any) -> dict[str, bytes]:
        return {name: state[name] for name in addresses if name in state}

    return Context(AccessList(inputs), AccessList(outputs), (NAMESPACE,), fetch)


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
