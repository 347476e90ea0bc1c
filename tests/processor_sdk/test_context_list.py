"""``Context.list``: its entries, when pages are fetched, and validators that cannot list or list wrongly."""

import pytest

from processor_sdk import Context, Transaction
from processor_sdk.apply.dispatch import Dispatcher
from protos import packed_pb2, state_context_pb2
from tests.processor_sdk.scripts import (
    INTERNAL,
    INVALID,
    NAMESPACE,
    OK,
    ScriptHandler,
    Spec,
    State,
    address,
    packed,
    packed_request,
    single,
)

A, B, C = address(1), address(2), address(3)
ELSEWHERE = address(1, "bbbbbb")

quiet = Dispatcher([ScriptHandler()])


def test_pages_are_fetched_as_they_are_taken_under_the_transactions_own_context() -> None:
    """The handler takes three of five entries, in pages of two. Other reads in between do not disturb the list."""
    state = State({address(number): b"%d" % number for number in range(5)})

    class Taker(ScriptHandler):
        def apply(self, transaction: Transaction[bytes], context: Context) -> None:
            entries = context.list(NAMESPACE)
            for _ in range(3):
                name, data = next(entries)
                assert context.get(name) == data

    refused, spec = Spec((), (), []), Spec((NAMESPACE,), (), [])
    results = packed(Dispatcher([Taker()]), [[refused, spec], [spec], [spec]], state)
    assert [[result.status for result in unit] for unit in results] == [[INVALID], [OK], [OK]]
    lists = [call[1:] for call in state.calls if call[0] == "list"]
    assert lists == [(f"ctx:{unit}", (NAMESPACE, after)) for unit in (2, 3) for after in ("", address(1))]


ALL = (NAMESPACE,)
LISTS = Spec(ALL, ALL, [["list", NAMESPACE]])


def seen(*entries: tuple[str, bytes]) -> list[bytes]:
    """The receipt data of a list with these entries."""
    return [repr(list(entries)).encode()]


@pytest.mark.parametrize("protocol", ["packed", "1.x"])
def test_a_list_sees_the_transactions_own_writes(protocol: str) -> None:
    script = [["set", B, "new"], ["delete", A], ["list", NAMESPACE], ["delete", B], ["list", NAMESPACE]]
    state, spec = State({A: b"old", C: b"c"}), Spec(ALL, ALL, script)
    expected = [b"held", *seen((B, b"new"), (C, b"c")), b"held", *seen((C, b"c"))]
    if protocol == "1.x":
        assert single(quiet, spec, state).status == OK
        assert state.receipt_data == expected
    else:
        [[result]] = packed(quiet, [[spec]], state)
        assert list(result.data) == expected


def test_a_list_sees_the_changes_of_earlier_transactions_and_units() -> None:
    state = State({A: b"old", C: b"c"})
    first = [Spec(ALL, ALL, [["get", A], ["set", B, "b"]]), LISTS, Spec(ALL, ALL, [["delete", A]]), LISTS]
    failing = [Spec(ALL, ALL, [["set", C, "lost"], ["delete", B]]), LISTS, Spec(ALL, ALL, [["invalid", "no"]])]
    results = packed(quiet, [first, failing, [LISTS]], state)
    assert list(results[0][1].data) == seen((A, b"old"), (B, b"b"), (C, b"c"))
    assert list(results[0][3].data) == seen((B, b"b"), (C, b"c"))
    assert list(results[1][1].data) == seen((C, b"lost"))
    assert list(results[2][0].data) == seen((B, b"b"), (C, b"c"))


def test_a_list_is_of_the_moment_of_its_call() -> None:
    class Late(ScriptHandler):
        def apply(self, transaction: Transaction[bytes], context: Context) -> None:
            context.set(B, b"before")
            entries = context.list(NAMESPACE)
            context.set(A, b"after")
            context.set(B, b"after")
            context.delete(C)
            context.add_receipt_data(repr(list(entries)).encode())

    [[result]] = packed(Dispatcher([Late()]), [[LISTS]], State({C: b"c"}))
    assert list(result.data) == seen((B, b"before"), (C, b"c"))


def test_a_list_through_a_codec_is_typed_and_names_damaged_entries() -> None:
    class Typed(ScriptHandler):
        def apply(self, transaction: Transaction[bytes], context: Context) -> None:
            context.add_receipt_data(repr(list(context.list(NAMESPACE, Number()))).encode())

    spec = Spec((NAMESPACE,), (), [])
    [[result]] = packed(Dispatcher([Typed()]), [[spec]], State({A: b"1", B: b"22"}))
    assert list(result.data) == [repr([(A, 1), (B, 22)]).encode()]
    [[result]] = packed(Dispatcher([Typed()]), [[spec]], State({A: b"1", B: b"no"}))
    assert (result.status, B in result.message) == (INVALID, True)


class Number:
    """A codec of a third party."""

    def decode(self, data: bytes) -> int:
        return int(data)

    def encode(self, value: int) -> bytes:
        return b"%d" % value


def test_a_validator_that_sends_no_batch_id_is_not_asked_to_list() -> None:
    """A 1.x validator, or an older packed one without lists, would never answer."""
    state = State({A: b"a"})
    response = single(quiet, Spec((NAMESPACE,), (), [["list", NAMESPACE]]), state, batch_id="")
    assert response.status == INTERNAL
    assert "list needs Dovetail's validator" in response.message
    content = packed_request([[Spec((NAMESPACE,), (), [["list", NAMESPACE]])]], state.values, batch_id="")
    [result] = packed_pb2.PackedProcessResponse.FromString(quiet.packed(content, state.link)).units[0].results
    assert (result.status, result.message) == (response.status, response.message)
    assert state.calls == []


Page = packed_pb2.StateListResponse
Entry = state_context_pb2.TpStateEntry


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([Page(status="OK", more=True)], "empty page"),
        ([Page(status="OK", entries=[Entry(address=ELSEWHERE)])], f"listed '{ELSEWHERE}'"),
        ([Page(status="OK", entries=[Entry(address=B), Entry(address=A)])], f"behind '{B}'"),
        ([Page(status="OK", entries=[Entry(address=A)], more=True)] * 2, f"behind '{A}'"),
        ([Page()], "status 0"),
    ],
)
def test_a_page_that_cannot_be_right_is_no_verdict(answers: list[Page], said: str) -> None:
    left = iter(answers)
    request = packed_request([[Spec((NAMESPACE,), (), [["list", NAMESPACE]])]], {})
    content = quiet.packed(request, lambda *_: next(left).SerializeToString())
    result = packed_pb2.PackedProcessResponse.FromString(content).units[0].results[0]
    assert (result.status, said in result.message) == (INTERNAL, True)
