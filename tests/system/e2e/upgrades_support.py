"""A node of separate processes whose versions change under load: processors, senders, and its chain.

This module has the node, batches of several versions, senders that wait for each batch's end, and a walk along the
chain.
"""

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import httpx
import pytest

from dovetail.client import DovetailClient
from dovetail.ledger import migration
from dovetail.ledger.permitted import Permission, encode_permitted_families
from dovetail.ledger.settings import TRANSACTION_FAMILIES, FamilyVersion
from tests.system.e2e.clients import Api, Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.metrics import wait_for_metric
from tests.system.e2e.network import Network
from tests.system.e2e.process import DEADLINE_S, Process, ProcessFailed
from tests.system.independent import client as ledger
from tests.system.independent.client import Batch, Transaction

INTKEY_2 = "families.intkey.v2.handler:IntkeyHandler"
V1, V2 = FamilyVersion("intkey", "1.0"), FamilyVersion("intkey", "2.0")
SETTINGS_1 = FamilyVersion("sawtooth_settings", "1.0")
_FEED_BATCHES_MAX = 100

UNHURRIED = {"DOVETAIL_LIMITS_BLOCK_EXECUTION_MS_MAX": "60000"}
"""Blocks wait for all of their batches, however slow the machine."""


def inc(author: Author, family: FamilyVersion, name: str, verb: str = "inc", value: int = 1) -> Transaction:
    """An intkey transaction of either version, in the version's encoding."""
    payload, encoding = None, ledger.INTKEY_ENCODING
    if family == V2:
        payload = json.dumps({"Verb": verb, "Name": name, "Value": value}).encode()
        encoding = "application/json"
    return ledger.make_intkey_transaction(
        author.key, author.public_key, verb, name, value,
        payload=payload, payload_encoding=encoding, family_version=family.version,
    )  # fmt: skip


class Block(NamedTuple):
    """One block of the chain; ``batches``: the family of each transaction, by batch id."""

    num: int
    root: str
    batches: dict[str, list[FamilyVersion]]
    migrations: list[str]
    """The ids of batches that no client signed."""

    @property
    def families(self) -> set[FamilyVersion]:
        """The families of clients' batches."""
        return {family for name, held in self.batches.items() if name not in self.migrations for family in held}


def walk(url: str) -> list[Block]:
    """Every block, genesis first."""
    blocks = []
    with DovetailClient(url) as client:
        for block in client.items("blocks", count=100):
            batches: dict[str, list[FamilyVersion]] = {}
            migrations: list[str] = []
            for batch in block["batches"]:
                headers = [transaction["header"] for transaction in batch["transactions"]]
                name = batch["header_signature"]
                batches[name] = [FamilyVersion(header["family_name"], header["family_version"]) for header in headers]
                if batch["header"]["signer_pubkey"] == migration.PUBLIC_KEY:
                    migrations.append(name)
            header = block["header"]
            blocks.append(Block(int(header["block_num"]), header["state_root_hash"], batches, migrations))
    return blocks[::-1]


