"""``dovetail store`` beside and after a real node: a backup under load, a node from the backup, pruning under load."""

import shutil
import threading
from pathlib import Path

from dovetail.node.genesis import STORE_NAME
from dovetail.validator.store import StoreReader
from protos import raw_pb2
from tests.dovetail.rehearsal.rehearsal_chain import Chain
from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.network import Network

_NAMES = 20
_ROUNDS = 6
_DEPTH = 5


class Load(threading.Thread):
    """Increments all its intkey names by 1, in block after block, until it is told to end."""

    def __init__(self, networks: Networks, network: Network, author: Author) -> None:
        super().__init__(name="load")
        self._api = networks.api(network)
        self._author = author
        self._ending = threading.Event()
        self.committed = threading.Semaphore(0)
        self.rounds = 0
        self.ids: list[str] = []
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                batches = [self._author.batch(self._author.intkey("inc", f"n{number}", 1)) for number in range(_NAMES)]
                self._api.commit(*batches)
                self.ids += [batch.id for batch in batches]
                self.rounds += 1
                self.committed.release()
        except Exception as error:  # The test raises this error in its own thread.
            self.failure = error
            self.committed.release(1000)

    def end(self) -> None:
        self._ending.set()
        self.join()
        if self.failure is not None:
            raise self.failure


def test_a_backup_under_load_verifies_and_a_node_starts_from_it(
    networks: Networks, author: Author, tmp_path: Path
) -> None:
    network = networks()
    up = network.up()
    networks.api(network).commit(*(author.batch(author.intkey("set", f"n{number}", 0)) for number in range(_NAMES)))
    load = Load(networks, network, author)
    load.start()
    target = tmp_path / "backup"
    try:
        for _ in range(2):
            load.committed.acquire()
        known = list(load.ids[: 2 * _NAMES])
        made = network.run("store", "backup", str(target), "--data-dir", str(network.data), "--json")
        assert made.code == 0, made
        looked = network.run("store", "check", "--data-dir", str(network.data), "--json")
        assert (looked.code, looked.json["sound"]) == (0, True), looked
        refused = network.run("store", "compact", "--data-dir", str(network.data))
        assert (refused.code, "in use by another validator" in refused.err) == (1, True)
        refused = network.run("store", "restore", str(target), "--data-dir", str(network.data))
        assert (refused.code, "in use by another validator" in refused.err) == (1, True)
        for _ in range(2):
            load.committed.acquire()
    finally:
        load.end()
    assert up.terminate() == 0

    other = networks()
    restored = other.run("store", "restore", str(target), "--data-dir", str(other.data), "--json")
    assert restored.code == 0, restored
    assert restored.json["block_id"] == made.json["block_id"]
    # A backup has no keys: these are copied separately.
    shutil.copytree(network.data / "keys", other.data / "keys")
    other.up()
    api = networks.api(other)
    assert set(api.statuses(known)["data"].values()) == {"COMMITTED"}
    rounds = {api.intkey(f"n{number}") for number in range(_NAMES)}
    # Each block of the load changes all names, and the backup has whole blocks only.
    assert max(value or 0 for value in rounds) - min(value or 0 for value in rounds) <= 1
    api.commit(author.batch(author.intkey("set", "after", 7)))
    assert api.intkey("after") == 7
    verified = other.run("chain", "verify", "--data-dir", str(other.data), "--json")
    assert (verified.code, verified.json["sound"]) == (0, True), verified


def test_a_node_prunes_as_it_goes_on_and_is_verified_beside_it(networks: Networks, author: Author) -> None:
    network = networks(DOVETAIL_VALIDATOR_STATE_DEPTH_BLOCKS=str(_DEPTH))
    up = network.up()
    api = networks.api(network)
    api.commit(*(author.batch(author.intkey("set", f"n{number}", 0)) for number in range(_NAMES)))
    for _ in range(_ROUNDS + _DEPTH):
        api.commit(author.batch(*(author.intkey("inc", f"n{number}", 1) for number in range(_NAMES))))
    blocks = api.get("/blocks", count=1000)["data"]
    head = int(blocks[0]["header"]["block_num"])
    assert head >= _ROUNDS + _DEPTH
    beside = network.run("chain", "verify", "--data-dir", str(network.data), "--json")
    assert (beside.code, beside.json["sound"]) == (0, True), beside
    assert beside.json["states_from_block"] == head - _DEPTH + 1
    # Kept states are served and pruned states are refused; everything else is still there.
    assert api.get("/state", head=blocks[_DEPTH - 1]["header_signature"])["data"]
    gone = api.http.get("/state", params={"head": blocks[_DEPTH]["header_signature"]})
    assert gone.status_code == 404, gone.text
    assert "is pruned; kept are those of blocks" in gone.text
    assert api.get("/batches", head=blocks[_DEPTH]["header_signature"], count=1000)["data"]
    assert up.terminate() == 0
    verified = network.run("chain", "verify", "--data-dir", str(network.data), "--reexecute", "--json")
    assert (verified.code, verified.json["sound"]) == (0, True), verified
    assert verified.json["pruned_blocks_not_reexecuted"] > 0


def test_a_node_on_a_damaged_batch_tells_nothing_of_it_and_goes_on(networks: Networks, author: Author) -> None:
    network = networks()
    chain = Chain(network.data / STORE_NAME)
    chain.steps([("set", "good", 1)], [("set", "bad", 1)])
    good, bad = (chain.store.batch(number).raw for number in range(2))
    good_id, bad_id = (raw_pb2.RawBatch.FromString(raw).header_signature for raw in (good, bad))
    chain.close()
    file = network.data / STORE_NAME / "data.mdb"
    content = bytearray(file.read_bytes())
    # The payload holds the name that it sets. If only the case of a letter is flipped, the batch still decodes.
    payload, at = b"cbad", 0
    while (at := content.find(payload, at)) >= 0:
        content[at + 1] ^= 0x20
        at += 1
    file.write_bytes(content)
    assert network.run("keygen", str(network.data / "keys" / "validator.priv")).code == 0
    up = network.up()
    api = networks.api(network)
    answer = api.http.get(f"/batches/{bad_id}")
    assert answer.status_code == 500, answer.text
    assert "Bad" not in answer.text
    assert api.get(f"/batches/{good_id}")["data"]["header_signature"] == good_id
    api.commit(author.batch(author.intkey("set", "more", 1)))
    assert "the store is damaged, a client gets no answer" in up.text
    assert up.terminate() == 0
    repaired = network.run("store", "repair", "--data-dir", str(network.data), "--json")
    assert repaired.code == 0, repaired
    assert [words for words in repaired.json["mended"] if "of the table batches" in words]
    reader = StoreReader.open(network.data / STORE_NAME)
    assert reader.batch(1).raw == bad
    reader.close()
