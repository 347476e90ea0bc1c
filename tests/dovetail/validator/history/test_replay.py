"""Replay with processors on sockets of the test: processors that end, and processors that migrate."""

import asyncio
from pathlib import Path
from typing import Any, ClassVar, cast
from unittest.mock import Mock

import pytest

from dovetail.ledger.limits import Limits
from dovetail.ledger.permitted import Permission, encode_permitted_families
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.execution.model import Applied, Rejected, Result, Verdict, Withdrawn
from dovetail.validator.core.journal.block_run import BlockRun
from dovetail.validator.core.journal.migrations import batch_for
from dovetail.validator.core.state.nodes import EMPTY
from dovetail.validator.history import replay as replay_module
from dovetail.validator.history.replay import TRIES_MAX, ProcessorsMissing, Replay, families_needed
from dovetail.validator.history.verification.chain import CheckedBlock, Verification
from dovetail.validator.history.verification.findings import Findings
from dovetail.validator.history.verification.outcomes import compare
from dovetail.validator.processors.own import NO_FAMILIES
from dovetail.validator.store import StoreReader
from protos import packed_pb2, processor_pb2
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.rehearsal.rehearsal_chain import Chain, Step
from tests.dovetail.validator.history.verified import Here, bare, commit, intkey
from tests.dovetail.validator.peers import Peer, run
from tests.dovetail.validator.support import address, make_batch, make_transaction, permitting, view_of

V1, V2 = FamilyVersion("intkey", "1.0"), FamilyVersion("intkey", "2.0")


class Again:
    """A replay of one block of the store at ``folder``, with its findings and finished blocks."""

    def __init__(self, folder: Path, num: int, wait_s: float) -> None:
        self.reader = StoreReader.open(folder)
        self.findings = Findings()
        verification = Verification(self.reader, Here(), self.findings)
        self.block = list(verification.blocks())[num]
        assert self.findings.kept == []
        self.done: list[CheckedBlock] = []
        self.replay = Replay(
            "tcp://127.0.0.1:*",
            Limits(),
            wait_s,
            self.reader,
            verification.node,
            self.findings.add,
            self.done.append,
            NO_FAMILIES,
        )

    def close(self) -> None:
        self.replay.close()
        self.reader.close()

    async def run(self) -> None:
        await self.replay.run(self.block)
        await self.replay.finish()


async def register(peer: Peer, family: FamilyVersion, *, migrates: bool = False) -> None:
    """Serve a version by the 1.x conversation."""
    request = processor_pb2.TpRegisterRequest(
        family=family.name, version=family.version, namespaces=["1cf126"], max_occupancy=1, migrates=migrates
    )
    peer.send(Envelope.TP_REGISTER_REQUEST, "register", request.SerializeToString())


async def asked(peer: Peer) -> Envelope:
    """The next transaction that a processor gets."""
    while (envelope := await peer.receive()).message_type != Envelope.TP_PROCESS_REQUEST:
        if envelope.message_type == Envelope.PING_REQUEST:
            peer.send(Envelope.PING_RESPONSE, envelope.correlation_id)
    return envelope


