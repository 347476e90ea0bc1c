"""A node of real processes whose validator asks for keys: each process has its own key, a wrong key or no key."""

import ipaddress
import re
import shlex
from dataclasses import fields
from pathlib import Path

import psutil
import pytest

from dovetail.common.keys import KeyFiles
from dovetail.ledger.limits import Limits
from dovetail.node.config import ProcessorConfig
from dovetail.testing.running import ReservedPort
from dovetail.validator.config import ValidatorConfig
from tests.keys import Ring, make_ring
from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.network import INTKEY, Network
from tests.system.e2e.process import ROOT, Process

PAGE = (ROOT / "docs" / "how-to" / "keys.md").read_text(encoding="utf-8")


def lines_of(title: str) -> list[str]:
    """The command lines of a section of docs/how-to/keys.md."""
    found = re.search(rf"(?ms)^## {title}$(.*?)(?=^## |\Z)", PAGE)
    assert found
    return [line for block in re.findall(r"(?s)```sh\n(.*?)```", found[1]) for line in block.splitlines()]


class KeyedNetwork:
    """A network whose validator asks for keys."""

    def __init__(self, network: Network, ring: Ring) -> None:
        self.network = network
        self.ring = ring
        assert network.run("genesis", "--data-dir", str(network.data)).code == 0

    def validator(self) -> Process:
        own = ("--connection-key", str(self.ring.validator.private), "--allowed-keys", str(self.ring.allowed))
        data = ("--data-dir", str(self.network.data), "--bind", self.network.validator_url)
        return self.network.start("validator", *data, *own)

    def keys(self, own: KeyFiles | None) -> tuple[str, ...]:
        if own is None:
            return ()
        return ("--connection-key", str(own.private), "--validator-key", str(self.ring.validator.public))

    def rest_api(self, own: KeyFiles | None) -> Process:
        places = ("--bind", self.network.rest_bind, "--validator", self.network.validator_url)
        return self.network.start("rest-api", *places, *self.keys(own))

    def processor(self, handler: str, own: KeyFiles | None, *words: str) -> Process:
        where = ("--connect", self.network.validator_url)
        return self.network.start("processor", handler, *where, *self.keys(own), *words, name=handler)


@pytest.fixture
def keyed(networks: Networks, tmp_path: Path) -> KeyedNetwork:
    return KeyedNetwork(networks(), make_ring(tmp_path / "keys"))


def test_a_node_as_the_page_makes_it_commits(networks: Networks, tmp_path: Path, author: Author) -> None:
    network = networks()
    network.environment |= {
        "DOVETAIL_VALIDATOR_DATA_DIR": str(network.data),
        "DOVETAIL_REST_API_BIND": network.rest_bind,
    }

    def here(line: str) -> str:
        return line.replace("./", f"{tmp_path}/").replace("tcp://10.0.0.4:4004", network.validator_url)

    assert network.run("genesis").code == 0
    for line in map(here, lines_of("Make them")):
        words = shlex.split(line)
        made = network.run(*words[1:]) if words[0] == "dovetail" else network.run_command(words)
        assert made.code == 0, made
    started = [network.start(*shlex.split(here(line))[1:]) for line in lines_of("Use them")]
    for process in started:
        process.wait_logged("ready")
    keys = {path.stem: path.read_text().strip() for path in (tmp_path / "keys").glob("*.pub")}
    started[0].wait_logged("the port is restricted", public_key=keys["validator"], allowed_keys=2)
    api = networks.api(network)
    api.commit(author.batch(author.intkey("set", "keyed", 1)))
    # Public keys may be in the logs. Secrets are neither there, nor in what a node reports about itself, nor in what
    # the system shows of its processes.
    shown = str(api.get("/status/config")) + network.transcript()
    for process in network.processes:
        running = [psutil.Process(process.pid), *process.descendants()]
        shown += "".join(" ".join(entry.cmdline()) for entry in running)
    for name in keys:
        assert (tmp_path / "keys" / f"{name}.priv").read_text().strip() not in shown


def test_the_page_names_settings_that_exist() -> None:
    known = {field.name for field in (*fields(ValidatorConfig), *fields(ProcessorConfig), *fields(Limits))}
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", PAGE))
    assert named - {"unsaid_s_ago"} <= known


