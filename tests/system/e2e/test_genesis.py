"""A validator whose genesis batches cannot all be committed ends with the reason, and leaves its folder unchanged."""

import pytest

from tests.system.e2e.clients import Api, Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.network import INTKEY, Network
from tests.system.independent import protobuf_wire as wire


class _Folder:
    """A node's folder with a genesis file of the test's own."""

    def __init__(self, network: Network) -> None:
        self.network = network
        assert network.run("genesis", "--data-dir", str(network.data)).code == 0
        self._file = network.data / "genesis.batch"
        (self.settings,) = wire.get_all_bytes(wire.decode(self._file.read_bytes()), 1)
        """The batch that ``dovetail genesis`` makes."""

    def write(self, *batches: bytes) -> None:
        self._file.write_bytes(wire.encode(wire.repeated(1, batches)))

    def assert_refused(self, said: str) -> None:
        """Start the validator: exit code 1, and the reason in one line on stderr."""
        validator = self.network.validator()
        processor = self.network.processor(INTKEY)
        assert validator.wait() == 1
        processor.terminate()
        (line,) = (line for line in validator.err if line.startswith("dovetail: "))
        assert f"{self._file} is refused, no block was made: " in line
        assert said in line
        assert "Traceback" not in validator.text
        assert validator.count_logged("ready") == validator.count_logged("block committed") == 0

    def start(self, api: Api) -> list[str]:
        """Start the whole node. Returns the ids of the batches in block 0."""
        for process in (self.network.validator(), self.network.rest_api(), self.network.processor(INTKEY)):
            process.wait_logged("ready")
        assert len(api.chain()) == 1
        return [batch["header_signature"] for batch in api.get("/batches")["data"]]


@pytest.fixture
def folder(networks: Networks) -> _Folder:
    """A new folder."""
    return _Folder(networks())


class TestGenesis:
    """All genesis batches make block 0, or nothing is written and the next start tries again."""

    def test_a_bad_batch_beside_the_settings(self, folder: _Folder, networks: Networks, author: Author) -> None:
        bad = author.batch(author.intkey("set", "n", 1), author.intkey("inc", "absent", 1))
        folder.write(folder.settings, bad.to_bytes())
        for _ in range(2):
            folder.assert_refused(f"batch {bad.id}, transaction {bad.transactions[1].id}: invalid_transaction: ")
        good = author.batch(author.intkey("set", "n", 2))
        folder.write(folder.settings, good.to_bytes())
        api = networks.api(folder.network)
        assert good.id in folder.start(api)
        assert api.intkey("n") == 2
        assert api.get("/batches")["paging"]["total_count"] == 2
        # The validator has stored nothing of the refused genesis.
        assert api.words(bad) == ["UNKNOWN"]
        assert folder.network.call("settings", "list", "--json").json["settings"]

    def test_a_bad_batch_alone(self, folder: _Folder, networks: Networks, author: Author) -> None:
        bad = author.batch(author.intkey("inc", "absent", 1))
        folder.write(bad.to_bytes())
        folder.assert_refused(f"batch {bad.id}, ")
        folder.write(folder.settings)
        api = networks.api(folder.network)
        assert len(folder.start(api)) == 1
        assert api.reject(bad)["reason"] == "invalid_transaction"

    def test_a_dependency_that_nobody_can_hand_in(self, folder: _Folder, author: Author) -> None:
        absent = author.intkey("set", "absent", 1)
        dependent = author.batch(author.intkey("set", "n", 1, dependencies=[absent.id]))
        folder.write(folder.settings, dependent.to_bytes())
        folder.assert_refused(f"batch {dependent.id}: dependency_missing: it depends on transaction {absent.id}")

    def test_up_ends_with_the_reason_too(self, folder: _Folder, author: Author) -> None:
        bad = author.batch(author.intkey("inc", "absent", 1))
        folder.write(folder.settings, bad.to_bytes())
        ran = folder.network.run(*folder.network.up_words)
        assert (ran.code, ran.out) == (1, "")
        assert f"no block was made: batch {bad.id}" in ran.err.splitlines()[-1]


def test_a_validator_without_a_genesis_leaves_room_for_one(networks: Networks) -> None:
    """The advice of the error message works, because the validator makes no store (a store would count as a ledger)."""
    network = networks()
    assert network.run("genesis", "--data-dir", str(network.data)).code == 0
    (network.data / "genesis.batch").unlink()
    ran = network.run("validator", "--data-dir", str(network.data), "--bind", network.validator_url)
    assert ran.code == 1
    assert "make one with `dovetail genesis" in ran.err
    assert network.run("genesis", "--data-dir", str(network.data)).code == 0
