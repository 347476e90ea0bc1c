"""Runs the commands of docs/how-to/daemons.md and the units of deploy/systemd. Containers: ``test_compose``."""

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from processor_sdk.worker.watch import LATE_EXIT, OVERTIME_EXIT
from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Networks, Shared
from tests.system.e2e.deployed import PAGE, Place, lines_of, section
from tests.system.e2e.network import INTKEY
from tests.system.e2e.process import ROOT, Process
from tests.system.e2e.script_family import HANDLER, Gate, script

LINES = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
UNITS = ROOT / "deploy" / "systemd"


def rows(title: str) -> list[list[str]]:
    """The cells of a section's tables, without headers."""
    found = [line.strip("| ").split(" | ") for line in section(title).splitlines() if line.startswith("| ")]
    return found[1:]


@pytest.fixture
def place(networks: Networks) -> Iterator[Place]:
    with Place(networks()) as made:
        yield made


def test_every_line_is_run_or_held_by_a_test() -> None:
    known = ("dovetail ", "curl ", "journalctl ", "docker compose ", "systemctl restart ")
    systemd = lines_of("systemd")
    assert [line for line in LINES if not line.startswith(known) and line not in systemd] == []


def test_a_node_from_its_parts(place: Place, networks: Networks, author: Author) -> None:
    first, *others = lines_of("A node from its parts")
    assert place.network.run(*shlex.split(first)[1:]).code == 0
    started = [place.start(shlex.split(place.with_metrics(line, "page"))[1:], line) for line in others]
    for process in started:
        process.wait_logged("ready")
    (curl,) = lines_of("Metrics")
    told = place.network.run_command(place.with_metrics(curl, "page"))
    assert told.code == 0, told
    served = set(re.findall(r"(?m)^# TYPE (\w+) ", told.out))
    assert served == {row[0].strip("`") for row in rows("Metrics")}
    for name, labels, _ in rows("Metrics"):
        sample = re.search(rf"(?m)^{name.strip('`')}(?:_sum)?(?:{{(.*?)}})? ", told.out)
        assert sample
        assert sorted(re.findall(r"(\w+)=", sample[1] or "")) == sorted(re.split(r"[;,] ", labels)[1:])
    api = networks.api(place.network)
    api.commit(author.batch(author.intkey("set", "daemon", 1)))


def test_the_options_are_those_of_the_command(place: Place) -> None:
    told = place.network.run("processor", "--help").out
    options = set(re.findall(r"(?m)^│ +(--[a-z-]+)", told))
    assert {row[0].strip("`") for row in rows("The command")[: len(options)]} == options


def test_the_exit_codes_are_those_of_the_command(shared: Shared) -> None:
    codes = {row[0] for row in rows("The command") if row[0].isdigit()}
    assert codes == {"0", "130", "1", "2", "137"}
    for words, code in ((["families.intkey.handler:Nobody"], 1), (["--nonsense"], 2)):
        assert shared.network.run("processor", *words).code == code
    assert f"ends with code {OVERTIME_EXIT}" in section("What happens when")
    assert LATE_EXIT not in (0, OVERTIME_EXIT)


def test_a_log_line_has_the_members_of_the_example(shared: Shared, author: Author) -> None:
    (example,) = re.findall(r"```json\n(.*?)\n```", PAGE, re.DOTALL)
    shared.api.accept(author.batch(author.transaction("e2e_script", script(("no such step",)))))
    processor = next(process for process in shared.network.processes if process.name == "ScriptHandler")
    logged = processor.wait_logged("an apply ended without a verdict").logged
    assert set(json.loads(example)) == set(logged)
    assert logged["family"] == "e2e_script"


def test_a_processor_is_replaced_under_load(networks: Networks, author: Author, gate: Gate) -> None:
    network = networks()
    up = network.up()
    api = networks.api(network)
    first = network.processor(HANDLER)
    first.wait_logged("ready")
    held = author.batch(author.transaction("e2e_script", script(("hold", gate.port))))
    api.accept(held)
    gate.wait()
    network.processor(HANDLER).wait_logged("ready")
    first.request_end()
    up.wait_logged("processor left", families=["e2e_script 1.0"])
    # From here on another processor gets new tasks, while this one still has its own.
    api.commit(author.batch(author.transaction("e2e_script", script())))
    assert api.words(held) == ["PENDING"]
    gate.open()
    assert first.wait() == 0
    assert api.settle(held) == ["COMMITTED"]
    assert first.count_logged("lost the validator") == 0


