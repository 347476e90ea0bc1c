"""Checks after a node was killed: the store is sound, and agrees with all answers that clients got.

Killing does not belong here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dovetail.ledger.ids import BatchId
from dovetail.validator.history.verification.chain import Verification
from dovetail.validator.history.verification.findings import Findings
from dovetail.validator.store import StoreReader
from families.intkey.client import intkey_address
from protos import raw_pb2
from tests.dovetail.validator.history.verified import Here
from tests.system.e2e.clients import Api
from tests.system.e2e.network import Network
from tests.system.faults.client import Client
from tests.system.faults.load import value_at

_IDS_A_QUESTION = 1_000


def sound_from(data: Path, first: int) -> int:
    """Verify the stored blocks from number ``first`` on, as ``chain verify`` does. Returns the number of the head."""
    reader = StoreReader.open(data / "store")
    try:
        findings = Findings()
        verification = Verification(reader, Here(), findings, first)
        for _ in verification.blocks():
            pass
        assert not findings.kept, [str(finding) for finding in findings.kept]
        return verification.head
    finally:
        reader.close()


def committed(data: Path) -> list[BatchId]:
    """The ids of all batches on the chain, in order."""
    reader = StoreReader.open(data / "store")
    try:
        count = reader.head.batch_end if reader.head else 0
        raws = (reader.batch(number).raw for number in range(count))
        return [BatchId(raw_pb2.RawBatch.FromString(raw).header_signature) for raw in raws]
    finally:
        reader.close()


def agrees_with_clients(network: Network, api: Api, clients: list[Client]) -> int:
    """Check that chain and state agree with the statuses that clients got. Returns the number of batches."""
    chain = committed(network.data)
    assert len(chain) == len(set(chain)), "a batch is on the chain twice"
    on_chain = set(chain)
    for client in clients:
        assert client.accepted <= client.ended.keys(), "an accepted batch is not settled"
        for batch_id, word in client.ended.items():
            assert (batch_id in on_chain) == (word == "COMMITTED"), f"{batch_id} was reported {word}"
            assert (client.load.made[batch_id].kind == "bad") == (word == "INVALID"), f"{batch_id} is {word}"
        asked = list(client.ended)
        for start in range(0, len(asked), _IDS_A_QUESTION):
            part = asked[start : start + _IDS_A_QUESTION]
            told: dict[str, Any] = api.statuses(part)["data"]
            assert told == {batch_id: client.ended[batch_id] for batch_id in part}
        for name, value in client.load.state_of(on_chain).items():
            assert value_at(api.leaf(intkey_address(name)), name) == value, name
    return sum(len(client.ended) for client in clients)


def reexecute(network: Network) -> dict[str, Any]:
    """Run ``dovetail chain verify --reexecute`` beside the node, check that it succeeds, and return its report."""
    ran = network.run("chain", "verify", "--data-dir", str(network.data), "--processes", "1", "--reexecute", "--json")
    assert ran.code == 0, ran
    report: dict[str, Any] = ran.json
    assert report["sound"] is True
    assert report["reexecuted_transactions"] == report["transactions"]
    return report


@contextmanager
def annotated(what: str) -> Iterator[None]:
    """Add to the report of a failure what the test was doing to the node."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"at {what}")
        raise
