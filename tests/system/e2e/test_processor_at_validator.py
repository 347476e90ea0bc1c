"""A bare 1.x processor that is careless, late or broken, at our validator. The rules of the wire protocol must hold.

There is a row for each rule that neither ``test_processors`` (a correct processor) nor ``test_processor_lives``
(connections) tests. The SDK does not belong here. Each test makes its own families.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Networks, Shared
from tests.system.e2e.process import DEADLINE_S
from tests.system.e2e.script_family import NAMESPACE, address
from tests.system.independent import protobuf_wire as wire
from tests.system.independent.bare_processor import (
    Apply,
    AuthorizationError,
    BareProcessor,
    Internal,
    ProcessRequest,
    RegistrationError,
    StateAccess,
)
from tests.system.independent.client import Batch
from tests.system.independent.messages import Message, MessageType, ProcessStatus, Status

OVER_THE_LIMIT_BYTES = 32 * 1024 * 1024 + 1


class Bare(NamedTuple):
    """A node, a family of the row's own, and a leaf that its transactions declare."""

    shared: Shared
    author: Author
    family: str
    leaf: str

    def processor(self, apply: Apply, **options: int) -> BareProcessor:
        url = self.shared.network.validator_url
        return BareProcessor(url, self.family, "1.0", [NAMESPACE], apply, timeout=DEADLINE_S, **options)  # type: ignore[arg-type]

    def batch(self) -> Batch:
        made = self.author.transaction(self.family, b"", inputs=[self.leaf], outputs=[self.leaf])
        return self.author.batch(made)

    def answer(self, request: ProcessRequest, status: int, message: str = "") -> Message:
        content = wire.encode(wire.present([(1, status), (2, message)]))
        return Message(MessageType.TP_PROCESS_RESPONSE, request.correlation_id, content)


@pytest.fixture
def bare(shared: Shared, author: Author, named: Callable[[str], str]) -> Iterator[Bare]:
    """A family at the session's node. Other families must still work after the row."""
    yield Bare(shared, author, named("family"), address(named("leaf")))
    shared.api.commit(author.batch(author.intkey("set", named("after"), 1)))


def _writes(request: ProcessRequest, state: StateAccess) -> None:
    state.set({request.header.outputs[0]: b"written"})


@pytest.mark.parametrize("status", [0, int(ProcessStatus.INTERNAL_ERROR), 77])
def test_what_is_no_verdict_is_tried_again_with_a_bound(bare: Bare, status: int) -> None:
    """WIRE.md, life of a processor, 3: after INTERNAL_ERROR the batch is tried again, with a back-off and a limit.

    STATUS_UNSET and unknown numbers are no verdicts either.
    """

    def apply(request: ProcessRequest, state: StateAccess) -> None:
        state.set({bare.leaf: b"never"})
        processor.send(bare.answer(request, status, "not now"))

    with bare.processor(apply) as processor:
        details = bare.shared.api.reject(bare.batch())
        assert details["reason"] == "internal_error"
        assert "failed 5 times" in details["message"]
        assert "not now" in details["message"]
        assert len({request.context_id for request in processor.requests}) == len(processor.requests) == 5
    assert bare.shared.api.leaf(bare.leaf) is None


def test_one_that_comes_right_in_time_commits(bare: Bare) -> None:
    """WIRE.md, life of a processor, 3: the writes of a failed try are dropped before the next try."""
    found: list[dict[str, bytes]] = []

    def apply(request: ProcessRequest, state: StateAccess) -> None:
        found.append(state.get([bare.leaf]))
        state.set({bare.leaf: b"%d" % len(found)})
        if len(found) < 3:
            raise Internal("not now")

    with bare.processor(apply):
        bare.shared.api.commit(bare.batch())
    assert found == [{}, {}, {}]
    assert bare.shared.api.leaf(bare.leaf) == b"3"


@pytest.mark.parametrize("content", [b"\xff", b"\x0a\x01x"], ids=["no message", "a field of another type"])
def test_an_answer_that_cannot_be_read_is_no_verdict(bare: Bare, content: bytes) -> None:
    """WIRE.md: Messages, TpProcessResponse; life of a processor, 3."""

    def apply(request: ProcessRequest, state: StateAccess) -> None:
        if len(processor.requests) == 1:
            processor.send(Message(MessageType.TP_PROCESS_RESPONSE, request.correlation_id, content))

    with bare.processor(apply) as processor:
        bare.shared.api.commit(bare.batch())
        assert len(processor.requests) == 2


def test_the_first_answer_counts_and_later_ones_do_not(bare: Bare) -> None:
    """WIRE.md, Transport: a reply has the request's correlation_id.

    Life of a processor, 2: a context ends with its reply.
    """

    def apply(request: ProcessRequest, state: StateAccess) -> None:
        _writes(request, state)
        processor.send(bare.answer(request, ProcessStatus.OK))
        processor.send(bare.answer(request, ProcessStatus.INVALID_TRANSACTION, "too late"))
        with pytest.raises(AuthorizationError):
            state.set({bare.leaf: b"too late"})

    with bare.processor(apply) as processor:
        bare.shared.api.commit(bare.batch())
        # After the answer to a ping, the validator has handled everything that was sent before.
        processor.wait_for_responses(1)
        processor.ping()
        assert processor.failures == []
        assert len(processor.requests) == 1
    assert bare.shared.api.leaf(bare.leaf) == b"written"


