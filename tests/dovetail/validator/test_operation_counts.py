"""The cost of a load in operations of the node (messages, parses, write transactions, trie nodes), not in seconds.

Each count bounds what every transaction costs, so a change that raises one slows every node.
"""

import hashlib
import pickle
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from os.path import commonprefix
from pathlib import Path
from typing import Any

import pytest

from dovetail.ledger import batch as ledger_batch
from dovetail.ledger.building import SignedBatch, build_batch, build_transaction
from dovetail.validator.node import Node
from dovetail.validator.store import Store
from protos import packed_pb2
from protos.processor_pb2 import TpProcessResponse, TpRegisterRequest
from protos.transaction_receipt_pb2 import StateChange
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.activations import status_of, submit
from tests.dovetail.validator.nodes import MACHINE, open_node, open_peers
from tests.dovetail.validator.peers import Peer, run
from tests.dovetail.validator.support import SIGNER

BATCHES = 300
LISTS = 3
KNOWN = 2_000
"""How many leaves the state has at the start."""


def batch_at(place: str, nonce: str = "") -> SignedBatch:
    """A batch whose one transaction changes the leaf at ``place``."""
    transaction = build_transaction(
        SIGNER, batcher_pubkey=SIGNER.public_key, family_name="counted", family_version="1.0",
        inputs=[place], outputs=[place], payload=b"", payload_encoding="", nonce=nonce,
    )  # fmt: skip
    return build_batch(SIGNER, [transaction])


def spread(number: int) -> str:
    """An address that is spread evenly, because it is a hash."""
    return "1cf126" + hashlib.sha256(str(number).encode()).hexdigest()


async def serve_packed(processor: Peer, transactions: int, occupancy: int = 512) -> Counter[str]:
    """Register, and answer tasks until ``transactions`` are done.

    Returns counts of messages and of the items in them.
    """
    registration = TpRegisterRequest(
        family="counted", version="1.0", namespaces=["1cf126"], packed_version=1, max_occupancy=occupancy
    )
    processor.send(Envelope.TP_REGISTER_REQUEST, "register", registration.SerializeToString())
    counts: Counter[str] = Counter()
    while counts["transactions"] < transactions:
        envelope = await processor.receive()
        counts[Envelope.MessageType.Name(envelope.message_type)] += 1
        if envelope.message_type != Envelope.PACKED_PROCESS_REQUEST:
            continue
        request = packed_pb2.PackedProcessRequest.FromString(envelope.content)
        response = packed_pb2.PackedProcessResponse()
        for unit in request.units:
            (raw,) = unit.transactions
            (place,) = ledger_batch.verify_transaction(raw).outputs
            change = StateChange(address=place, value=b"changed", type=StateChange.SET)
            response.units.add().results.add(status=TpProcessResponse.OK, state_changes=[change])
        counts["transactions"] += len(request.units)
        counts["entries"] += len(request.entries)
        processor.send(Envelope.PACKED_PROCESS_RESPONSE, envelope.correlation_id, response.SerializeToString())
    return counts