class Node:
    """Validator and REST API as separate processes.

    ``genesis``: the genesis file of another node.
    """

    def __init__(
        self, networks: Networks, genesis: bytes | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.network: Network = networks(**(environment or {}))
        made = self.network.run("genesis", "--data-dir", str(self.network.data))
        if made.code:
            raise ProcessFailed(f"dovetail genesis: exit code {made.code}: {made.err}")
        file = self.network.data / "genesis.batch"
        if genesis is not None:
            file.write_bytes(genesis)
        self.genesis = file.read_bytes()
        self.validators = [self.network.validator()]
        self.network.rest_api().wait_logged("ready")
        self.validators[0].wait_logged("ready")
        self.api = networks.api(self.network)

    @property
    def validator(self) -> Process:
        """The running validator."""
        return self.validators[-1]

    @property
    def head_num(self) -> int:
        return int(self.api.get("/blocks", count=1)["data"][0]["header"]["block_num"])

    def processor(self, *handlers: str) -> Process:
        """One more processor, registered for all of ``handlers``."""
        process = self.network.processor(*handlers)
        process.wait_logged("ready")
        return process

    def kill(self, load: "Load") -> None:
        """Kill the validator and start it again. ``load`` waits meanwhile."""
        load.reachable.clear()
        self.validator.kill()
        self.validators.append(self.network.validator(f"validator {len(self.validators) + 1}"))
        self.validator.wait_logged("ready")
        wait_for_metric(self.api, "dovetail_rest_validator_connected", 1)
        load.reachable.set()

    def plan(self, *permissions: Permission) -> Batch:
        """Permit exactly these families. Returns the batch of the setting."""
        value = encode_permitted_families([Permission(SETTINGS_1), *permissions])
        file = self.network.home / "plan.batches"
        ran = self.network.run("settings", "propose", TRANSACTION_FAMILIES, value, "--output", str(file))
        assert ran.code == 0, ran.err
        (batch,) = ledger.read_batch_list(file.read_bytes())
        file.unlink()
        self.api.commit(batch)
        return batch

    def feed(self, batches: Iterable[Batch]) -> None:
        """Submit and wait until committed, so many batches at a time."""
        given = list(batches)
        for start in range(0, len(given), _FEED_BATCHES_MAX):
            self.api.commit(*given[start : start + _FEED_BATCHES_MAX])

    def assert_follows(self, blocks: Sequence[Block], given: Mapping[str, Batch]) -> None:
        """Submit the clients' batches of each of ``blocks``, and check that migrations and states are the same."""
        for block in blocks[1:]:
            batches = [given[name] for name in block.batches if name not in block.migrations]
            if batches:
                self.api.commit(*batches)
            if block.migrations:
                assert set(self.api.statuses(block.migrations, wait=int(DEADLINE_S))["data"].values()) == {"COMMITTED"}
            assert self._root_after(block.batches) == block.root, block.num
        made = [block.migrations for block in walk(self.network.rest_url) if block.migrations]
        assert made == [block.migrations for block in blocks if block.migrations]

    def _root_after(self, batch_ids: Collection[str]) -> str:
        """The state root after these batches, before any later migration."""
        for block in self.api.get("/blocks", count=_FEED_BATCHES_MAX)["data"]:
            if not set(batch_ids).isdisjoint(block["header"]["batch_ids"]):
                return str(block["header"]["state_root_hash"])
        raise ProcessFailed(f"none of the newest {_FEED_BATCHES_MAX} blocks holds any of {batch_ids}")

    def lowest_counts(self, *families: FamilyVersion) -> dict[FamilyVersion, int]:
        """The lowest number of processors of each family since the family had a first one, by the validator's log."""
        counts: Counter[str] = Counter()
        lowest: dict[str, int] = {}
        for line in list(self.validator.lines):
            logged = line.logged
            if logged.get("event") == "processor registered":
                counts[logged["family"]] += 1
            elif logged.get("event") == "processor left":
                counts.subtract(logged["families"])
            if all(counts[str(family)] for family in families) or lowest:
                for family in map(str, families):
                    lowest[family] = min(counts[family], lowest.get(family, counts[family]))
        return {family: lowest[str(family)] for family in families}

    def assert_no_task_was_lost(self) -> None:
        """Check that every processor that left had unregistered, and answered all of its tasks."""
        left = [line.logged for line in list(self.validator.lines) if line.logged.get("event") == "processor left"]
        assert {line["reason"] for line in left} <= {"it unregistered"}, left


class Stream:
    """The batches of the senders of one version, and their outcomes."""

    def __init__(self, make: Callable[[], Batch]) -> None:
        self.make = make
        self.batches: dict[str, Batch] = {}
        self.committed: list[str] = []
        self.refused: dict[str, dict[str, Any]] = {}
        """The reason of each INVALID batch, by id."""
        self.moments: list[float] = []
        """The times of commits, in seconds."""

    @property
    def stall_ms(self) -> float:
        """The longest time between two commits."""
        pairs = zip(self.moments, self.moments[1:], strict=False)
        return max((later - earlier for earlier, later in pairs), default=0.0) * 1000


class Load:
    """Senders, each with one batch in flight. A sender ends after an INVALID batch."""

    def __init__(self, url: str, request: pytest.FixtureRequest) -> None:
        """The load ends with the test of ``request``."""
        request.addfinalizer(self.stop)
        self._url = url
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._streams: list[Stream] = []
        self._failures: list[str] = []
        self.reachable = threading.Event()
        """Cleared while the node is down."""
        self.reachable.set()

    def start(self, make: Callable[[], Batch], senders: int = 3) -> Stream:
        """Start so many senders of batches from ``make``."""
        stream = Stream(make)
        self._streams.append(stream)
        for _ in range(senders):
            thread = threading.Thread(target=self._send, args=(stream,), daemon=True)
            self._threads.append(thread)
            thread.start()
        return stream

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition``, which is evaluated whenever a batch ends."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._failures or condition(), DEADLINE_S * 2):
                raise ProcessFailed(f"the load has not reached the condition in {DEADLINE_S * 2:g} s: {self._so_far()}")
        assert not self._failures, self._failures

    def wait_for_commits(self, count: int, *streams: Stream) -> None:
        """Wait until so many more batches of each stream are committed."""
        wanted = [len(stream.committed) + count for stream in streams]
        self.wait_until(lambda: all(len(s.committed) >= w for s, w in zip(streams, wanted, strict=True)))

    def stop(self) -> None:
        """Stop after every submitted batch has ended."""
        self._stop.set()
        self.reachable.set()
        for thread in self._threads:
            thread.join(DEADLINE_S * 2)
            assert not thread.is_alive()
        assert not self._failures, self._failures

    def _so_far(self) -> str:
        return "; ".join(
            f"{len(stream.committed)} committed and {len(stream.refused)} refused of {len(stream.batches)}, open"
            f" {sorted(set(stream.batches) - set(stream.committed) - set(stream.refused))}"
            for stream in self._streams
        )

    def _send(self, stream: Stream) -> None:
        api = Api(self._url)
        api.http.timeout = DEADLINE_S * 2
        try:
            while not self._stop.is_set():
                batch = stream.make()
                stream.batches[batch.id] = batch
                answer = self._settle(api, batch)
                with self._changed:
                    if answer.status_code == 201:
                        stream.committed.append(batch.id)
                        stream.moments.append(time.monotonic())
                    elif answer.status_code == 200:
                        stream.refused[batch.id] = dict(answer.json()["details"][batch.id])
                    else:
                        self._failures.append(f"{answer.status_code}: {answer.text}")
                    self._changed.notify_all()
                    if answer.status_code != 201:
                        return
        finally:
            api.close()

    def _settle(self, api: Api, batch: Batch) -> httpx.Response:
        """Submit the batch, again and again, until an answer says that it is committed or INVALID."""
        while True:
            if not self.reachable.wait(DEADLINE_S):
                raise ProcessFailed(f"the node is not up again after {DEADLINE_S:g} s")
            with suppress(httpx.TransportError):
                answer = api.post(batch, wait=int(DEADLINE_S) // 2)
                pending = answer.status_code == 200 and answer.json()["data"][batch.id] == "PENDING"
                if not pending and answer.status_code != 503:
                    return answer


def assert_each_once(blocks: Iterable[Block], batch_ids: Iterable[str]) -> None:
    """Check that each of these batches is on the chain exactly once."""
    held = Counter(name for block in blocks for name in block.batches)
    wanted = set(batch_ids)
    assert {name: held[name] for name in wanted if held[name] != 1} == {}


def numbers_in(text: str) -> list[int]:
    """The whole numbers that a message names."""
    return [int(found) for found in re.findall(r"\b\d+\b", text)]
