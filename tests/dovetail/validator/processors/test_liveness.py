"""Processors that go silent, stop reading or close.

Each task is lost once; a processor that returns gets work again.
"""

import pytest

from dovetail.ledger.limits import Limits
from dovetail.validator.processors.registry import ProcessorAvailable, ProcessorUnavailable, TaskLost
from protos import processor_pb2, state_context_pb2
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.processors_support import FAMILY, Bench, make_task
from tests.dovetail.validator.support import view_of

OK = processor_pb2.TpProcessResponse(status="OK")
LIMITS = Limits(processor_ping_ms=100, processor_silence_ms=300)


def pinged(bench: Bench) -> list[bytes]:
    """The identities that were pinged since the last call; no other message was sent."""
    sent = bench.take_sent()
    assert {frame.message_type for frame in sent} <= {Envelope.PING_REQUEST}
    return [frame.identity for frame in sent]


def test_the_quiet_are_pinged_once_and_the_silent_lose_their_tasks() -> None:
    bench = Bench(LIMITS)
    bench.register(b"silent")
    task = make_task(1)
    bench.start(task)
    bench.register(b"alive")
    bench.take_sent()
    bench.now_ms += 100
    assert bench.processors.tick() == []
    assert pinged(bench) == []
    bench.now_ms += 1
    assert bench.processors.tick() == []
    assert pinged(bench) == [b"silent", b"alive"]
    assert bench.processors.mark_alive(b"alive") == []
    assert bench.processors.mark_alive(b"nobody") == []
    bench.now_ms += 100
    assert bench.processors.tick() == []
    assert pinged(bench) == []
    bench.now_ms += 101
    (left, lost) = bench.processors.tick()
    assert left == ProcessorUnavailable((FAMILY,), "it is silent: no answer to a ping for 201 ms")
    assert lost == TaskLost(task, True)
    assert pinged(bench) == [b"alive"]
    assert bench.processors.count(FAMILY) == 1
    assert bench.free().identity == b"alive"


def test_the_silent_take_work_again_when_they_are_heard() -> None:
    bench = Bench(LIMITS)
    bench.register()
    sent = bench.start(make_task(1))
    bench.now_ms += 101
    bench.processors.tick()
    bench.now_ms += 201
    assert len(bench.processors.tick()) == 2
    bench.now_ms += 1_000
    assert bench.processors.tick() == []
    assert not bench.processors.has(FAMILY)
    assert bench.processors.mark_alive(b"p") == [ProcessorAvailable(FAMILY, False)]
    assert bench.processors.mark_alive(b"p") == []
    # The processor's former task belongs to another processor now, so the answer has no effect.
    assert bench.answer(sent, OK) == []
    assert bench.free().capacity == 10
    bench.answer(bench.start(make_task(2)), OK)


def test_a_probe_drops_who_is_gone_and_nobody_else() -> None:
    bench = Bench(LIMITS)
    for name in (b"gone", b"full", b"fine"):
        bench.register(name)
    bench.take_sent()
    bench.gone.add(b"gone")
    bench.full.add(b"full")
    assert bench.processors.probe() == [ProcessorUnavailable((FAMILY,), "its connection closed")]
    assert pinged(bench) == [b"fine"]
    assert bench.processors.count(FAMILY) == 2


def test_a_ping_that_cannot_be_sent_shows_a_closed_connection() -> None:
    bench = Bench(LIMITS)
    bench.register()
    bench.gone.add(b"p")
    bench.now_ms += 101
    assert bench.processors.tick() == [ProcessorUnavailable((FAMILY,), "its connection closed")]
    assert bench.processors.tick() == []


@pytest.mark.parametrize("gone", [False, True])
def test_a_task_that_could_not_be_sent_is_lost(gone: bool) -> None:
    """The peer may read again a moment later, but its task was dropped and will never be answered."""
    bench = Bench()
    bench.register()
    task = make_task(1)
    refusing = bench.gone if gone else bench.full
    refusing.add(b"p")
    assert bench.processors.start(bench.free(), task, lambda batch: view_of({}))
    refusing.clear()
    bench.processors.mark_alive(b"p")
    assert not bench.processors.free(FAMILY)
    assert bench.processors.tick() == [ProcessorUnavailable((FAMILY,), "it takes no messages"), TaskLost(task, True)]
    assert bench.processors.tick() == []
    bench.register()
    assert bench.free().capacity == 10


def test_a_state_response_that_could_not_be_sent_loses_the_task() -> None:
    bench = Bench()
    bench.register()
    task = make_task(1)
    sent = bench.start(task)
    bench.full.add(b"p")
    get = state_context_pb2.TpStateGetRequest(context_id=sent.message.context_id)
    assert bench.handle(b"p", Envelope.TP_STATE_GET_REQUEST, get) == []
    bench.full.clear()
    assert TaskLost(task, True) in bench.processors.tick()
