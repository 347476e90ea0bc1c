"""``bench --http``: its closed loop against a server that answers as told, its figures, and one tiny real run."""

import asyncio
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from dovetail.bench.http import figures as http_figures
from dovetail.bench.http.figures import RequestFigures
from dovetail.bench.load import figures
from dovetail.bench.process_costs import ProcessFigures
from dovetail.bench.request_loop import Asked, Following, ask
from dovetail.common.errors import Refused
from tests.dovetail.conftest import Run

pytestmark = pytest.mark.timeout(120)

_ROOT = Path(__file__).parents[3]
_REQUESTS = [b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(20)]
_IDS = [f"id{number}" for number in range(20)]

Answer = Callable[[str], tuple[int, str, object]]
"""From a target to status, more header lines and content; status 0 closes the connection."""


def _asked(answer: Answer, *, connections: int = 3, ahead: int | None = None) -> Asked:
    return asyncio.run(_ask(answer, connections, ahead))


async def _ask(answer: Answer, connections: int, ahead: int | None) -> Asked:
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                status, headers, content = answer(head.split()[1])
                if not status:
                    break
                body = json.dumps(content).encode()
                writer.write(f"HTTP/1.1 {status} X\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    following = None if ahead is None else Following(_IDS, ahead)
    try:
        return await ask(
            url,
            _REQUESTS,
            status="200",
            connections=connections,
            on_answered=lambda _: None,
            following=following,
        )
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.gather(*serving)


def _ok(_: str) -> tuple[int, str, object]:
    return 200, "", {"data": 1}


def test_every_request_is_answered_once() -> None:
    targets: list[str] = []

    def answer(target: str) -> tuple[int, str, object]:
        targets.append(target)
        return _ok(target)

    asked = _asked(answer)
    assert sorted(targets) == sorted(f"/{number}" for number in range(20))
    assert (len(asked.latencies_s), asked.refusals, asked.held_s) == (20, 0, 0.0)
    assert asked.settled_s == asked.seconds
    assert all(0 < latency <= asked.seconds for latency in asked.latencies_s)


def test_a_429_is_counted_and_asked_again() -> None:
    refused = {"/3": 2, "/19": 1}

    def answer(target: str) -> tuple[int, str, object]:
        if refused.get(target):
            refused[target] -= 1
            return 429, "Retry-After: 0\r\n", {}
        return _ok(target)

    asked = _asked(answer)
    assert (asked.refusals, len(asked.latencies_s)) == (3, 20)


def test_nothing_is_sent_further_ahead_of_the_last_commit_than_allowed() -> None:
    sent: list[int] = []
    committed = [-1]

    def answer(target: str) -> tuple[int, str, object]:
        if target.startswith("/batch_status"):
            batch_id = target.partition("id=")[2].partition("&")[0]
            committed.append(int(batch_id[2:]))
            return 200, "", {"data": {batch_id: "COMMITTED"}}
        sent.append(int(target[1:]))
        assert sent[-1] <= max(committed) + 2
        return _ok(target)

    asked = _asked(answer, ahead=2)
    assert sent == list(range(20))
    assert committed[-1] == 19
    assert asked.held_s > 0
    assert asked.settled_s >= asked.seconds


@pytest.mark.parametrize(
    ("status", "content", "reason"),
    [(503, "gone", 'GET /4 was answered 503: "gone"'), (0, None, "closed a connection")],
)
def test_any_other_answer_ends_the_run(status: int, content: object, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        _asked(lambda target: (status, "", content) if target == "/4" else _ok(target))


@pytest.mark.parametrize(
    ("content", "reason"),
    [({"data": {"id0": "INVALID"}, "details": {"id0": "x"}}, "batch id0 is INVALID .*: x"), ([], "answered 200")],
)
def test_a_batch_that_does_not_commit_ends_the_run(content: object, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        _asked(lambda target: (200, "", content) if "batch_status" in target else _ok(target), ahead=1)


def _figures(name: str, rate: float, others_cpu_s: float | None = None) -> RequestFigures:
    costs = [("rest-api", 1.0), ("verifier 1", 0.25), ("verifier 2", 0.75)]
    return RequestFigures(
        name=name,
        requests=1000,
        seconds=1.0,
        settled_s=2.0,
        requests_per_s=rate,
        ratio=rate / 100,
        latency=figures.latency([0.001]),
        bytes_an_answer=10.0,
        refusals=0,
        held_s=0.0,
        processes=tuple(ProcessFigures(role, cpu_s, 1.0, 1.0, None) for role, cpu_s in costs),
        others_cpu_s=others_cpu_s,
    )


def test_costs_are_summed_by_role() -> None:
    run = _figures("a", 1.0)
    assert (run.cpu_us("rest-api"), run.cpu_us("verifier"), run.cpu_us("validator")) == (1000.0, 1000.0, None)


def test_the_median_is_of_each_kind_of_request() -> None:
    machine = figures.Machine(2, "3", "x", None)
    runs = [(_figures("a", rate), _figures("b", 10 - rate)) for rate in (1.0, 2.0, 9.0)]
    first, second = http_figures.report(machine, {}, runs).requests
    assert (first.name, first.requests_per_s) == ("a", figures.Spread(2.0, 1.0, 9.0))
    assert (second.name, second.requests_per_s) == ("b", figures.Spread(8.0, 1.0, 9.0))


def test_a_run_beside_something_else_is_told() -> None:
    runs = [(_figures("a", 1.0), _figures("b", 1.0, 0.3)), (_figures("a", 1.0, 0.4), _figures("b", 1.0, 0.5))]
    told = http_figures.report(figures.Machine(2, "3", "x", None), {}, runs)
    assert told.disturbances == ("", "other processes took 12% of the machine during b")
    shown = StringIO()
    http_figures.show(told, Console(file=shown, width=200))
    assert "run 2: other processes took 12% of the machine during b; its figures" in shown.getvalue()


@pytest.mark.parametrize("arguments", [("--http", "--shape", "2"), ("--requests", "9"), ("--connections", "9")])
def test_options_of_the_other_benchmark_are_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    outcome = run("bench", *arguments)
    assert outcome.code == 2
    assert "--http" in outcome.err


@pytest.mark.e2e
def test_a_tiny_run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    profile = tmp_path / "rest.prof"
    words = ("--requests", "20", "--repeat", "2", "--pending", "200", "--dir", str(tmp_path))
    outcome = run("bench", "--http", *words, "--profile-rest-api", str(profile), "--json")
    assert (outcome.code, outcome.err) == (0, "")
    report = json.loads(outcome.out)
    reads = ["GET /healthz", "GET /state/{address}", "GET /blocks?count=10"]
    names = [*reads, "POST /batches of 1", "POST /batches of 100"]
    assert [kind["name"] for kind in report["requests"]] == names
    for made in report["runs"]:
        assert [kind["requests"] for kind in made] == [20, 20, 20, 20, 2]
        assert made[0]["ratio"] == 1.0
        for kind in made:
            assert kind["ratio"] == pytest.approx(kind["requests_per_s"] / made[0]["requests_per_s"])
            assert kind["latency"]["samples"] == kind["requests"]
            assert {"load generator", "rest-api", "validator"} <= {process["name"] for process in kind["processes"]}
    assert len(report["disturbances"]) == 2
    assert profile.stat().st_size
    assert not list(tmp_path.glob("dovetail-bench-*"))
