"""A processor that lies: its writes outside the declared outputs do not reach the state, in either protocol."""

from pathlib import Path

import pytest

from dovetail.ledger.building import build_batch, build_transaction, encode_batch_list
from dovetail.validator.node import Node
from protos.client_batch_submit_pb2 import ClientBatchStatus, ClientBatchStatusRequest, ClientBatchStatusResponse
from protos.packed_pb2 import PackedProcessResponse
from protos.processor_pb2 import TpProcessResponse, TpRegisterRequest
from protos.transaction_receipt_pb2 import StateChange
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.nodes import open_node, open_peers
from tests.dovetail.validator.peers import Peer, run
from tests.dovetail.validator.support import SIGNER, address

HERE, ELSEWHERE, FOREIGN = address(1), address(2), "ab" * 35


async def _answer_to(peer: Peer, *types: int) -> Envelope:
    while (message := await peer.receive()).message_type not in types:
        pass
    return message


def _root(node: Node) -> str:
    head = node._store.head
    assert head is not None
    return head.root.hash.hex()


@pytest.mark.parametrize("where", [ELSEWHERE, FOREIGN])
def test_what_it_writes_outside_the_outputs_is_in_no_state(tmp_path: Path, where: str) -> None:
    async def test() -> None:
        async with open_node(tmp_path) as node, open_peers(node, 2) as (processor, client):
            registration = TpRegisterRequest(
                family="lied", version="1.0", namespaces=["1cf126", "abab"], packed_version=2
            )
            processor.send(Envelope.TP_REGISTER_REQUEST, "register", registration.SerializeToString())
            await _answer_to(processor, Envelope.TP_REGISTER_RESPONSE)
            transaction = build_transaction(
                SIGNER, batcher_pubkey=SIGNER.public_key, family_name="lied", family_version="1.0", inputs=(),
                outputs=(HERE,), payload=b"", payload_encoding="", nonce="1",
            )  # fmt: skip
            batch = build_batch(SIGNER, [transaction])
            before = _root(node)
            client.send(Envelope.CLIENT_BATCH_SUBMIT_REQUEST, "submit", encode_batch_list([batch]))
            asked = ClientBatchStatusRequest(batch_ids=[batch.id], wait=True, timeout=60).SerializeToString()
            client.send(Envelope.CLIENT_BATCH_STATUS_REQUEST, "status", asked)
            task = await _answer_to(processor, Envelope.PACKED_PROCESS_REQUEST)
            lie = PackedProcessResponse()
            result = lie.units.add().results.add(status=TpProcessResponse.OK)
            for place in (HERE, where):
                result.state_changes.add(address=place, value=b"a lie", type=StateChange.SET)
            processor.send(Envelope.PACKED_PROCESS_RESPONSE, task.correlation_id, lie.SerializeToString())
            told = await _answer_to(client, Envelope.CLIENT_BATCH_STATUS_RESPONSE)
            (status,) = ClientBatchStatusResponse.FromString(told.content).batch_statuses
            assert status.status == ClientBatchStatus.INVALID
            assert where in status.invalid_transactions[0].message
            assert _root(node) == before

    run(test)