async def die_of_each(endpoint: str, paused: asyncio.Event, lives: list[int]) -> None:
    """A processor that ends at every transaction, and starts again when the replay waits for it."""
    while True:
        peer = Peer(endpoint)
        try:
            await register(peer, V1)
            await asked(peer)
            lives.append(len(lives))
            paused.clear()
        finally:
            peer.close()
        await paused.wait()


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_a_block_that_ends_its_processor_each_time_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    """The block is tried ``TRIES_MAX`` times, also if other batches of it wait for the processor."""
    chain = Chain(tmp_path / "store")
    steps: list[list[Step]] = [[("set", f"n{number}", 1)] for number in range(batches)]
    chain.steps(*steps)
    chain.close()

    async def test() -> None:
        again = Again(tmp_path / "store", 0, wait_s=60)
        lives: list[int] = []
        paused = asyncio.Event()
        pause = Replay._pause

        def pausing(*of: Any) -> bool:
            paused.set()
            return pause(*of)

        monkeypatch.setattr(Replay, "_pause", pausing)
        dying = asyncio.ensure_future(die_of_each(again.replay.endpoint, paused, lives))
        await again.run()
        dying.cancel()
        await asyncio.wait({dying})
        again.close()
        # After the first loss, the batch runs in a task of its own. The first loss does not count as a try.
        assert len(lives) == TRIES_MAX + 1
        assert again.done == [again.block]
        # One finding is for the batch that ended the processor, one for all batches after it. No finding is for the
        # root.
        lost, *others = again.findings.kept
        assert (lost.what, lost.found) == (
            "reexecution_processor_lost",
            "its processor of intkey 1.0 ended, or gave no answer in time, while it ran this batch alone",
        )
        assert [other.found for other in others] == [
            f"{rest} of the block could not be run, or only without an earlier batch's writes: they are not compared"
            for rest in ([], ["1 batch"], ["2 batches"])[batches - 1]
        ]

    run(test)


class Ended:
    """A finished execution with these results."""

    changes: ClassVar[dict[str, bytes | None]] = {}

    def __init__(self, *results: Result) -> None:
        self._results = list(results)

    def results(self) -> list[Result]:
        return self._results


def test_batches_behind_one_without_a_verdict_share_one_finding(tmp_path: Path) -> None:
    """Batches after the failed batch run on a state without its writes. A batch before it has its own finding."""
    chain = Chain(tmp_path / "store")
    steps: list[list[Step]] = [[("set", f"n{number}", 1)] for number in range(6)]
    chain.steps(*steps)
    chain.close()
    reader = StoreReader.open(tmp_path / "store")
    block = next(iter(Verification(reader, Here(), Findings()).blocks()))
    reader.close()
    same = [Applied(tuple(receipts)) for receipts in block.receipts]
    refused, failed = Rejected("invalid_transaction", "no"), Withdrawn("internal_error", V1, message="why")
    other = Applied((b"",))
    findings = Findings()
    compare(
        block, cast(BlockRun, Ended(same[0], refused, failed, refused, other, same[5])), cast(Any, None), findings.add
    )
    told = [(finding.what, finding.found) for finding in findings.kept]
    assert told[:2] == [
        ("reexecuted_verdict", "invalid_transaction: no"),
        ("reexecution_internal_error", "internal_error: why"),
    ]
    assert [(what, found.split(" could")[0]) for what, found in told[2:]] == [
        ("reexecution_not_run", "2 batches of the block")
    ]


def make_migration(folder: Path) -> None:
    """Block 1 is the migration of intkey 2.0, which changes nothing."""
    moves = Permission(V2, 1, migrate=("1cf126",))
    setting = permitting(encode_permitted_families([Permission(V1), moves]))
    chain = Chain(folder)
    commit(chain, bare("any", outputs=list(setting)), changes={**setting})
    commit(chain, batch_for(moves, view_of({})))
    chain.close()


def test_a_migration_runs_again_at_a_processor_that_migrates(tmp_path: Path) -> None:
    make_migration(tmp_path / "store")

    async def test() -> None:
        again = Again(tmp_path / "store", 1, wait_s=60)
        refusing, migrating = Peer(again.replay.endpoint), Peer(again.replay.endpoint)
        await register(refusing, V2)
        await register(migrating, V2, migrates=True)
        running = asyncio.ensure_future(again.run())
        envelope = await asked(migrating)
        request = processor_pb2.TpProcessRequest.FromString(envelope.content)
        assert request.migration
        ok = processor_pb2.TpProcessResponse(status=processor_pb2.TpProcessResponse.OK)
        migrating.send(Envelope.TP_PROCESS_RESPONSE, envelope.correlation_id, ok.SerializeToString())
        await running
        assert (again.done, again.findings.kept) == ([again.block], [])
        for peer in (refusing, migrating):
            peer.close()
        again.close()

    run(test)


