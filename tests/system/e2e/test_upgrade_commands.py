"""``dovetail upgrade`` at a real node: plan, watch, cancel, vote, activation, retirement."""

import os
import pty
import re
import signal
import subprocess
import sys
from typing import Any

import psutil
import pytest

from tests.system.e2e.clients import Api, Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.network import Network, Ran
from tests.system.e2e.process import DEADLINE_S, ROOT
from tests.system.e2e.script_family import NAMESPACE, bare_apply, script
from tests.system.independent.bare_processor import BareProcessor

_FAMILIES = "sawtooth.validator.transaction_families"
_KEYS = "sawtooth.settings.vote.authorized_keys"
_THRESHOLD = "sawtooth.settings.vote.approval_threshold"


class _Node:
    """A node with processors of intkey and settings, and one block after genesis."""

    def __init__(self, networks: Networks, author: Author) -> None:
        self.network: Network = networks()
        self.up = self.network.up()
        self.api: Api = networks.api(self.network)
        self.author = author
        self.made = 0
        self.move(1)

    def move(self, blocks: int) -> None:
        """Make so many more blocks."""
        for _ in range(blocks):
            self.made += 1
            self.api.commit(self.author.batch(self.author.intkey("set", f"n{self.made}", 1)))

    def upgrade(self, *words: str) -> Ran:
        return self.network.run("upgrade", *words, "--url", self.network.rest_url)

    def done(self, *words: str) -> Ran:
        ran = self.upgrade(*words)
        assert ran.code == 0, ran.err
        return ran

    def refused(self, *words: str) -> str:
        ran = self.upgrade(*words)
        assert ran.code == 1, ran.out
        return ran.err

    @property
    def setting(self) -> str | None:
        settings: dict[str, str] = self.network.call("settings", "list", "--json").json["settings"]
        return settings.get(_FAMILIES)

    @property
    def head_num(self) -> int:
        return int(self.api.get("/readyz")["data"]["head_num"])

    @property
    def warnings(self) -> list[str]:
        return list(self.api.get("/readyz")["data"]["warnings"])

    def families(self) -> dict[str, dict[str, Any]]:
        """The families of ``upgrade status``, whatever its exit code."""
        ran = self.upgrade("status", "--json")
        assert ran.code == bool(ran.json["stalls"] or ran.json["open"])
        return {f"{entry['family_name']} {entry['family_version']}": entry for entry in ran.json["families"]}

    def processor(self, family: str, version: str) -> BareProcessor:
        return BareProcessor(self.network.validator_url, family, version, [NAMESPACE], bare_apply)


@pytest.fixture
def node(networks: Networks, author: Author) -> _Node:
    return _Node(networks, author)


def test_the_whole_sequence(node: _Node) -> None:
    """Plan, warnings, processors, activation, retirement; each step is refused where it makes no sense."""
    assert node.setting is None
    assert "say --yes" in node.refused("plan", "intkey", "1.0", "2.0", "--at", "+5")
    assert "served or committed is: intkey 1.0" in node.refused("plan", "intkey", "0.9", "2", "--at", "+5")
    assert "is in use already" in node.refused("plan", "intkey", "2.0", "1.0", "--at", "+5", "--also", "intkey:2.0")
    planned = node.done("plan", "intkey", "1.0", "2.0", "--at", "+5", "--also", "other:1.0", "--yes")
    assert re.search(r"intkey +2\.0 +permitted, as everything is +from block 6\n", planned.out)
    assert "upgrade status --watch" in planned.out

    node.up.wait_for_line(r'intkey 2\.0 is permitted from block 6 on.*"an upgrade would stall"')
    assert [warning.split(" is permitted")[0] for warning in node.warnings] == ["other 1.0", "intkey 2.0"]
    metrics = node.api.http.get("/metrics").text
    assert 'dovetail_validator_upgrade_unready{family="intkey",version="2.0"} 1.0' in metrics
    assert "intkey 2.0" in node.network.call("status").out
    ran = node.upgrade("status")
    assert ran.code == 1
    assert "intkey 2.0: batches would wait: no processor serves it" in ran.err
    assert re.search(r"intkey +2\.0 +from block 6, 4 to go", ran.out)
    # --watch without a terminal is wrong usage.
    assert node.upgrade("status", "--watch").code == 2

    waiting = node.author.batch(node.author.transaction("other", script()))
    node.api.accept(waiting)
    assert "1 batch waiting: no processor serves it" in node.families()["other 1.0"]["outlook"]
    with node.processor("intkey", "2.0"), node.processor("other", "1.0"):
        node.api.settle(waiting)
        node.up.wait_for_line(r'"family": "intkey 2\.0".*"an upgrade would not stall any more"')
        assert node.warnings == []
        assert "dovetail_validator_upgrade_unready{" not in node.api.http.get("/metrics").text
        told = node.families()["intkey 2.0"]
        assert (told["permission"], told["from_block"], told["stalls"]) == ("waiting", 6, False)
        assert "ready from block 6" in node.done("status").out
        assert "planned already" in node.refused("plan", "intkey", "1.0", "2.0", "--at", "+5", "--yes")
        node.move(6 - node.head_num)
        assert node.families()["intkey 2.0"]["permission"] == "permitted"
        assert "permitted since block 6" in node.refused("cancel", "intkey", "2.0")

        assert "is past" in node.refused("retire", "intkey", "1.0", "--until", "6")
        assert "no setting, this one" in node.refused("retire", "sawtooth_settings", "1.0", "--until", "+5")
        node.done("retire", "intkey", "1.0", "--until", "+2")
        node.move(8 - node.head_num)
        assert node.families()["intkey 1.0"]["permission"] == "ended"
        details = node.api.reject(node.author.batch(node.author.intkey("set", "late", 1)))
        assert details["reason"] == "family_not_permitted"


