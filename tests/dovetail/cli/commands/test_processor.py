"""The processor command: its reports, counts and logs; and the unit files."""

import json
import os
import select
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from dovetail.cli.commands.processor import StatusReporter
from dovetail.common.errors import Refused
from dovetail.node.notify import Notifier, NotifyListener
from dovetail.node.processor_metrics import ProcessorMetrics
from processor_sdk.apply.progress import FamilyCounts
from processor_sdk.runtime import Report, WorkerReport
from tests.dovetail.conftest import Run

pytestmark = pytest.mark.timeout(60)
ROOT = Path(__file__).parents[4]
UNITS = ROOT / "deploy" / "systemd"
COUNTS = FamilyCounts(ok=4, invalid=2, error=1, seconds=0.5, buckets=(3, 0, 0, 4, 0, 0, 0))


def worker(number: int, registered: bool) -> WorkerReport:
    return WorkerReport(number, 100 + number, registered, 5, 2, {("intkey", "1.0"): COUNTS})


def test_readiness_is_every_workers(tmp_path: Path) -> None:
    listener = NotifyListener(tmp_path / "s")
    ready: list[str] = []
    teller = StatusReporter(Notifier(str(listener.path)), lambda: ready.append("ready"), "tcp://validator:4004")
    one = Report((worker(0, True), worker(1, False)), stopping=False)
    both = Report((worker(0, True), worker(1, True)), stopping=False)
    for report in (one, one, both, both):
        teller(report)
    assert ready == ["ready"]
    teller(one)
    teller(one._replace(stopping=True))
    listener_said = listener.drain()
    waiting = {"STATUS": "1 of 2 workers registered at tcp://validator:4004"}
    assert listener_said == [
        waiting,
        {"READY": "1", "STATUS": "ready"},
        {"STATUS": "2 of 2 workers registered at tcp://validator:4004"},
        waiting,
        {"STOPPING": "1"},
    ]
    assert ready == ["ready"]
    listener.close()


def test_metrics_are_named_and_cumulated() -> None:
    metrics = ProcessorMetrics()
    registry = CollectorRegistry()
    registry.register(metrics)
    metrics(Report((worker(0, True), worker(1, False)), stopping=False))
    said = generate_latest(registry).decode()
    labels = 'family="intkey",version="1.0",worker="1"'
    for line in (
        'dovetail_processor_transactions_total{family="intkey",verdict="invalid",version="1.0",worker="1"} 2.0',
        'dovetail_processor_apply_seconds_bucket{family="intkey",le="0.01",version="1.0",worker="1"} 3.0',
        'dovetail_processor_apply_seconds_bucket{family="intkey",le="0.1",version="1.0",worker="1"} 7.0',
        f"dovetail_processor_apply_seconds_count{{{labels}}} 7.0",
        f"dovetail_processor_apply_seconds_sum{{{labels}}} 0.5",
        'dovetail_processor_tasks_in_flight{worker="1"} 5.0',
        'dovetail_processor_connected{worker="0"} 1.0',
        'dovetail_processor_connected{worker="1"} 0.0',
        'dovetail_processor_restarts_total{worker="0"} 2.0',
    ):
        assert line in said.splitlines()


def test_metrics_that_cannot_be_served_are_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Refused, match=f"cannot serve metrics at {address}: Address already in use"):
            ProcessorMetrics().serve(address)


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--workers", "0", "processor.workers = 0 (flag --workers): must be a whole number from 1 to 256"),
        ("--apply-timeout-ms", "0", "must be a whole number of milliseconds from 1 to 86400000"),
        ("--memory-mib-max", "100", "must be 0 for no limit, or a whole number of MiB from 256"),
        ("--connect", "tcp://*:4004", "must be tcp://HOST:PORT, HOST no *"),
        ("--connect", "tcp://host:65536", "must be tcp://HOST:PORT, HOST no *, PORT from 1 to 65535"),
        ("--metrics", "here", "processor.metrics = 'here' (flag --metrics): must be HOST:PORT"),
    ],
)
def test_wrong_values_are_refused(run: Run, option: str, value: str, reason: str) -> None:
    done = run("processor", "families.intkey.handler:IntkeyHandler", option, value)
    assert done.code == 1
    assert reason in done.err


ASKED = """
from dovetail.__main__ import main
from processor_sdk.runtime import TransactionProcessor
TransactionProcessor.run = lambda self, **given: print(given["report_s_max"])
main(["processor", "families.intkey.handler:IntkeyHandler"])
"""


@pytest.mark.parametrize(("watchdog_usec", "report_s_max"), [("1000000", "0.25"), ("30000000", "1.0")])
def test_reports_come_as_often_as_life_must_be_told(tmp_path: Path, watchdog_usec: str, report_s_max: str) -> None:
    environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "s"), "WATCHDOG_USEC": watchdog_usec}
    done = subprocess.run(
        [sys.executable, "-c", ASKED], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == f"{report_s_max}\n"


def test_a_processor_without_stderr_lives_and_ends_in_order(tmp_path: Path) -> None:
    listener = NotifyListener(tmp_path / "s")
    command = [sys.executable, "-m", "dovetail", "processor", "families.intkey.handler:IntkeyHandler"]
    environment = {**os.environ, "NOTIFY_SOCKET": str(listener.path), "WATCHDOG_USEC": "200000"}
    with subprocess.Popen(
        ["/bin/sh", "-c", 'exec "$@" 2>&-', "sh", *command, "--connect", "tcp://127.0.0.1:9"], cwd=ROOT, env=environment
    ) as process:
        told = 0
        while told < 6:
            assert select.select([listener], [], [], 30)[0]
            told += sum("WATCHDOG" in said for said in listener.drain())
        process.terminate()
    assert process.returncode == 0
    listener.close()


LOGGING = """
import logging
from dovetail.node.logs import LogFormat, LogLevel, configure
configure(LogFormat({format!r}), LogLevel.INFO)
logging.getLogger("author").info("said", extra=dict(transaction="ab" * 64, family="f", version="1", level="mine"))
"""


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_the_fields_of_a_record_are_logged(log_format: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOGGING.format(format=log_format)], cwd=ROOT, capture_output=True, text=True, timeout=30,
        check=True,
    )  # fmt: skip
    if log_format == "json":
        members = json.loads(done.stderr)
        assert (members["event"], members["transaction"], members["level"]) == ("said", "ab" * 64, "info")
        assert (members["family"], members["version"], members["logger"]) == ("f", "1", "author")
    else:
        assert "transaction=abababababababab…" in done.stderr
        assert "family=f" in done.stderr


def test_unit_files_are_what_systemd_takes(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    units = []
    for unit in sorted(UNITS.glob("*.service")):
        units.append(tmp_path / unit.name.replace("@.", "@intkey."))
        shutil.copy(unit, units[-1])
    assert len(units) == 3
    done = subprocess.run(
        [analyze, "verify", *map(str, units)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda path: path.name)
def test_unit_files_name_commands_and_options_that_there_are(run: Run, unit: Path) -> None:
    (line,) = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    _, program, command, *options = line.split()
    assert program == "dovetail"
    described = run(command, "--help").out
    for option in options:
        assert not option.startswith("--") or option in described
