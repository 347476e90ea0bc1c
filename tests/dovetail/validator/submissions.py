"""Batches handed in with a word of whether their submitter waits, and the answer to that. No assertions."""

from collections.abc import Sequence

from dovetail.ledger.building import SignedBatch, encode_batch_list
from protos.client_batch_submit_pb2 import ClientBatchSubmitRequest, ClientBatchSubmitResponse
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.peers import Peer


def submission(batches: Sequence[SignedBatch], *, waits: bool = True) -> bytes:
    """The submit request, as the REST API makes it of a list."""
    return ClientBatchSubmitRequest(waits=waits).SerializeToString() + encode_batch_list(batches)


def hand_in(client: Peer, *batches: SignedBatch, waits: bool = True) -> None:
    """Send it; the answer comes in its time."""
    client.send(Envelope.CLIENT_BATCH_SUBMIT_REQUEST, "submission", submission(batches, waits=waits))


async def acceptance(client: Peer) -> ClientBatchSubmitResponse:
    """The next answer to one; whatever arrives before it is passed over."""
    while (envelope := await client.receive()).message_type != Envelope.CLIENT_BATCH_SUBMIT_RESPONSE:
        pass
    return ClientBatchSubmitResponse.FromString(envelope.content)
