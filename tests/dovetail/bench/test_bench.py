"""The benchmark: its load, its sender against a server that answers as told, its figures, and one tiny real run."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.bench.load import figures
from dovetail.bench.load.idle_baseline import Baseline
from dovetail.bench.load.post_loop import Sent, send
from dovetail.bench.signed_load import Ceiling, Load, Post, sign_post
from dovetail.common.errors import Refused
from dovetail.ledger.batch import decode_batch_list, verify_batch
from dovetail.ledger.transaction import decode_transaction
from families.intkey.payload import ENCODINGS, IntkeyPayload
from tests.dovetail.conftest import Run

pytestmark = pytest.mark.timeout(120)

_ROOT = Path(__file__).parents[3]
_LOAD = Load(seed=7, mark="ab12cd34", verb="inc", names=3, transactions=11, shape=2, per_post=4)
_POSTS = [Post(b"body %d" % number, (f"{number:0128x}",), 1) for number in range(40)]


def _payloads(load: Load) -> list[IntkeyPayload]:
    verified = [verify_batch(raw) for number in range(load.posts) for raw in _batches(sign_post(load, number))]
    return [
        ENCODINGS["application/cbor"].decode(decode_transaction(transaction.raw).payload)
        for batch in verified
        for transaction in batch.transactions
    ]


def _batches(post: Post) -> list[bytes]:
    return decode_batch_list(post.body)


def test_a_load_is_packed_to_its_last_transaction() -> None:
    posts = [sign_post(_LOAD, number) for number in range(_LOAD.posts)]
    assert (_LOAD.batches, _LOAD.posts) == (6, 2)
    assert [post.transactions for post in posts] == [8, 3]
    for post in posts:
        assert tuple(verify_batch(raw).id for raw in _batches(post)) == post.batch_ids
    assert len(_payloads(_LOAD)) == 11


def test_every_name_is_set_once_before_it_is_drawn() -> None:
    names = [payload.name for payload in _payloads(replace(_LOAD, verb="set", transactions=3))]
    assert len(set(names)) == 3
    assert {payload.name for payload in _payloads(_LOAD)} <= set(names)


def test_equal_loads_are_equal_bytes_and_another_mark_is_all_new() -> None:
    assert sign_post(_LOAD, 1) == sign_post(replace(_LOAD), 1)
    other = sign_post(replace(_LOAD, mark="ffffffff"), 1)
    assert not set(other.batch_ids) & set(sign_post(_LOAD, 1).batch_ids)


Answer = Callable[[str, int], tuple[int, dict[str, str], object]]


class _Server:
    """Answers ``answer(target, post)``; closes the connection for status 0."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._serving: list[asyncio.Task[None]] = []
        self.received: list[int] = []

    def send(self, *, in_flight: int = 2, ahead: int = 40) -> tuple[Sent, int]:
        """What became of the 40 POSTs, and how many were told to be committed."""
        return asyncio.run(self._send(in_flight, ahead))

    async def _send(self, in_flight: int, ahead: int) -> tuple[Sent, int]:
        told: list[int] = []
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            url = f"http://127.0.0.1:{port}/ledger"
            sent = await send(url, _POSTS, in_flight=in_flight, ahead=ahead, on_committed=told.append)
        finally:
            server.close()
            await server.wait_closed()
            await asyncio.gather(*self._serving)
        return sent, sum(told)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.append(task)
        while head := await self._head(reader):
            target = head[0].split()[1]
            headers = dict(line.lower().split(": ", 1) for line in head[1:])
            assert headers["content-type"] == "application/octet-stream"
            post = int((await reader.readexactly(int(headers["content-length"]))).split()[1])
            self.received.append(post)
            status, extra, content = self._answer(target, post)
            if not status:
                break
            body = json.dumps(content).encode()
            lines = [f"HTTP/1.1 {status} Some Reason", *(f"{name}: {value}" for name, value in extra.items())]
            writer.write("\r\n".join((*lines, f"Content-Length: {len(body)}", "", "")).encode())
            await writer.drain()
            writer.write(body)
        writer.close()

    async def _head(self, reader: asyncio.StreamReader) -> list[str]:
        try:
            return (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[:-1]
        except (asyncio.IncompleteReadError, ConnectionError):
            return []


def _accept(target: str, _: int) -> tuple[int, dict[str, str], object]:
    assert target in ("/ledger/batches", "/ledger/batches?wait=300")
    return (201 if "wait" in target else 202), {}, {"link": ""}


def test_everything_is_sent_once_and_the_last_posts_are_followed() -> None:
    followed = []

    def answer(target: str, post: int) -> tuple[int, dict[str, str], object]:
        if "wait" in target:
            followed.append(post)
        return _accept(target, post)

    server = _Server(answer)
    sent, committed = server.send()
    assert sorted(server.received) == list(range(40))
    assert sorted(followed) == [*range(0, 38, 2), 38, 39]
    assert (committed, len(sent.latencies_s), sent.refusals) == (40, len(followed), 0)
    assert all(0 < latency <= sent.seconds for latency in sent.latencies_s)


def test_no_more_is_sent_ahead_of_what_is_committed_than_allowed() -> None:
    server = _Server(_accept)
    server.send(ahead=1)
    assert server.received == list(range(40))


def test_a_refused_post_is_sent_again_when_the_answer_said() -> None:
    refused = {0: 2, 5: 1, 39: 1}

    def answer(target: str, post: int) -> tuple[int, dict[str, str], object]:
        if refused.get(post):
            refused[post] -= 1
            return 429, {"Retry-After": "0"}, {}
        return _accept(target, post)

    server = _Server(answer)
    sent, _ = server.send()
    assert sent.refusals == 4
    assert sorted(server.received) == sorted([*range(40), 0, 0, 5, 39])


@pytest.mark.parametrize(
    ("status", "content", "reason"),
    [
        (400, {"error": {"title": "Submitted Batches Invalid", "message": "bad key"}}, "400 Submitted .*: bad key"),
        (200, {"data": {"aa": "COMMITTED", "bb": "INVALID"}, "details": {"bb": {"reason": "x"}}}, "bb is INVALID: .*x"),
        (200, {"data": {"aa": "PENDING"}}, "did not commit within 300 s, aa is PENDING"),
        (502, "a page", "502, not as Dovetail's REST API does"),
        (0, None, "closed a connection"),
    ],
)
def test_any_other_answer_ends_the_run_with_its_reason(status: int, content: object, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        _Server(lambda target, post: (status, {}, content) if post == 4 else _accept(target, post)).send()


def test_nobody_listens() -> None:
    with pytest.raises(Refused, match=r"nothing answers at http://127\.0\.0\.1:1: "):
        asyncio.run(send("http://127.0.0.1:1", _POSTS, in_flight=1, ahead=1, on_committed=lambda _: None))


def test_percentiles_are_by_nearest_rank() -> None:
    assert figures.latency([number / 1000 for number in range(100, 0, -1)]) == figures.Latency(100, 50.0, 95.0, 99.0)
    assert figures.latency([0.25]) == figures.Latency(1, 250.0, 250.0, 250.0)


def test_block_sizes() -> None:
    assert figures.blocks([5, 1, 3, 9]) == figures.Blocks(4, 1, 4.0, 9)


def _run(core_share: float, others_cpu_s: float | None) -> figures.Run:
    return figures.Run(
        transactions=10,
        seconds=2.0,
        transactions_per_s=5.0,
        ceiling=Ceiling(10.0, 20.0, 10.0, core_share),
        ratio=0.5,
        latency=figures.latency([0.1]),
        blocks=figures.blocks([10]),
        refusals=0,
        disk_bytes=None,
        processes=(),
        others_cpu_s=others_cpu_s,
        queued_batches_max=0,
        baseline=None,
        p50_by_baseline=None,
    )


@pytest.mark.parametrize(
    ("core_share", "others_cpu_s", "disturbed"),
    [(1.0, 0.4, False), (1.0, None, False), (0.9, 0.0, True), (1.0, 0.6, True)],
)
def test_a_run_beside_something_else_is_told(core_share: float, others_cpu_s: float | None, disturbed: bool) -> None:
    run = _run(core_share, others_cpu_s)
    assert bool(run.disturbance(cores=2)) is disturbed
    idle = replace(run, baseline=Baseline(0.2, 0.1, 0.4), p50_by_baseline=2.0)
    assert bool(idle.disturbance(cores=2)) is (disturbed and core_share == 1.0)


def test_all_that_disturbed_a_run_is_told() -> None:
    run = _run(core_share=0.9, others_cpu_s=0.6)
    first, second = run.disturbance(cores=2).split("; ")
    assert first == "other processes took 15% of the machine"
    assert second == "while the ceiling was measured, others left each worker 90% of a core"


@pytest.mark.parametrize(
    "arguments",
    [("--keys", "0"), ("--keys", "some"), ("--url", "http://127.0.0.1:1", "--processors", "2"), ("--shape", "0")],
)
def test_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("bench", *arguments).code == 2


def test_a_post_that_no_node_takes_is_refused_before_anything_starts(run: Run) -> None:
    outcome = run("bench", "--transactions", "12000", "--shape", "5000", "--per-post", "3")
    assert outcome.code == 1
    assert "lower --per-post" in outcome.err


@pytest.mark.e2e
def test_a_tiny_run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    sizes = ("--transactions", "45", "--shape", "2", "--per-post", "5", "--keys", "4", "--processors", "2")
    outcome = run("bench", *sizes, "--repeat", "2", "--ceiling", "0.01", "--dir", str(tmp_path), "--json")
    assert (outcome.code, outcome.err) == (0, "")
    report = json.loads(outcome.out)
    assert len(report["runs"]) == 2
    for made in report["runs"]:
        assert made["transactions"] == 45
        assert made["ratio"] == pytest.approx(made["transactions_per_s"] / made["ceiling"]["transactions_per_s"])
        assert made["latency"]["samples"] == 5
        assert 1 <= made["blocks"]["count"] <= 5
        names = {process["name"] for process in made["processes"]}
        assert {"load generator", "validator", "rest-api", "processor intkey 1", "processor intkey 2"} <= names
        assert {"processor intkey worker 1", "processor intkey worker 2"} <= names
        assert (made["baseline"], made["p50_by_baseline"]) == (None, None)
        assert made["others_cpu_s"] >= 0
        assert any(name.startswith("verifier") for name in names)
    rates = report["transactions_per_s"]
    assert rates["lowest"] <= rates["median"] <= rates["highest"]
    assert not list(tmp_path.glob("dovetail-bench-*"))


@pytest.mark.e2e
def test_it_reads_as_tables(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    profile = tmp_path / "validator.prof"
    sizes = ("--transactions", "4", "--per-post", "1", "--keys", "hot", "--pending", "1")
    outcome = run("bench", *sizes, "--ceiling", "0.01", "--profile-validator", str(profile))
    assert (outcome.code, outcome.err) == (0, "")
    assert "processor intkey" in outcome.out
    assert "idle: p50 " in outcome.out
    assert "of the ceiling" not in outcome.out
    assert profile.stat().st_size