def test_answers_and_contexts_of_another_processor_are_not_its_own(bare: Bare) -> None:
    """WIRE.md, life of a processor, 2: a context_id belongs to one transaction at one processor."""

    def apply(request: ProcessRequest, state: StateAccess) -> None:
        stranger.send(bare.answer(request, ProcessStatus.INVALID_TRANSACTION, "not mine"))
        foreign = StateAccess(stranger, request.context_id)
        for attempt in (lambda: foreign.get([bare.leaf]), lambda: foreign.set({bare.leaf: b"not mine"})):
            with pytest.raises(AuthorizationError):
                attempt()
        _writes(request, state)

    url = bare.shared.network.validator_url
    stranger = BareProcessor(url, bare.family, "2.0", [NAMESPACE], _writes, timeout=DEADLINE_S)
    with stranger, bare.processor(apply) as owner:
        bare.shared.api.commit(bare.batch())
        assert owner.failures == []
    assert bare.shared.api.leaf(bare.leaf) == b"written"


@pytest.mark.parametrize(
    "kind",
    [MessageType.TP_STATE_GET_REQUEST, MessageType.TP_STATE_SET_REQUEST, MessageType.TP_STATE_DELETE_REQUEST],
    ids=lambda kind: kind.name,
)
@pytest.mark.parametrize("frame", [b"\xff\xff", b"", b"\x08\x05\x1a\xff"], ids=["rubbish", "nothing", "truncated"])
def test_what_is_no_message_is_passed_over(bare: Bare, kind: MessageType, frame: bytes) -> None:
    """WIRE.md, Transport: one frame pair per message; Message.content has the type that message_type names."""

    def apply(request: ProcessRequest, state: StateAccess) -> None:
        processor.owner.send_raw(frame)
        processor.send(Message(kind, "rubbish", b"\xff\xff"))
        _writes(request, state)

    with bare.processor(apply) as processor:
        bare.shared.api.commit(bare.batch())
        assert processor.failures == []
    assert bare.shared.api.leaf(bare.leaf) == b"written"


def test_a_message_over_the_limit_ends_its_connection_and_its_work_goes_to_another(bare: Bare) -> None:
    """WIRE.md, life of a processor, 4: a closed connection counts as unregistration.

    The work of the processor goes to another one.
    """

    def apply(request: ProcessRequest, state: StateAccess) -> None:
        # The request gets no answer, so it ends when the processor stops.
        huge.request(MessageType.TP_STATE_SET_REQUEST, bytes(OVER_THE_LIMIT_BYTES))

    batch = bare.batch()
    huge = bare.processor(apply)
    with huge, bare.processor(_writes) as other:
        other.unregister()
        bare.shared.api.accept(batch)
        huge.wait_for_requests(1, DEADLINE_S)
        other.register()
        assert bare.shared.api.settle(batch) == ["COMMITTED"]
        assert len(other.requests) == 1


@pytest.mark.parametrize(
    ("family", "namespaces"), [("", [NAMESPACE]), ("f", ["ABCDEF"]), ("f", ["abc"]), ("f" * 257, [NAMESPACE])]
)
def test_a_registration_that_cannot_stand_is_answered_by_error(bare: Bare, family: str, namespaces: list[str]) -> None:
    """WIRE.md, life of a processor, 1, and Messages, TpRegisterResponse: status ERROR."""
    processor = BareProcessor(bare.shared.network.validator_url, family, "1.0", namespaces, _writes)
    with pytest.raises(RegistrationError, match=f"status {int(Status.ERROR)}"):
        processor.start()


def test_a_validator_that_starts_again_gives_its_work_to_who_registers_again(
    networks: Networks, author: Author
) -> None:
    """WIRE.md, life of a processor, 4: the connection is lost with the validator, but the batch is not lost."""
    network = networks()
    processes = network.parts()
    api = networks.api(network)
    leaf = address("restart")
    batch = author.batch(author.transaction("e2e_bare", b"", inputs=[leaf], outputs=[leaf]))

    def never_done(request: ProcessRequest, state: StateAccess) -> None:
        # The validator ignores unknown messages, so the request ends when the processor stops.
        before.request(999, b"")

    before = BareProcessor(network.validator_url, "e2e_bare", "1.0", [NAMESPACE], never_done, timeout=DEADLINE_S)
    with before:
        api.accept(batch)
        before.wait_for_requests(1, DEADLINE_S)
        mark = len(processes["rest-api"].lines)
        processes["validator"].kill()
    network.validator("validator again").wait_logged("ready")
    processes["rest-api"].wait_logged("connected to the validator", after=mark)
    with BareProcessor(network.validator_url, "e2e_bare", "1.0", [NAMESPACE], _writes, timeout=DEADLINE_S) as after:
        assert api.settle(batch) == ["COMMITTED"]
        assert [request.signature for request in after.requests] == [batch.transactions[0].id]
    assert api.leaf(leaf) == b"written"