def test_what_is_called_off_is_as_it_was(node: _Node) -> None:
    """Two things stay: the setting, even if the plan made it, and the end that another plan asked for."""
    node.done("plan", "intkey", "1.0", "2.0", "--at", "+9", "--yes")
    first = node.done("cancel", "intkey", "2.0", "--json").json
    assert node.setting == first["value"]
    assert "2.0" not in first["value"]
    node.done("plan", "intkey", "1.0", "2.0", "--at", "+9", "--migrate", "1cf126")
    assert '"migrate": ["1cf126"]' in str(node.setting)
    with node.processor("intkey", "2.0"):
        assert "start one that has migrate" in node.refused("status")
        assert "which none of its 1 processors here does" in node.warnings[0]
    asked = node.refused("cancel", "intkey", "2.0")
    assert re.search("the end of intkey 1.0 with block [0-9]+ is lifted", asked)
    node.done("cancel", "intkey", "2.0", "--yes")
    assert node.setting == first["value"]
    assert node.warnings == []
    assert "is not planned" in node.refused("cancel", "intkey", "2.0")
    node.done("plan", "intkey", "1.0", "2.0", "--at", "+9", "--until", "+20")
    until = node.head_num - 1 + 20
    assert f"no version of intkey is permitted from block {until + 1} on" in node.refused("cancel", "intkey", "2.0")
    node.done("cancel", "intkey", "2.0", "--yes")
    assert f'"until_block": {until}' in str(node.setting)


def test_a_migration_that_cannot_be_made_is_called_off(node: _Node) -> None:
    """If the activation's block has come and nothing was migrated, the version before continues."""
    node.done("plan", "intkey", "1.0", "2.0", "--at", "+2", "--migrate", "1cf126", "--yes")
    late = node.author.batch(node.author.intkey("set", "late", 1))
    assert node.api.reject(late)["reason"] == "family_not_permitted"
    assert "is not made yet" in node.refused("plan", "intkey", "2.0", "3.0", "--at", "+5")
    node.done("cancel", "intkey", "2.0", "--yes")
    node.move(1)


