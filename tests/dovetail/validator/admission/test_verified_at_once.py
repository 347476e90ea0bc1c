"""One small batch whose submitter waits is checked where it arrives, while nothing else is to be done."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.ledger.building import SignedBatch
from dovetail.validator import node as node_module
from dovetail.validator.admission.submission import Submissions
from dovetail.validator.admission.verifier import Verified
from dovetail.validator.node import Node
from dovetail.validator.transport.gateway import Request
from protos.client_batch_submit_pb2 import ClientBatchSubmitResponse
from protos.processor_pb2 import TpProcessResponse
from tests.dovetail.validator.nodes import open_node, open_peers, process, register, signed_batch
from tests.dovetail.validator.peers import run
from tests.dovetail.validator.submissions import acceptance, hand_in, submission


@pytest.fixture(autouse=True)
def _only_what_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """No timer helps out."""
    monkeypatch.setattr(node_module, "_UNWRITTEN_S_MAX", 3600)
    monkeypatch.setattr(node_module, "_TICK_S", 3600)


def _handed_out(node: Node) -> list[int]:
    """How many batches each submission holds that the verifiers get."""
    verify = node._pool.verify
    handed_out: list[int] = []

    def counted(raw_batches: list[bytes], on_verified: Callable[[Verified], None]) -> None:
        handed_out.append(len(raw_batches))
        verify(raw_batches, on_verified)

    node._pool.verify = counted  # type: ignore[method-assign]
    return handed_out


def _batch_of_bytes(size: int) -> SignedBatch:
    padded = "n" * 1_000
    return signed_batch(padded + "n" * (size - len(signed_batch(padded).raw)))


def test_it_costs_the_verifiers_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_node(tmp_path) as node, open_peers(node, 2) as (client, processor):
            await register(processor)
            handed_out = _handed_out(node)
            for batch in (signed_batch(), _batch_of_bytes(2_048)):
                hand_in(client, batch)
                await process(processor, [TpProcessResponse.OK])
                assert (await acceptance(client)).committed
            assert handed_out == []

    run(test)


@pytest.mark.parametrize("why", ["nobody waits", "two", "large", "others are pending", "verifiers are at work"])
def test_all_else_is_for_the_verifiers(tmp_path: Path, why: str) -> None:
    async def test() -> None:
        pending = [signed_batch("before")] if why == "others are pending" else []
        async with open_node(tmp_path, *pending) as node, open_peers(node, 1) as (client,):
            if why == "verifiers are at work":
                node._pool.verify([signed_batch("before").raw] * 100, lambda _: None)
            handed_out = _handed_out(node)
            batches = [_batch_of_bytes(2_049) if why == "large" else signed_batch("1")]
            if why == "two":
                batches.append(signed_batch("2"))
            hand_in(client, *batches, waits=why != "nobody waits")
            answer = await acceptance(client)
            assert (answer.status, handed_out) == (ClientBatchSubmitResponse.OK, [len(batches)])

    run(test)


def test_of_those_that_come_together_one_alone_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submit = Submissions.submit

    def both(submissions: Submissions, request: Request) -> None:
        submit(submissions, request)
        submit(submissions, request._replace(content=submission([signed_batch("second")])))

    # As where both are read in one sweep.
    monkeypatch.setattr(Submissions, "submit", both)

    async def test() -> None:
        async with open_node(tmp_path) as node, open_peers(node, 1) as (client,):
            handed_out = _handed_out(node)
            hand_in(client, signed_batch("first"))
            first, second = await acceptance(client), await acceptance(client)
            assert [*first.batch_ids, *second.batch_ids] == [signed_batch("first").id, signed_batch("second").id]
            assert handed_out == [1]

    run(test)


def test_what_is_refused_is_refused_as_the_verifiers_do(tmp_path: Path) -> None:
    broken = signed_batch()._replace(raw=signed_batch().raw.replace(b"nobody's", b"somebody"))

    async def test() -> None:
        async with open_node(tmp_path) as node, open_peers(node, 1) as (client,):
            refusals = []
            for waits in (True, False):
                handed_out = _handed_out(node)
                hand_in(client, broken, waits=waits)
                refusals.append(await acceptance(client))
                assert handed_out == ([] if waits else [1])
            assert refusals[0] == refusals[1]
            assert refusals[0].reason == "signature_mismatch"

    run(test)


def test_what_is_read_behind_a_write_is_taken_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[Request] = []
    submit, write = Submissions.submit, Node._write_taken

    def seen(submissions: Submissions, request: Request) -> None:
        requests.append(request)
        submit(submissions, request)

    def and_another(node: Node) -> None:
        write(node)
        # What was taken is committed already, so that nothing is pending.
        request = requests[-1]._replace(content=submission([signed_batch("second")]))
        submit(node._clients.submissions, request)
        assert node._clients.submissions.has_checked

    monkeypatch.setattr(Submissions, "submit", seen)

    async def test() -> None:
        async with open_node(tmp_path) as node, open_peers(node, 2) as (client, processor):
            await register(processor)
            hand_in(client, signed_batch("first"))
            await process(processor, [TpProcessResponse.OK])
            assert (await acceptance(client)).committed
            monkeypatch.setattr(Node, "_write_taken", and_another)
            hand_in(client, signed_batch("first"), waits=False)
            await acceptance(client)
            monkeypatch.setattr(Node, "_write_taken", write)
            await process(processor, [TpProcessResponse.OK])
            assert (await acceptance(client)).committed

    run(test)