def test_wrong_keys_are_refused_and_reported(keyed: KeyedNetwork, networks: Networks, author: Author) -> None:
    ring = keyed.ring
    validator = keyed.validator()
    as_client = keyed.processor(INTKEY, ring.client)
    stranger = keyed.processor(INTKEY, ring.stranger)
    without = keyed.processor(INTKEY, None)
    key = ring.client.public_key
    as_client.wait_for_line("registration of intkey 1.0 refused: .*is not among the allowed processors")
    refused = "message refused: the list that its sender's key is in does not allow it"
    validator.wait_logged(
        refused, type="TP_REGISTER_REQUEST", name="client", key=key, list="clients", needs="processors"
    )
    # The processor tries again, so the line comes twice.
    stranger.wait_for_lines("the validator refused this key: .* must be in its allowed_keys, under processors", 2)
    without.wait_for_lines("the handshake failed; perhaps it asks for keys, of which this processor has none", 2)
    validator.wait_for_line("connection refused")
    assert not validator.count_logged("processor registered")
    rightful = keyed.processor(INTKEY, ring.processor)
    for process in (rightful, validator):
        process.wait_logged("ready")
    validator.wait_logged("processor registered")
    assert validator.count_logged("processor registered") == 1
    # A REST API with a processor's key can submit nothing, and reports why.
    rest_api = keyed.rest_api(ring.processor)
    rest_api.wait_logged("connected to the validator")
    answer = networks.api(keyed.network).post(author.batch(author.intkey("set", "keyed", 1)))
    assert answer.status_code == 503
    assert "is not among the allowed clients of this validator" in answer.json()["error"]["message"]
    rest_api.wait_logged("not served by the validator")
    validator.wait_logged(refused, name="processor", list="processors", needs="clients")
    status = keyed.network.run("status", "--url", keyed.network.rest_url)
    assert status.code == 1
    assert "it is listed under processors: give its process a key that is listed under clients" in status.err


def test_a_clients_key_counts_and_drops_pending_batches(keyed: KeyedNetwork) -> None:
    validator, processor = keyed.validator(), keyed.processor(INTKEY, keyed.ring.processor)
    for process in (validator, processor):
        process.wait_logged("ready")
    words = ("batch", "drop", "--dry-run", "--json", "--validator", keyed.network.validator_url)
    counted = keyed.network.run(*words, *keyed.keys(keyed.ring.client))
    assert (counted.code, counted.json["batches"]) == (0, 0), counted.err
    for own, said in (
        (keyed.ring.processor, "is not among the allowed clients of this validator"),
        (keyed.ring.stranger, "must be in its allowed_keys, under clients"),
        (None, "no connection to the validator"),
    ):
        refused = keyed.network.run(*words, *keyed.keys(own))
        assert refused.code == 1
        assert said in refused.err


@pytest.mark.parametrize("command", ["validator", "up"])
def test_a_port_opens_to_the_network_without_keys_only_if_insecure(networks: Networks, command: str) -> None:
    network = networks()
    port = ReservedPort()
    anywhere = f"tcp://0.0.0.0:{port.number}"
    try:
        assert network.run("genesis", "--data-dir", str(network.data)).code == 0
        words = ["--data-dir", str(network.data), "--bind" if command == "validator" else "--validator", anywhere]
        words += ["--rest", network.rest_bind] if command == "up" else []
        refused = network.run(command, *words)
        assert refused.code == 1
        assert f"cannot listen on {anywhere} without keys" in refused.err
        assert "dovetail keygen --connection" in refused.err
        assert "--insecure" in refused.err
        # The refused command began nothing, so the next start finds everything unchanged.
        assert not (network.data / "store").exists()
        if command == "up":
            started = network.start(command, *words, "--insecure", "--logs")
            started.wait_for_line("^ready ")
            started.wait_logged("the port is open to the network: whoever reaches it can judge transactions")
    finally:
        port.close()


def test_ports_listen_on_loopback_by_default(networks: Networks) -> None:
    network = networks()
    up = network.up()
    listening = [
        connection.laddr
        for process in [psutil.Process(up.pid), *up.descendants()]
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert {place.port for place in listening} >= {
        int(address.rpartition(":")[2]) for address in (network.validator_url, network.rest_bind)
    }
    assert all(ipaddress.ip_address(place.ip).is_loopback for place in listening)


def test_up_refuses_to_start_parts_that_could_not_connect(keyed: KeyedNetwork, tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    own = f'connection_key = "{keyed.ring.validator.private}"\nallowed_keys = "{keyed.ring.allowed}"\n'
    file.write_text(f"[validator]\n{own}")
    refused = keyed.network.run(*keyed.network.up_words, "--config", str(file))
    assert refused.code == 1
    assert "the validator asks for keys (validator.connection_key) and [rest_api] has none" in refused.err
    part = 'connection_key = "{}"\nvalidator_key = "{}"\n'
    public = keyed.ring.validator.public
    file.write_text(
        f"[validator]\n{own}[rest_api]\n{part.format(keyed.ring.client.private, public)}"
        f"[processor]\n{part.format(keyed.ring.processor.private, public)}"
    )
    keyed.network.up("--config", str(file))
    keyed.network.call("block", "list")


def test_keygen_makes_connection_keys(networks: Networks) -> None:
    network = networks()
    made = network.run("keygen", "--connection", "intkey-1", "--json")
    assert made.code == 0
    private = network.home / "connection-keys" / "intkey-1.priv"
    assert made.json["private_key_file"] == str(private)
    assert len(made.json["public_key"]) == 40
    assert private.stat().st_mode & 0o777 == 0o600
    assert private.with_suffix(".pub").read_text().strip() == made.json["public_key"]
    again = network.run("keygen", "--connection", "intkey-1")
    assert again.code == 1
    assert "exists and stays as it is" in again.err
    assert private.read_text().strip() not in made.out + made.err + again.err
