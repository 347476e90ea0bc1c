"""``dovetail up`` for its user: a ready line, commands that work as printed, an orderly end, clear refusals."""

import json
import signal
import socket
from contextlib import closing
from http.client import HTTPConnection

import psutil
import pytest

from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Networks, Shared
from tests.system.e2e.network import INTKEY, Network
from tests.system.e2e.process import DEADLINE_S, Process
from tests.system.e2e.script_family import HANDLER, address, script
from tests.system.independent import protobuf_wire as wire


def _tries(up: Process) -> list[str]:
    """The three commands that are printed after the ready line."""
    return [line.text.removeprefix("try").strip() for line in up.wait_for_lines(r"^try ", 3)]


class TestAWholeLife:
    """up prints one ready line and three commands; Ctrl-C or SIGTERM ends all parts; a restart keeps the chain."""

    def test_two_lives_of_one_ledger(self, networks: Networks, author: Author) -> None:
        network = networks()
        api = networks.api(network)
        up = network.up()
        tries = _tries(up)
        assert [line for line in up.out if not line.startswith("try ")] == [
            f"ready  REST API {network.rest_url}  validator {network.validator_url}  data {network.data}"
        ]
        del network.environment["DOVETAIL_HOME"]
        network.environment["HOME"] = str(network.home.parent)
        outcomes = [network.run_command(line) for line in tries]
        assert [ran.code for ran in outcomes] == [0, 0, 0], outcomes
        assert outcomes[0].out.endswith("COMMITTED\n")
        assert outcomes[1].out.endswith(": 42\n")
        network.environment["DOVETAIL_HOME"] = str(network.home)

        waiting = author.batch(author.transaction("e2e_late", b""))
        api.accept(waiting)
        chain = api.chain()
        children = up.descendants()
        assert len(children) >= 4
        up.signal(signal.SIGINT)
        assert up.wait() == 130
        assert psutil.wait_procs(children, timeout=DEADLINE_S)[1] == []
        assert [line for line in up.err if "killed" in line] == []

        again = network.up()
        assert "made the" not in "\n".join(again.err)
        assert len([line for line in again.out if line.startswith("ready")]) == 1
        api.commit(author.batch(author.intkey("set", "second life", 1)))
        assert api.chain()[: len(chain)] == chain
        assert len(api.chain()) == len(chain) + 1
        assert api.words(waiting) == ["PENDING"]
        children = again.descendants()
        assert again.terminate() == 0
        assert psutil.wait_procs(children, timeout=DEADLINE_S)[1] == []

    def test_ending_while_a_client_waits(self, networks: Networks, author: Author) -> None:
        """An open wait is answered with 503 and does not delay the end."""
        network = networks()
        up, api = network.up(), networks.api(network)
        waiting = author.batch(author.transaction("e2e_late", b""))
        api.accept(waiting)
        with closing(HTTPConnection(network.rest_bind, timeout=DEADLINE_S)) as connection:
            # The connection is open already, so its second request reaches the REST API as soon as it is sent.
            connection.request("GET", "/blocks")
            connection.getresponse().read()
            connection.request("GET", f"/batch_status?id={waiting.id}&wait=3000")
            up.signal(signal.SIGTERM)
            answer = connection.getresponse()
            error = json.loads(answer.read())["error"]
        assert (answer.status, error["code"]) == (503, 18)
        assert up.wait() == 0
        assert [line for line in up.err if "killed" in line] == []

    def test_ending_before_it_is_ready(self, networks: Networks) -> None:
        network = networks()
        up = network.start(*network.up_words)
        up.wait_for_line("^waiting for ")
        up.signal(signal.SIGINT)
        assert up.wait() == 130
        assert up.out == []

    def test_killed_supervisor_leaves_nothing_behind(self, networks: Networks) -> None:
        network = networks()
        up = network.up()
        children = up.descendants()
        up.signal(signal.SIGKILL)
        assert psutil.wait_procs(children, timeout=DEADLINE_S)[1] == []

    def test_without_families_it_says_what_it_waits_for(self, networks: Networks, author: Author) -> None:
        network = networks()
        assert network.run("genesis", "--data-dir", str(network.data)).code == 0
        with (network.data / "genesis.batch").open("ab") as file:
            first = author.batch(author.intkey("set", "first", 1))
            file.write(wire.encode(wire.repeated(1, [first.to_bytes()])))
        up = network.start(*network.up_words, "--no-families")
        up.wait_for_line(r"validator \(a processor of intkey 1.0, to make the genesis block\)")
        assert up.out == []
        network.processor(INTKEY)
        up.wait_for_line("^ready ")
        networks.api(network).commit(author.batch(author.intkey("set", "n", 1)))
        assert [network.run_command(line).code for line in _tries(up)] == [0, 0, 0]