def test_a_processor_that_does_not_migrate_gets_no_migration(tmp_path: Path) -> None:
    make_migration(tmp_path / "store")

    async def test() -> None:
        again = Again(tmp_path / "store", 1, wait_s=0)
        peer = Peer(again.replay.endpoint)
        await register(peer, V2)
        await again.replay.wait_for([V2], 60)
        with pytest.raises(ProcessorsMissing) as missing:
            await again.run()
        assert (missing.value.families, missing.value.migration) == ([V2], True)
        peer.close()
        again.close()

    run(test)


class NoReader:
    def refresh_unless_pruned(self) -> None: ...


async def packed_task(peer: Peer) -> Envelope:
    """The next packed task that a processor gets."""
    while (envelope := await peer.receive()).message_type != Envelope.PACKED_PROCESS_REQUEST:
        pass
    return envelope


def judge(peer: Peer, task: Envelope, verdict: Verdict) -> None:
    """The answer for a task of one transaction."""
    response = packed_pb2.PackedProcessResponse()
    response.units.add().results.add(status=verdict.value)
    peer.send(Envelope.PACKED_PROCESS_RESPONSE, task.correlation_id, response.SerializeToString())


def test_a_task_that_outlasts_the_try_of_its_block_changes_nothing() -> None:
    """The batch of the task was withdrawn with its dependency, so the try is over while the task still runs."""
    first = make_transaction("first", inputs=[address(1)], outputs=[address(1)])
    second = make_transaction("second", inputs=[address(1)], outputs=[address(1)], dependencies=[first.id])
    batches = [make_batch("first", first), make_batch("second", second)]
    block = CheckedBlock(1, 2, batches, [[], []], frozenset(), EMPTY, EMPTY, True, True)

    async def test() -> None:
        replay = Replay(
            "tcp://127.0.0.1:*", Limits(), 5, cast(StoreReader, NoReader()), Mock(), Mock(), Mock(), NO_FAMILIES
        )
        peer = Peer(replay.endpoint)
        request = processor_pb2.TpRegisterRequest(
            family=V1.name, version=V1.version, namespaces=["1cf126"], max_occupancy=2, packed_version=2
        )
        peer.send(Envelope.TP_REGISTER_REQUEST, "register", request.SerializeToString())
        await replay.wait_for([V1], 5)
        await replay.run(block)
        finishing = asyncio.ensure_future(replay.finish())
        tried, following = await packed_task(peer), await packed_task(peer)
        assert packed_pb2.PackedProcessRequest.FromString(following.content).follows
        judge(peer, tried, Verdict.ERROR)
        tried = await packed_task(peer)
        judge(peer, following, Verdict.OK)
        judge(peer, tried, Verdict.OK)
        asking = asyncio.ensure_future(packed_task(peer))
        await asyncio.wait({finishing, asking}, return_when=asyncio.FIRST_COMPLETED)
        assert asking.done()
        for task in (finishing, asking):
            task.cancel()
        peer.close()
        replay.close()

    run(test)


def test_a_wait_holds_no_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No snapshot is held during a wait for processors, nor during the search of blocks for families."""
    chain = Chain(tmp_path / "store")
    for number in range(3):
        commit(chain, intkey(chain, f"n{number}"))
    chain.close()
    refreshed: list[StoreReader] = []
    again_refreshed = asyncio.Event()

    def refresh(reader: StoreReader) -> None:
        refreshed.append(reader)
        again_refreshed.set()

    monkeypatch.setattr(StoreReader, "refresh", refresh)
    monkeypatch.setattr(replay_module, "_BLOCKS_A_SNAPSHOT", 1)

    async def test() -> None:
        again = Again(tmp_path / "store", 0, wait_s=60)
        refreshed.clear()
        assert families_needed(again.reader, 0, 2, lambda: None) == {V1: 0}
        assert refreshed == [again.reader] * 3
        again_refreshed.clear()
        waiting = asyncio.ensure_future(again.replay.wait_for([V1], 60))
        await again_refreshed.wait()
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait({waiting})
        again.close()

    run(test)
