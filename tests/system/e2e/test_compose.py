"""deploy/compose without containers: its commands run as processes, and the steps of the image run in a folder."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.deployed import PAGE, Place, lines_of
from tests.system.e2e.process import ROOT

COMPOSE = ROOT / "deploy" / "compose"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((COMPOSE / "compose.yaml").read_text(encoding="utf-8"))["services"]


@pytest.fixture
def place(networks: Networks) -> Iterator[Place]:
    with Place(networks()) as made:
        yield made


def test_the_page_names_services_and_files_that_there_are() -> None:
    for line in lines_of("Containers"):
        assert line.startswith("docker compose --file deploy/compose/compose.yaml ")
        for word in shlex.split(line)[4:]:
            name = re.split(r"[=:]", word)[0]
            is_command = name in {"build", "run", "up", "restart", "cp", "."} or name.startswith("--")
            assert is_command or name in SERVICES, word
    assert set(re.findall(r"--scale (\w+)=", PAGE)) <= set(SERVICES)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_no_rights_that_it_does_not_need(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["logging"] == {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}}
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    assert "healthcheck" in service or name == "genesis"


def test_the_services_run_and_are_healthy(place: Place, networks: Networks, author: Author) -> None:
    network = place.network
    environment = {"PYTHONPATH": f"{COMPOSE}:{ROOT}"}
    assert network.run(*SERVICES["genesis"]["command"]).code == 0
    running = [name for name in SERVICES if name != "genesis"]
    for name in running:
        words = [place.with_metrics(word, name) for word in SERVICES[name]["command"]]
        place.start(words, name, **environment).wait_for_line("(event|ready)")
    for process in network.processes:
        process.wait_logged("ready")
    for name in running:
        kind, program, *arguments = SERVICES[name]["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "python")
        checked = network.run_command([sys.executable, *(place.with_metrics(word, name) for word in arguments)])
        assert checked.code == 0, checked
    api = networks.api(network)
    api.commit(author.batch(author.intkey("set", "compose", 1)))
    place_of_note = ["0f4e2a" + "ab" * 32]
    refused = api.reject(author.batch(author.transaction("notes", b"x", inputs=place_of_note, outputs=[])))
    assert "not the one of the note" in refused["message"]


def test_a_processor_without_a_validator_is_not_healthy(place: Place) -> None:
    words = [place.with_metrics(word, "intkey") for word in SERVICES["intkey"]["command"]]
    place.start(words, "intkey").wait_for_line("waiting for the validator")
    _, _, *arguments = SERVICES["intkey"]["healthcheck"]["test"]
    checked = place.network.run_command([sys.executable, *(place.with_metrics(word, "intkey") for word in arguments)])
    assert checked.code == 1, checked


@pytest.mark.timeout(600)
def test_the_image_is_built_and_has_the_commands(tmp_path: Path) -> None:
    text = (COMPOSE / "Dockerfile").read_text(encoding="utf-8")
    ignored = (COMPOSE / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[0] == "*"
    source = tmp_path / "src"
    source.mkdir()
    for entry in (line.removeprefix("!") for line in ignored if line.startswith("!")):
        copy = shutil.copytree if (ROOT / entry).is_dir() else shutil.copy
        (source / entry).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / entry, source / entry)
    build, _, last = text.partition("\nFROM")[2].partition("\nFROM")
    for line in re.findall(r"(?m)^RUN (.*)$", build):
        words = [word.replace("/opt/", f"{tmp_path}/opt/") for word in shlex.split(line)]
        ran = subprocess.run(
            [sys.executable if words[0] == "python" else words[0], *words[1:]],
            cwd=source, capture_output=True, text=True, timeout=500, check=False,
        )  # fmt: skip
        if ran.returncode and re.search(r"Could not find a version|Max retries|NewConnectionError", ran.stderr):
            pytest.skip("no package index can be reached from here")
        assert ran.returncode == 0, ran.stderr
    (entry,) = re.findall(r'ENTRYPOINT \["(\w+)"\]', last)
    for name, service in SERVICES.items():
        helped = subprocess.run(
            [tmp_path / "opt/dovetail/bin" / entry, service["command"][0], "--help"],
            cwd=tmp_path, env={"HOME": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert helped.returncode == 0, f"{name}: {helped.stderr}"
        for option in (word.partition("=")[0] for word in service["command"] if word.startswith("--")):
            assert option in helped.stdout
    users = re.findall(r"(?m)^USER (\w+)$", last)
    assert users == ["dovetail"]
    assert "useradd --uid 10001 --user-group --create-home --home-dir /var/lib/dovetail" in last