def test_a_plan_that_is_voted_on(node: _Node) -> None:
    """The threshold is 2 of 3 keys. The plan is shown with its votes, accepted by another key, or voted against."""
    network = node.network
    own = network.call("settings", "list", "--json").json["settings"][_KEYS]
    others = [network.run("keygen", name, "--json").json["public_key"] for name in ("alice", "bob")]
    network.call("settings", "propose", _KEYS, ",".join([own, *others]), "--wait", "30")
    network.call("settings", "propose", _THRESHOLD, "2", "--wait", "30")
    network.run("keygen", "stranger")
    plan = ("plan", "intkey", "1.0", "2.0", "--at", "+9", "--yes")
    assert "is not authorized" in node.refused(*plan, "--key", "stranger")

    planned = node.done(*plan)
    proposal_id = re.search(r"proposal id: ([0-9a-f]+)", planned.out)
    assert proposal_id is not None
    assert f"settings vote {proposal_id[1][:16]} accept" in planned.out
    assert node.setting is None
    assert f"proposal {proposal_id[1]} has 1 of 2 votes" in node.refused("status")
    shown = node.upgrade("status", "--json").json["proposals"]
    assert [(entry["votes_for"], entry["votes_against"], entry["votes_needed"]) for entry in shown] == [(1, 0, 2)]
    assert any(change.startswith("intkey 2.0 from block") for change in shown[0]["changes"])
    assert proposal_id[1] in node.upgrade("status").out

    assert "a vote stays; the proposal falls when 2 of 3 keys reject it" in node.refused("cancel", "intkey", "2.0")
    assert "nobody is there to ask whether to vote against" in node.refused("cancel", "intkey", "2.0", "--key", "alice")
    assert "1 of 2 that let it fall" in node.done("cancel", "intkey", "2.0", "--key", "alice", "--yes").err
    assert node.upgrade("status", "--json").json["proposals"][0]["votes_against"] == 1
    assert "it has fallen with your vote" in node.done("cancel", "intkey", "2.0", "--key", "bob", "--yes").err
    assert node.done("status", "--json").json["proposals"] == []
    assert node.setting is None

    again = node.done(*plan, "--json").json
    same = node.refused("plan", "intkey", "1.0", "2.0", "--at", str(again["from_block"]), "--yes")
    assert "asks for the same and is still voted on" in same
    assert (again["votes_needed"], again["in_force"]) == (2, False)
    network.call("settings", "vote", again["proposal_id"], "accept", "--key", "bob", "--wait", "30")
    assert node.setting == again["value"]


def test_a_terminal_is_asked_and_watches(node: _Node) -> None:
    """After the answer "no", nothing is proposed. --watch shows changes until Ctrl-C."""
    with _Terminal(node.network, "upgrade", "plan", "intkey", "1.0", "2.0", "--at", "+5") as terminal:
        terminal.read_until("Propose intkey 2.0 from block 6?")
        terminal.write("n\n")
        assert terminal.end() == 1
    with _Terminal(node.network, "upgrade", "plan", "intkey", "1.0", "2.0", "--at", "+5") as terminal:
        terminal.read_until("[y/N]")
        terminal.write("perhaps\n")
        terminal.read_until("[y/N]")
        terminal.interrupt()
        assert terminal.end() == 130
    assert node.setting is None
    with _Terminal(node.network, "upgrade", "plan", "intkey", "1.0", "2.0", "--at", "+5") as terminal:
        terminal.read_until("[y/N]")
        terminal.write("y\n")
        assert terminal.end() == 0
    with _Terminal(node.network, "upgrade", "status", "--watch") as terminal:
        terminal.read_until("something would stall")
        with node.processor("intkey", "2.0"):
            terminal.read_until("nothing would stall")
            terminal.interrupt()
            assert terminal.end() == 0


class _Terminal:
    """A command whose three streams are a terminal."""

    def __init__(self, network: Network, *words: str) -> None:
        self._own, theirs = pty.openpty()
        self._text = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dovetail", *words, "--url", network.rest_url],
            cwd=ROOT,
            env={**network.environment, "TERM": "xterm", "COLUMNS": "300", "LINES": "50"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def __enter__(self) -> "_Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._own)

    def read_until(self, text: str) -> None:
        """Read until the terminal shows ``text``; the test's timeout is the limit."""
        while text not in self._text:
            self._text += os.read(self._own, 65_536).decode(errors="replace")
        self._text = self._text.partition(text)[2]

    def write(self, text: str) -> None:
        os.write(self._own, text.encode())

    def interrupt(self) -> None:
        """Send Ctrl-C while the command waits in a read.

        Python's input() may lose characters between its prompt and its read.
        """
        while psutil.Process(self._process.pid).status() != psutil.STATUS_SLEEPING:
            pass
        self._process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Wait for the end, and return the exit code.

        Reads remaining output, because the command would wait for a reader.
        """
        try:
            while os.read(self._own, 65_536):
                pass
        except OSError:
            # The command's side of the terminal is closed.
            pass
        return self._process.wait(DEADLINE_S)
