"""A packed processor that lies to a real validator: forbidden writes leave nothing, and other work continues.

There is one row for each lie. ``tests/system/e2e/test_processor_at_validator.py`` has such rows for the 1.x
conversation; ``tests/contracts/test_assignments.py`` and ``tests/dovetail/validator`` test executor and registry.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from protos import state_context_pb2
from protos.packed_pb2 import PackedProcessRequest as Task
from protos.validator_pb2 import Message as Envelope
from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Shared
from tests.system.e2e.script_family import NAMESPACE, address
from tests.system.faults.liar import Liar, Result, answer, ok
from tests.system.independent.client import Batch, intkey_address

TRUE = b"true"
FALSE = b"false"
FLOOD = 5_000


class Stage(NamedTuple):
    """A liar's family, its batch with one transaction that may write ``leaf``, and addresses that are forbidden."""

    shared: Shared
    liar: Liar
    batch: Batch
    leaf: str
    other: str
    foreign: str


@pytest.fixture
def stage(shared: Shared, author: Author, named: Callable[[str], str]) -> Iterator[Stage]:
    """A registered liar. At the end, other families and an honest processor of this family continue."""
    family, leaf, other = named("liar"), address(named("leaf")), address(named("other"))
    foreign = intkey_address(named("foreign"))
    batch = author.batch(author.transaction(family, b"", inputs=[leaf], outputs=[leaf, foreign]))
    with Liar(shared.network.validator_url, family, NAMESPACE) as liar:
        yield Stage(shared, liar, batch, leaf, other, foreign)
    shared.api.commit(author.batch(author.intkey("set", named("after"), 1)))
    with Liar(shared.network.validator_url, family, NAMESPACE) as honest:
        again = author.batch(author.transaction(family, b"", inputs=[other], outputs=[other]))
        shared.api.accept(again)
        task = honest.task()
        while task.units[0].batch_id != again.id:
            honest.send_answer(task, answer([Result(status="INVALID_TRANSACTION")]))
            task = honest.task()
        honest.send_answer(task, answer([ok({other: TRUE})]))
        assert shared.api.settle(again) == ["COMMITTED"]
    assert shared.api.leaf(other) == TRUE
    assert shared.api.leaf(foreign) is None


REFUSED: dict[str, Callable[[Stage], list[Result]]] = {
    "a write outside its outputs": lambda stage: [ok({stage.leaf: TRUE, stage.other: FALSE})],
    "a write outside its namespaces": lambda stage: [ok({stage.leaf: TRUE, stage.foreign: FALSE})],
    "a write at no address": lambda stage: [ok({stage.leaf: TRUE, "rubbish": FALSE})],
    "a write at a prefix": lambda stage: [ok({stage.leaf[:40]: FALSE})],
    "a write at an address and more": lambda stage: [ok({stage.leaf + "00": FALSE})],
    "a write in capitals": lambda stage: [ok({stage.leaf.upper(): FALSE})],
    "a value over the limit": lambda stage: [ok({stage.leaf: bytes(4 * 1024 * 1024 + 1)})],
    "a receipt over the limit": lambda stage: [Result(status="OK", data=[bytes(4 * 1024 * 1024 + 1)])],
}
"""Lies that make the transaction INVALID, as any processor with this answer would."""


@pytest.mark.parametrize("lie", REFUSED)
def test_what_is_outside_its_rights_makes_it_invalid(stage: Stage, lie: str) -> None:
    stage.shared.api.accept(stage.batch)
    stage.liar.send_answer(stage.liar.task(), answer(REFUSED[lie](stage)))
    assert stage.shared.api.settle(stage.batch) == ["INVALID"]
    assert stage.shared.api.details(stage.batch)["reason"] == "invalid_transaction"
    assert [stage.shared.api.leaf(leaf) for leaf in (stage.leaf, stage.other, stage.foreign)] == [None] * 3


NO_VERDICT: dict[str, Callable[[Stage], bytes]] = {
    "nothing": lambda stage: b"",
    "rubbish": lambda stage: b"\xff" * 1_000,
    "a length far beyond the end": lambda stage: b"\x0a\xff\xff\xff\xff\x07" + bytes(100),
    "fields within fields": lambda stage: _nested(10_000),
    "a unit of no results": lambda stage: answer([]),
    "an unknown verdict": lambda stage: answer([Result(status=77)]),  # type: ignore[arg-type]
    "a verdict of the other protocol": lambda stage: b"\x08\x01",
}
"""Answers without a verdict: the transaction is tried again, a limited number of times."""


def _nested(depth: int) -> bytes:
    content = b""
    for _ in range(depth):
        length = len(content)
        digits = b""
        while length > 0x7F:
            digits += bytes([length & 0x7F | 0x80])
            length >>= 7
        content = b"\x0a" + digits + bytes([length]) + content
    return content


