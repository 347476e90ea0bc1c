"""Failures that the tests found: each states what must hold, and fails until it does."""

from ledger.limits import Limits
from protos.state_context_pb2 import TpStateGetRequest
from protos.validator_pb2 import Message as Envelope
from tests.validator.processors_support import Bench, make_task
from tests.validator.support import address


def test_an_answer_to_a_conversation_fits_a_message() -> None:
    """A packed processor's reads stop at ``message_bytes_max``; a 1.x processor's do not."""
    bench = Bench(Limits(message_bytes_max=1_000))
    bench.register()
    value = bytes(600)
    sent = bench.start(make_task(1), {address(1): value, address(3): value})
    get = TpStateGetRequest(context_id=sent.message.context_id, addresses=[address(1), address(3)])
    assert bench.ask(b"p", Envelope.TP_STATE_GET_REQUEST, get).ByteSize() < 1_000