def counting(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """A list that gets an entry for each call of a function: the first argument after ``self``."""
    calls: list[Any] = []
    inner = getattr(owner, name)

    def counted(*args: Any, **named: Any) -> Any:
        calls.append(args[1] if len(args) > 1 else None)
        return inner(*args, **named)

    monkeypatch.setattr(owner, name, counted)
    return calls


def branches_above(state: Iterable[str], changed: Iterable[str]) -> int:
    """How many branches of a trie over ``state`` lie on the paths to the addresses in ``changed``."""
    branches = {commonprefix(pair) for pair in pairwise(sorted(state))}  # noqa: RUF071 (hex characters, not paths)
    return len({place[:length] for place in changed for length in range(len(place))} & branches)


async def _one_block(node: Node, client: Peer, processor: Peer) -> Counter[str]:
    """Submit all lists before the processor registers, so that one block runs them and the counts do not vary."""
    batches = [batch_at(spread(number)) for number in range(BATCHES)]
    share = BATCHES // LISTS
    for start in range(0, BATCHES, share):
        await submit(client, *batches[start : start + share])
    counts = await serve_packed(processor, BATCHES)
    assert {(await status_of(client, batch, wait=True)).status for batch in batches[-1:]} == {1}
    return counts


def test_a_block_of_single_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        state = {spread(number): b"first" for number in range(KNOWN)}
        async with open_node(tmp_path, state=state) as node, open_peers(node, 2) as (client, processor):
            opened = counting(monkeypatch, Store, "_write")
            remembered = counting(monkeypatch, Store, "remember_queue")
            committed = counting(monkeypatch, Store, "commit_block")
            parsed = counting(monkeypatch, ledger_batch, "decode_header")
            checked = counting(monkeypatch, ledger_batch, "_check_signature")
            before = len(parsed)
            counts = await _one_block(node, client, processor)
            # ``serve_packed`` parses each transaction once in this process. The node parses none here.
            assert len(parsed) - before == len(checked) == BATCHES
            (block,) = committed
            assert len(block.batches) == BATCHES
            # One write for each accepted list, and one for the block, which also removes its batches from the queue.
            # A tick may come meanwhile and write once that the family was served for the first time.
            assert len(remembered) <= 1
            assert len(opened) - len(remembered) == LISTS + 1
            # Tasks of at most 256 transactions, each declared input is sent once, and there are no other messages.
            assert counts["PACKED_PROCESS_REQUEST"] == 2
            assert counts["entries"] == BATCHES
            assert counts["TP_REGISTER_RESPONSE"] == 1
            assert set(counts) == {"PACKED_PROCESS_REQUEST", "TP_REGISTER_RESPONSE", "entries", "transactions"}
            # Each leaf, and every branch above a changed leaf, is written once.
            assert len(block.nodes) == BATCHES + branches_above(state, [spread(number) for number in range(BATCHES)])
            assert len(block.superseded) == len(block.nodes)

    run(scenario)


def test_verification_is_handed_out_in_many_batches_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with open_node(tmp_path) as node, open_peers(node, 1) as (client,):
            worker = node._pool._workers[0]
            handed = counting(monkeypatch, worker.pipe, "send")
            batches = [batch_at(spread(number)) for number in range(BATCHES)]
            await submit(client, *batches)
            data_bytes = sum(len(batch.raw) for batch in batches)
            assert 1 <= len(handed) <= data_bytes // (64 * 1024) + 1

    run(scenario)


def test_a_hot_key_travels_in_the_same_messages(tmp_path: Path) -> None:
    """Batches share tasks even if each waits for the batch before it, as independent batches do."""

    async def scenario() -> None:
        place = spread(0)
        # The size of tasks depends on the measured pace, so the clock stands still.
        timeless = MACHINE._replace(clock_s=lambda: 0.0)
        async with (
            open_node(tmp_path, state={place: b"0"}, surroundings=timeless) as node,
            open_peers(node, 2) as (client, processor),
        ):
            batches = [batch_at(place, str(number)) for number in range(BATCHES)]
            await submit(client, *batches)
            counts = await serve_packed(processor, BATCHES)
            # Each message holds the current value once.
            assert (counts["PACKED_PROCESS_REQUEST"], counts["entries"]) == (2, 2)
            assert (await status_of(client, batches[-1], wait=True)).status == 1

    run(scenario)


def test_a_verified_batch_crosses_the_process_boundary_with_its_bytes_once() -> None:
    batch = ledger_batch.verify_batch(batch_at(spread(0)).raw)
    assert pickle.loads(pickle.dumps(batch)) == batch
    assert len(pickle.dumps(batch, pickle.HIGHEST_PROTOCOL)) < 2 * len(batch.raw) + 1_000