class TestFamilies:
    """``up --family`` runs a family beside the bundled ones, and restarts its processor when it dies."""

    def test_a_family_is_kept_running(self, networks: Networks, author: Author) -> None:
        network = networks()
        up, api = network.up("--family", HANDLER), networks.api(network)
        up.part(HANDLER).kill()
        up.wait_for_line(r"^e2e_script was ended by SIGKILL; starting it again")
        up.wait_for_line(r"^e2e_script serves again")
        place = address("kept")
        write = author.transaction("e2e_script", script(("write", place, "01")), outputs=[place])
        api.commit(author.batch(write), author.batch(author.intkey("set", "kept", 1)))
        assert api.leaf(place) == b"\x01"


class TestLogs:
    """``up --logs`` shows the output of the parts, line by line."""

    def test_every_line_is_a_line_of_the_part(self, shared: Shared) -> None:
        for _ in range(100):
            shared.api.get("/blocks", count=1)
        shown = [line.partition(" | ")[2] for line in shared.up.err if line.startswith("rest-api  |")]
        assert [text for text in shown if not text.strip()] == []


class TestRefusals:
    """Each refusal has exit code 1, and the reason in one clear line on stderr."""

    @pytest.fixture
    def taken(self) -> socket.socket:
        """A listening socket."""
        return socket.create_server(("127.0.0.1", 0))

    def _assert_refused(self, network: Network, words: tuple[str, ...], *said: str) -> None:
        ran = network.run(*words)
        assert ran.code == 1, ran
        assert ran.out == ""
        (line,) = (line for line in ran.err.splitlines() if line.startswith("dovetail: "))
        assert ran.err.splitlines()[-1] == line
        assert "Traceback" not in ran.err
        for text in said:
            assert text in line

    @pytest.mark.parametrize("part", ["validator", "rest-api"])
    def test_port_in_use(self, networks: Networks, taken: socket.socket, part: str) -> None:
        network = networks()
        with taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            validator = f"tcp://{address}" if part == "validator" else network.validator_url
            rest = address if part == "rest-api" else network.rest_bind
            words = ("up", "--data-dir", str(network.data), "--validator", validator, "--rest", rest)
            self._assert_refused(network, words, f"{part}: cannot listen on ", address)

    def test_port_in_use_by_a_part_alone(self, networks: Networks, taken: socket.socket) -> None:
        network = networks()
        network.run("genesis", "--data-dir", str(network.data))
        with taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            validator = ("validator", "--data-dir", str(network.data), "--bind", f"tcp://{address}")
            self._assert_refused(network, validator, "cannot listen on ", address)
            rest = ("rest-api", "--bind", address, "--validator", network.validator_url)
            self._assert_refused(network, rest, "cannot listen on ", address)

    def test_two_validators_on_one_folder(self, networks: Networks) -> None:
        network, other = networks(), networks()
        network.up()
        words = ("validator", "--data-dir", str(network.data), "--bind", other.validator_url)
        self._assert_refused(network, words, "in use by another validator")
        whole = ("up", "--data-dir", str(network.data), "--validator", other.validator_url, "--rest", other.rest_bind)
        self._assert_refused(network, whole, "in use by another validator")
        assert network.run("block", "list", "--url", network.rest_url).code == 0

    def test_validator_without_a_genesis(self, networks: Networks) -> None:
        network = networks()
        network.run("keygen", str(network.data / "keys" / "validator.priv"))
        words = ("validator", "--data-dir", str(network.data), "--bind", network.validator_url)
        self._assert_refused(network, words, "there is no chain", "dovetail genesis")