class TestSystemd:
    """The lines of the page and the units, in a folder that replaces the system's root."""

    STUBS = ("useradd", "systemctl", "runuser")

    @pytest.fixture
    def root(self, place: Place, tmp_path: Path) -> Path:
        """The root after the page's commands. ``asked`` holds the commands that only root may run."""
        root, programs = tmp_path / "root", tmp_path / "programs"
        programs.mkdir()
        (root / "etc/systemd/system").mkdir(parents=True)
        for stub in self.STUBS:
            (programs / stub).write_text(f'#!/bin/sh\necho {stub} "$@" >>{tmp_path}/asked\n')
        # The commands run as the current user, because the user does not matter here.
        (programs / "runuser").write_text('#!/bin/sh\nshift 3\nexec "$@"\n')
        (programs / "python3").write_text(
            '#!/bin/sh\nmkdir -p "$3/bin"\n'
            f'printf "#!/bin/sh\\nexec {sys.executable} -m dovetail \\"\\$@\\"\\n" >"$3/bin/dovetail"\n'
            'printf "#!/bin/sh\\n" >"$3/bin/pip"\nchmod +x "$3"/bin/*\n'
        )
        for program in programs.iterdir():
            program.chmod(0o755)
        lines = [re.sub(r"(?<![\w.])/(opt|etc|var)/", rf"{root}/\1/", line) for line in lines_of("systemd")]
        place.network.environment.pop("DOVETAIL_VALIDATOR_DATA_DIR")
        ran = place.network.run_command(f"set -e; export PATH={programs}:$PATH\n" + "\n".join(lines))
        assert ran.code == 0, ran
        return root

    def test_the_units_run_what_the_page_installs(
        self, root: Path, place: Place, networks: Networks, author: Author, tmp_path: Path
    ) -> None:
        assert {file.name for file in (root / "etc/systemd/system").iterdir()} == {
            file.name for file in UNITS.iterdir()
        }
        enabled = (tmp_path / "asked").read_text().splitlines()[-1].removeprefix("systemctl enable --now ").split()
        # A unit that comes after another unit starts when the other has reported that it is ready, as under systemd.
        waiting = {unit: set(enabled) & self.earlier(unit, root) for unit in enabled}
        while waiting:
            startable = [unit for unit, earlier in waiting.items() if not earlier & set(waiting)]
            started = [self.started(unit, root, place) for unit in startable]
            for unit, process in zip(startable, started, strict=True):
                process.wait_logged("ready")
                del waiting[unit]
        networks.api(place.network).commit(author.batch(author.intkey("set", "unit", 1)))
        (key,) = re.findall(r"With the key in `(/var/[^`]+)`, anybody can change the ledger's settings", PAGE)
        assert (root / key.lstrip("/")).exists()

    def text(self, unit: str, root: Path) -> str:
        """The unit with ``root`` in place of the system's root."""
        name, at, instance = unit.partition("@")
        text = (root / "etc/systemd/system" / f"{name}{at}.service").read_text(encoding="utf-8")
        return re.sub(r"(?<![\w.])/(opt|etc|var)/", rf"{root}/\1/", text.replace("%i", instance))

    def words(self, unit: str, name: str, root: Path) -> list[str]:
        return [word for line in re.findall(rf"(?m)^{name}=(.*)$", self.text(unit, root)) for word in line.split()]

    def earlier(self, unit: str, root: Path) -> set[str]:
        return {name.removesuffix(".service") for name in self.words(unit, "After", root)}

    def started(self, unit: str, root: Path, place: Place) -> Process:
        settings = dict(word.split("=", 1) for word in self.words(unit, "Environment", root))
        for file in self.words(unit, "EnvironmentFile", root):
            settings |= dict(line.split("=", 1) for line in Path(file).read_text().splitlines())
        settings = {key: place.with_metrics(value, unit) for key, value in settings.items()}
        words = [settings.get(word.removeprefix("$"), word) for word in self.words(unit, "ExecStart", root)]
        settings["PATH"] += f":{os.environ['PATH']}"
        process = Process(unit, words, place.network.environment | settings)
        place.network.processes.append(process)
        return process


def test_the_network_lines_reach_each_other(place: Place) -> None:
    assert place.network.run("genesis").code == 0
    bind, connect = lines_of("Over the network")
    started = [place.start(shlex.split(place.named(line))[1:], line) for line in (bind, connect)]
    for process in started:
        process.wait_logged("ready")


def test_the_page_names_alerts_families_and_files_that_there_are() -> None:
    alerts = set(re.findall(r"alert: (\w+)", (ROOT / "deploy/prometheus/alerts.yml").read_text()))
    named = set(re.findall(r"`(Dovetail[A-Z]\w+)`", PAGE))
    assert named <= alerts
    assert {alert for alert in alerts if alert.startswith("DovetailProcessor")} <= named
    assert set(re.findall(r"families\.\w+\.handler:\w+", PAGE)) == {INTKEY}