@pytest.mark.parametrize("lie", NO_VERDICT)
def test_what_is_no_verdict_is_tried_again(stage: Stage, lie: str) -> None:
    stage.shared.api.accept(stage.batch)
    stage.liar.send_answer(stage.liar.task(), NO_VERDICT[lie](stage))
    second = stage.liar.task()
    stage.liar.send_answer(second, answer([ok({stage.leaf: TRUE})]))
    assert stage.shared.api.settle(stage.batch) == ["COMMITTED"]
    assert stage.shared.api.leaf(stage.leaf) == TRUE


def _before(stage: Stage, task: Task) -> None:
    """Send answers with unknown context ids, and with ids that resemble that of the task. Then send the true answer."""
    for context_id in ("", "rubbish", task.context_id[:-1], task.context_id + "0", task.context_id.upper() + "x"):
        stage.liar.send(Envelope.PACKED_PROCESS_RESPONSE, context_id, answer([ok({stage.leaf: FALSE})]))
    stage.liar.send_answer(task, answer([ok({stage.leaf: TRUE})]))


def _twice(stage: Stage, task: Task) -> None:
    stage.liar.send_answer(task, answer([ok({stage.leaf: TRUE})]))
    stage.liar.send_answer(task, answer([ok({stage.leaf: FALSE})]))
    stage.liar.send_answer(task, answer([Result(status="INVALID_TRANSACTION")]))


def _more_than_asked(stage: Stage, task: Task) -> None:
    surplus = ok({stage.leaf: FALSE, stage.other: FALSE})
    stage.liar.send_answer(task, answer([ok({stage.leaf: TRUE}), surplus], [surplus]))


def _after_unregistering(stage: Stage, task: Task) -> None:
    stage.liar.send(Envelope.TP_UNREGISTER_REQUEST, "unregister", b"")
    stage.liar.receive(Envelope.TP_UNREGISTER_RESPONSE)
    stage.liar.send_answer(task, answer([ok({stage.leaf: TRUE})]))
    # The liar is no processor any more, so its messages have no effect.
    stage.liar.send_answer(task, answer([ok({stage.leaf: FALSE})]))


def _for_another(stage: Stage, task: Task) -> None:
    with Liar(stage.shared.network.validator_url, f"{task.units[0].batch_id[:8]}", NAMESPACE) as stranger:
        stranger.send_answer(task, answer([ok({stage.leaf: FALSE})]))
        get = state_context_pb2.TpStateGetRequest(context_id=f"{task.context_id}:0", addresses=[stage.leaf])
        stranger.send(Envelope.TP_STATE_GET_REQUEST, "get", get.SerializeToString())
        refused = stranger.receive(Envelope.TP_STATE_GET_RESPONSE).content
        response = state_context_pb2.TpStateGetResponse.FromString(refused)
        assert response.status == state_context_pb2.TpStateGetResponse.AUTHORIZATION_ERROR
    stage.liar.send_answer(task, answer([ok({stage.leaf: TRUE})]))


def _flood(stage: Stage, task: Task) -> None:
    """Send messages of unknown types and of other peers' types, undecodable state requests, and undecodable bytes."""
    for number in range(FLOOD):
        stage.liar.send(50_000 + number, "flood", bytes(100))
        stage.liar.send(Envelope.TP_PROCESS_RESPONSE, f"{number}", b"\xff")
        stage.liar.send(Envelope.TP_STATE_SET_REQUEST, "set", b"\x0a\xff")
        stage.liar.send_raw(b"\xff" * 20)
        stage.liar.send_raw(b"", b"", b"")
    stage.liar.ping()
    stage.liar.send_answer(task, answer([ok({stage.leaf: TRUE})]))


PASSED_OVER: dict[str, Callable[[Stage, Task], None]] = {
    "answers under other contexts": _before,
    "two answers": _twice,
    "more answers than requests": _more_than_asked,
    "an answer after unregistering": _after_unregistering,
    "an answer to another's task": _for_another,
    "a flood of messages that are no answers": _flood,
}
"""Lies that come with a true answer. The true answer must count."""


@pytest.mark.parametrize("lie", PASSED_OVER)
def test_what_is_not_its_to_say_is_passed_over(stage: Stage, lie: str) -> None:
    stage.shared.api.accept(stage.batch)
    PASSED_OVER[lie](stage, stage.liar.task())
    assert stage.shared.api.settle(stage.batch) == ["COMMITTED"]
    assert [stage.shared.api.leaf(leaf) for leaf in (stage.leaf, stage.other)] == [TRUE, None]
