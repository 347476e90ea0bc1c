"""Random histories of four nodes that run the same decided blocks. The processors and failures of each node differ.

``python -m tests.properties.histories --seeds 1000`` runs many of them.
"""

import argparse
import logging
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, Final

import structlog

from dovetail.ledger.batch import VerifiedBatch
from dovetail.ledger.block import Consensus, decode_block_header, decode_consensus
from dovetail.ledger.ids import BatchId, TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.signing import Signer
from dovetail.validator.core.consensus.engine import (
    Commit,
    Committed,
    Discard,
    Finalize,
    Finalized,
    NothingProposed,
    Process,
    Processed,
    Proposal,
    Propose,
    Proposed,
)
from processor_sdk import Context, Transaction, TransactionHandler
from protos import raw_pb2
from tests.contracts.engines import EngineNode, ScriptedEngine, propose_anything
from tests.dovetail.validator.support import commit
from tests.dovetail.validator.support import make_batch as genesis_batch
from tests.properties.serial import (
    OtherHandler,
    Script,
    ScriptHandler,
    address,
    make_batch,
    run_serially,
    transaction_id_of,
)

NODES: Final = 4
_ADDRESSES: Final = 16
_PLACES: Final = tuple(map(address, range(_ADDRESSES)))
_STUCK_MAX: Final = 60
_OPERATIONS: Final = ("get", "get", "set", "set", "delete", "list8", "clear", "fail_if_even", "fail")
LIMITS: Final = Limits(
    store_map_bytes_initial=1 << 20, state_list_entries_max=2, packed_transactions_max=4, block_transactions_max=12
)


class Broken(Exception):
    """A history in which a node has a different result, or in which a batch is lost."""


def run_history(seed: int, folder: Path) -> int:
    """Run one history. Returns the number of blocks. Raises Broken."""
    history = _History(Random(seed), folder)
    try:
        history.run()
        return history.check()
    finally:
        history.close()


