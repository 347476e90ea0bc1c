"""Checks the files of deploy/prometheus: their metrics exist, and their alerts fire in the right cases."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Shared
from tests.system.e2e.network import INTKEY, ReservedPort
from tests.system.e2e.process import ROOT

FOLDER = ROOT / "deploy" / "prometheus"
CASES = Path(__file__).parent / "prometheus_cases.yml"


def rules() -> str:
    """The rules without comments."""
    return re.sub(r"(?m)^\s*#.*$", "", (FOLDER / "alerts.yml").read_text(encoding="utf-8"))


def processor_metrics(shared: Shared) -> str:
    """The metrics of a processor."""
    port = ReservedPort()
    address = f"127.0.0.1:{port.number}"
    network = shared.network
    processor = network.start("processor", INTKEY, "--connect", network.validator_url, "--metrics", address)
    try:
        processor.wait_logged("ready")
        return httpx.get(f"http://{address}/metrics", trust_env=False).text
    finally:
        processor.close()
        port.close()


def test_every_metric_and_label_of_the_rules_is_served(
    shared: Shared, author: Author, named: Callable[[str], str]
) -> None:
    shared.api.commit(author.batch(author.intkey("set", named("n"), 1)))
    served: dict[str, set[str]] = {"up": {"job", "instance"}}
    for text in (shared.api.http.get("/metrics").text, processor_metrics(shared)):
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                served.setdefault(sample.name, set()).update(sample.labels)
    wanted = set(re.findall(r"\b(dovetail_\w+)\b", rules()))
    assert len(wanted) > 5
    assert sorted(wanted - set(served)) == []
    for name, labels in re.findall(r"\b(up|dovetail_\w+)\{([^}]*)\}", rules()):
        assert set(re.findall(r"(\w+)=", labels)) <= served[name], name
    for labels, expression in re.findall(r"sum without \(([^)]*)\) \((.*?)\)", rules()):
        name = re.search(r"dovetail_\w+", expression)
        assert name
        assert set(labels.split(", ")) <= served[name[0]], name[0]


def test_no_counter_tells_when_it_was_made(shared: Shared) -> None:
    assert "_created" not in shared.api.http.get("/metrics").text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files, and the password and certificate that they name."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    for file in FOLDER.glob("*.yml"):
        shutil.copy(file, tmp_path)
    shutil.copy(CASES, tmp_path)
    (tmp_path / "dovetail.password").write_text("any")
    (tmp_path / "dovetail-proxy.crt").touch()
    return tmp_path


@pytest.mark.parametrize("words", [("check", "config", "prometheus.yml"), ("test", "rules", CASES.name)], ids=" ".join)
def test_promtool_finds_nothing(folder: Path, words: tuple[str, ...]) -> None:
    ran = subprocess.run(["promtool", *words], cwd=folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_alert_has_a_case() -> None:
    alerts = re.findall(r"alert: (\w+)", rules())
    cases = CASES.read_text(encoding="utf-8")
    assert len(alerts) > 5
    for alert in alerts:
        assert re.search(rf"alertname: {alert}\n\s+exp_alerts:", cases), alert