class _FlakyScript(ScriptHandler):
    """Fails without a verdict now and then."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        if self._rng.random() < 0.1:
            raise RuntimeError("no verdict this time")
        super().apply(transaction, context)


class _Peer:
    """One node of the network, its processors, and the batches and blocks that it got so far."""

    def __init__(self, number: int, folder: Path, rng: Random) -> None:
        self.number = number
        self._folder = folder
        self._rng = rng
        self._processors = rng.choice([1, 3])
        self._packed = rng.choice([0.0, 0.5, 1.0])
        self._kills = rng.choice([0.0, 0.0, 0.1])
        self._flaky = rng.random() < 0.3
        self._names = 0
        self.accepted: dict[BatchId, VerifiedBatch] = {}
        self.height = 0
        self.node = self._open()
        commit(self.node.store, [genesis_batch("genesis")])

    def _open(self) -> EngineNode:
        node = EngineNode(
            self._folder, ScriptedEngine(), Signer(f"{self.number + 1:02x}" * 32), LIMITS, self._rng.randrange
        )
        self._connected: list[bytes] = []
        return node

    def restart(self) -> None:
        """Stop the node, and start it again from the data on disk."""
        self.node.close()
        self.node = self._open()
        self.node.fill(list(self.accepted.values()))

    def accept(self, *batches: VerifiedBatch) -> None:
        """Accept the batches that this node does not know yet."""
        fresh = [
            batch
            for batch in batches
            if self.node.queue.get(batch.id) is None and self.node.store.batch_number(batch.id) is None
        ]
        self.accepted |= {batch.id: batch for batch in fresh}
        self.node.accept(*fresh)

    def order(self, order: Any) -> object:
        """Give an order, and let the node work until it reports. Meanwhile processors and the node itself may fail."""
        if self._rng.random() < 0.7:
            self._connect_all()
        reports = self.node.order(order, steps_max=0)
        stuck = 0
        while not reports:
            if self._connected and self._rng.random() < self._kills:
                self.node.kill(self._connected.pop(self._rng.randrange(len(self._connected))))
            if self.node.network.busy:
                reports = self.node.work(steps_max=1)
                continue
            stuck += 1
            if stuck > _STUCK_MAX:
                raise Broken(f"node {self.number} does not get on with {order}: {self.node.production.work()}")
            if stuck % 3 == 0:
                self._connect_all()
            reports = self.node.wait(LIMITS.processor_lost_back_off_ms_max)
        [report] = reports
        return report

    def _connect_all(self) -> None:
        while len(self._connected) < self._processors:
            self._names += 1
            name = b"p%d" % self._names
            script = _FlakyScript(self._rng) if self._flaky else ScriptHandler()
            self.node.connect(name, [script, OtherHandler()], packed=self._rng.random() < self._packed)
            self._connected.append(name)


class _History:
    def __init__(self, rng: Random, folder: Path) -> None:
        self._rng = rng
        self._peers = [_Peer(number, folder / str(number), rng) for number in range(NODES)]
        self._made: list[VerifiedBatch] = []
        self._decided: list[Proposal] = []

    def close(self) -> None:
        for peer in self._peers:
            peer.node.close()

    def run(self) -> None:
        rng = self._rng
        for height in range(1, rng.randint(3, 6)):
            fresh = [self._batch() for _ in range(rng.randint(1, 6))]
            for batch in fresh:
                for peer in rng.sample(self._peers, rng.randint(1, NODES)):
                    peer.accept(batch)
            self._decided.append(self._decide(height, fresh))
            for peer in rng.sample(self._peers, NODES):
                # At least one node must have the newest block, so that it can propose.
                if rng.random() < 0.7 or peer is self._peers[0]:
                    self._catch_up(peer)
        for peer in self._peers:
            self._catch_up(peer)

    # Making proposals

    def _batch(self) -> VerifiedBatch:
        rng = self._rng
        number = len(self._made) + 1
        scripts = []
        for position in range(rng.randint(1, 3)):
            operations = [(rng.choice(_OPERATIONS), rng.randrange(_ADDRESSES)) for _ in range(rng.randint(1, 4))]
            operations = [step for step in operations if step[0] != "fail" or step[1] == 0]
            touched = {address(place) for _, place in operations}
            places = tuple(sorted(place[: rng.choice([70, 70, 8, 6])] for place in touched))
            lists = tuple(sorted({address(place)[:8] for step, place in operations if step in ("list8", "clear")}))
            dependencies: tuple[TransactionId, ...] = ()
            if number > 1 and rng.random() < 0.25:
                dependencies = (transaction_id_of(rng.randrange(max(1, number - 6), number), 0),)
            elif rng.random() < 0.04:
                dependencies = (transaction_id_of(10_000 + number, position),)
            scripts.append(Script(operations, places + lists, places + lists, dependencies, rng.randrange(4) // 3))
        made = make_batch(number, scripts)
        raw = raw_pb2.RawBatch(header_signature=made.id, transactions=[item.raw for item in made.transactions])
        self._made.append(made._replace(raw=raw.SerializeToString()))
        return self._made[-1]

    def _decide(self, height: int, fresh: list[VerifiedBatch]) -> Proposal:
        """Run rounds until one of them decides on a proposal."""
        rng = self._rng
        while True:
            ready = [peer for peer in self._peers if peer.height == height - 1]
            proposer = rng.choice(ready)
            report = proposer.order(Propose(height)) if rng.random() < 0.6 else NothingProposed(height)
            own = report.proposal if isinstance(report, Proposed) else None
            proposal = own or self._any_list(proposer, height, fresh)
            for peer in rng.sample(ready, rng.randint(0, len(ready))):
                answer = peer.order(Process(proposal))
                if not isinstance(answer, Processed):
                    raise Broken(f"node {peer.number} answers a proposal with {answer}")
                if answer.refusal is not None and "no verdict here" not in answer.refusal:
                    raise Broken(f"node {peer.number} refuses height {height}: {answer.refusal}")
            if rng.random() < 0.75:
                return proposal
            for peer in ready:
                peer.node.order(Discard())

    def _any_list(self, proposer: _Peer, height: int, fresh: list[VerifiedBatch]) -> Proposal:
        """A list that no honest node would choose: repeated batches, or dependent batches before their dependencies."""
        rng = self._rng
        chosen = [rng.choice(self._made) for _ in range(rng.randint(0, 4))] + fresh
        rng.shuffle(chosen)
        handlers: list[TransactionHandler[Any]] = [ScriptHandler(), OtherHandler()]
        signer = Signer(f"{proposer.number + 1:02x}" * 32)
        parent = decode_consensus(decode_block_header(proposer.node.head.header_bytes).consensus)
        consensus = Consensus(ScriptedEngine.name, height, parent.time_ms + rng.randint(0, 1_000))
        return propose_anything(proposer.node.store, handlers, signer, consensus, chosen, LIMITS)

    # Deciding

    def _catch_up(self, peer: _Peer) -> None:
        rng = self._rng
        while peer.height < len(self._decided):
            proposal = self._decided[peer.height]
            if rng.random() < 0.3:
                peer.order(Process(proposal))
            finalized = self._finalize(peer, proposal)
            if rng.random() < 0.2:
                peer.restart()
                again = self._finalize(peer, proposal)
                if again != finalized:
                    raise Broken(f"node {peer.number} finalizes {again} after a restart, {finalized} before")
            committed = peer.order(Commit(proposal.height))
            if committed != Committed(proposal.height, finalized.block_id):
                raise Broken(f"node {peer.number} answers a commit of {finalized} with {committed}")
            peer.height += 1

    def _finalize(self, peer: _Peer, proposal: Proposal) -> Finalized:
        report = peer.order(Finalize(proposal))
        if not isinstance(report, Finalized):
            raise Broken(f"node {peer.number} does not finalize: {report}")
        return report

    # The checks at the end

    def check(self) -> int:
        """Compare the nodes with each other and with a serial run. Returns the number of blocks."""
        applied, invalid = self._expected()
        first = self._peers[0].node
        for peer in self._peers:
            store = peer.node.store
            self._same(peer, "head", peer.node.head.num, first.head.num)
            for num in range(first.head.num + 1):
                here, there = store.required_block(num), first.store.required_block(num)
                self._same(peer, f"id of block {num}", here.id, there.id)
                self._same(peer, f"root of block {num}", here.root.hash, there.root.hash)
            receipts = [store.transaction(number).receipt for number in range(1, peer.node.head.transaction_end)]
            self._same(peer, "receipts", receipts, [receipt for batch in applied.values() for receipt in batch])
            for batch in self._made:
                self._same(peer, f"{batch.id} committed", store.batch_number(batch.id) is not None, batch.id in applied)
                if batch.id not in applied:
                    self._same(peer, f"{batch.id} invalid", store.invalid(batch.id) is not None, batch.id in invalid)
            for batch_id in peer.accepted.keys() - applied.keys() - invalid:
                if peer.node.queue.get(batch_id) is None:
                    raise Broken(f"node {peer.number} lost batch {batch_id}")
        return first.head.num

    def _expected(self) -> tuple[dict[BatchId, tuple[bytes, ...]], set[BatchId]]:
        """Receipts of each applied batch, and the INVALID ones, by running all decided lists serially."""
        state: dict[str, bytes] = {}
        applied: dict[BatchId, tuple[bytes, ...]] = {}
        invalid: set[BatchId] = set()
        committed: set[TransactionId] = set()
        for proposal in self._decided:
            runs: list[VerifiedBatch] = []
            included: set[TransactionId] = set()
            for batch in {one.id: one for one in proposal.batches}.values():
                if _enters(batch, committed, included):
                    runs.append(batch)
                    included |= {item.id for item in batch.transactions}
                elif batch.id not in applied:
                    invalid.add(batch.id)
            outcome = run_serially(state, runs)
            state = outcome.state
            for batch, verdict in zip(runs, outcome.batches, strict=True):
                if isinstance(verdict, tuple):
                    applied[batch.id] = verdict
                    committed |= {item.id for item in batch.transactions}
                else:
                    invalid.add(batch.id)
        return applied, invalid

    def _same(self, peer: _Peer, what: str, found: object, expected: object) -> None:
        if found != expected:
            raise Broken(f"node {peer.number}: {what} is {found!r}, not {expected!r}")


def _enters(batch: VerifiedBatch, committed: Iterable[TransactionId], included: Iterable[TransactionId]) -> bool:
    known = {*committed, *included}
    own: set[TransactionId] = set()
    for item in batch.transactions:
        if item.id in known or not known | own >= set(item.dependencies):
            return False
        own.add(item.id)
    return True


def quiet() -> None:
    """Leave out the log lines of failures that a history causes on purpose."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.getLogger("processor_sdk.apply.dispatch").setLevel(logging.CRITICAL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many histories to run (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    asked = parser.parse_args()
    quiet()
    blocks = 0
    for seed in range(asked.first, asked.first + asked.seeds):
        with tempfile.TemporaryDirectory() as folder:
            try:
                blocks += run_history(seed, Path(folder))
            except Broken as broken:
                sys.exit(f"seed {seed}: {broken}")
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        if sys.stderr.isatty() or seed % 100 == 99:
            print(f"{seed + 1 - asked.first} histories, {blocks} blocks", file=sys.stderr)
    print(f"{asked.seeds} histories of {NODES} nodes, {blocks} blocks, all alike")


if __name__ == "__main__":
    main()
