"""What a benchmark can be made of: hot names, families, leaves, parked batches, the 1.x conversation, a plot."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dovetail.bench import families, preload
from dovetail.bench.connection import Target
from dovetail.bench.families import FAMILIES_MAX, family_name, family_of, intkey_processors, names_of
from dovetail.bench.load import figures, plot
from dovetail.bench.load import run as bench_run
from dovetail.bench.load.idle_baseline import Baseline
from dovetail.bench.load.queue_watch import QueueWatch
from dovetail.bench.preload import PreloadHandler
from dovetail.bench.signed_load import Ceiling, Load, sign_post
from dovetail.common.errors import Refused
from dovetail.common.keys import create_key
from dovetail.common.workers import Workers
from dovetail.ledger.batch import VerifiedBatch, decode_batch_list, verify_batch
from dovetail.ledger.block import is_sealed
from dovetail.ledger.limits import Limits
from dovetail.ledger.transaction import decode_transaction
from dovetail.validator.core.state import merkle
from dovetail.validator.core.state.nodes import EMPTY
from dovetail.validator.store import Store
from families.intkey.client import LEAF, NAMESPACE, intkey_address
from families.intkey.payload import ENCODINGS
from processor_sdk.testing import Ledger
from protos.transaction_receipt_pb2 import TransactionReceipt
from tests.dovetail.conftest import Run

pytestmark = pytest.mark.timeout(120)

_ROOT = Path(__file__).parents[3]
_LOAD = Load(seed=7, mark="ab12cd34", verb="inc", names=30, transactions=600, shape=2, per_post=300, families=3)


def _batches(load: Load) -> list[VerifiedBatch]:
    return [
        verify_batch(raw) for number in range(load.posts) for raw in decode_batch_list(sign_post(load, number).body)
    ]


def _drawn(load: Load) -> Counter[tuple[str, str]]:
    """How often each (family, name) is in a load."""
    return Counter(
        (item.family.name, ENCODINGS["application/cbor"].decode(decode_transaction(item.raw).payload).name)
        for batch in _batches(load)
        for item in batch.transactions
    )


@pytest.mark.parametrize(("names", "of"), [(1, 1), (3, 3), (5, 4), (100, 7), (10, 3)])
def test_names_are_shared_out_among_families(names: int, of: int) -> None:
    shares = [names_of(family, names, of) for family in range(of)]
    assert [name for share in shares for name in share] == list(range(names))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1 <= min(map(len, shares))
    assert all(family_of(name, names, of) == family for family, share in enumerate(shares) for name in share)


def test_families_take_turns_and_share_no_name() -> None:
    assert [{item.family.name for item in batch.transactions} for batch in _batches(_LOAD)][:4] == [
        {"intkey"}, {"intkey_2"}, {"intkey_3"}, {"intkey"},
    ]  # fmt: skip
    drawn = _drawn(_LOAD)
    assert Counter(family for family, _ in drawn) == {"intkey": 10, "intkey_2": 10, "intkey_3": 10}
    assert len({name for _, name in drawn}) == 30


def test_what_is_set_is_what_is_drawn() -> None:
    assert _drawn(replace(_LOAD, verb="set", transactions=30)).keys() == _drawn(_LOAD).keys()
    rest = _drawn(replace(_LOAD, verb="set", first_name=25, transactions=5))
    assert rest.keys() == {("intkey_3", f"ab12cd34-{number:x}") for number in range(25, 30)}


@pytest.mark.parametrize(("percent", "least", "most"), [(100, 200, 200), (50, 80, 140), (0, 0, 60)])
def test_a_part_of_the_load_goes_to_one_name_of_its_family(percent: int, least: int, most: int) -> None:
    drawn = _drawn(replace(_LOAD, conflict_percent=percent))
    for family, name in (("intkey", "0"), ("intkey_2", "a"), ("intkey_3", "14")):
        assert least <= drawn[family, f"ab12cd34-{name}"] <= most


@pytest.mark.parametrize("legacy", [False, True])
def test_every_family_has_a_handler(legacy: bool) -> None:
    for number, (name, handler) in enumerate(intkey_processors(FAMILIES_MAX, 1, legacy=legacy)):
        assert name == f"{family_name(number)}-1"
        module, _, kind = handler.partition(":")
        assert (module, vars(families)[kind].family_name) == (families.__name__, family_name(number))


_OFFERED = """
import sys
from dovetail.node.handlers import make_handlers
from processor_sdk.worker.registration import Registration
from protos.processor_pb2 import TpRegisterRequest
for handler in make_handlers(sys.argv[1]):
    print(TpRegisterRequest.FromString(Registration(handler, 7, None).content).packed_version)
"""


@pytest.mark.parametrize(("legacy", "packed_version"), [(False, "2"), (True, "0")])
def test_a_legacy_processor_does_not_offer_packed_execution(legacy: bool, packed_version: str) -> None:
    handler = intkey_processors(2, 1, legacy=legacy)[1][1]
    # In an interpreter of its own: a legacy handler is made for good.
    done = subprocess.run(
        [sys.executable, "-c", _OFFERED, handler], cwd=_ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == [packed_version]


class _Inline(Workers):
    """Does the work at once, in this process."""

    def __init__(self) -> None:
        pass

    def submit(self, work: Callable[..., Any], *arguments: Any, **named: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(work(*arguments, **named))
        return done


def test_leaves_are_written_as_a_chain_that_can_be_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preload, "_BLOCK_LEAVES", 40)
    monkeypatch.setattr(preload, "_JOB_BLOCKS", 2)
    create_key(tmp_path / "node.priv")
    told: list[int] = []
    asyncio.run(preload.preload(_Inline(), tmp_path / "store", tmp_path / "node.priv", "m", 110, told.append))
    assert told == [80, 30]
    leaves: dict[str, bytes | None] = {
        intkey_address(name): LEAF.encode({name: 1}) for name in (f"m-{number:x}" for number in range(110))
    }
    told_leaves: dict[str, bytes | None] = {}
    judge = Ledger(PreloadHandler(), twice=False)
    store = Store(tmp_path / "store", Limits())
    try:
        assert store.head is not None
        assert (store.head.num, store.head.transaction_end, store.head.root.leaves) == (2, 3, 110)
        # The root hangs on the leaves alone: one pass over them all must come to the same.
        assert store.head.root.hash == merkle.update(store.node, EMPTY, leaves, 1).root.hash
        for num in range(3):
            block = store.block(num)
            assert block is not None
            assert is_sealed(block.id, block.header_bytes)
            (raw,) = store.batches(block)
            (item,) = verify_batch(raw).transactions
            assert store.transaction_number(item.id) == num
            receipt = TransactionReceipt.FromString(store.transaction(num).receipt)
            told_leaves |= {change.address: change.value for change in receipt.state_changes}
            assert receipt.transaction_id == item.id
            assert judge.apply(judge.transaction(decode_transaction(item.raw).payload, outputs=[NAMESPACE]))
    finally:
        store.close()
    assert told_leaves == dict(judge.state) == leaves


def test_the_fullest_queue_is_kept() -> None:
    async def told(*contents: bytes) -> int:
        watch = QueueWatch(Target.of("http://x"))
        for content in contents:
            watch.answered(0, b"HTTP/1.1 200 OK\r\n\r\n" + content)
        return watch.batches_max

    answers = (b'{"data": {"pending_batches": %d}}' % number for number in (3, 9, 4))
    assert asyncio.run(told(*answers, b'{"error": {}}', b"[]", b"a page")) == 9


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--conflict", "5", "--keys", "hot"), "raise --keys"),
        (("--conflict", "101"), "--conflict"),
        (("--families", "3", "--keys", "2"), "3 (--families)"),
        (("--families", "16", "--processors", "5"), "80 processors"),
        (("--families", "17"), "--families"),
        (("--url", "http://127.0.0.1:1", "--leaves", "9"), "starts itself"),
        (("--url", "http://127.0.0.1:1", "--legacy"), "starts itself"),
        (("--url", "http://127.0.0.1:1", "--families", "2"), "starts itself"),
        (("--url", "http://127.0.0.1:1", "--parked", "2"), "starts itself"),
        (("--plot", "curve.gif"), "must end in .png"),
        (("--plot", "curve.png", "--pending", "0"), "raise it"),
        (("--plot", "curve.png", "--pending", "100"), "raise it"),
        (("--http", "--plot", "curve.png"), "--plot is not for --http"),
        (("--http", "--leaves", "5"), "--leaves is not for --http"),
        (("--http", "--budget"), "ask for one"),
        (("--budget", "--per-post", "5"), "--per-post is not for --budget"),
        (("--budget", "--url", "http://127.0.0.1:1"), "--url is not for --budget"),
        (("--block", "5"), "--block is for --budget"),
        (("--requests", "5"), "--requests is for --http"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, arguments: tuple[str, ...], said: str) -> None:
    outcome = run("bench", *arguments)
    assert outcome.code == 2
    assert said in " ".join(outcome.err.replace("│", " ").split())


def test_a_plot_without_matplotlib_is_refused_before_anything_starts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    outcome = run("bench", "--plot", "curve.png")
    assert outcome.code == 1
    assert outcome.err.strip().endswith("pip install 'dovetail-ledger[plot]'")


@pytest.mark.parametrize("name", ["transactions", "batches"])
def test_more_than_the_queue_holds_is_not_parked(run: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"DOVETAIL_LIMITS_PENDING_{name.upper()}_MAX", "12")
    outcome = run("bench", "--transactions", "4", "--pending", "3", "--per-post", "1", "--parked", "10")
    assert outcome.code == 1
    said = f"13 {name}, the node's queue holds 12 {name}: set DOVETAIL_LIMITS_PENDING_{name.upper()}_MAX=13\n"
    assert outcome.err.endswith(said)


def test_a_setting_that_is_none_is_refused_before_anything_starts(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOVETAIL_LIMITS_BLOCK_TRANSACTIONS_MAX", "abc")
    outcome = run("bench", "--transactions", "4", "--dir", str(tmp_path))
    assert (outcome.code, outcome.out) == (1, "")
    assert "DOVETAIL_LIMITS_BLOCK_TRANSACTIONS_MAX" in outcome.err
    assert "whole number" in outcome.err
    assert list(tmp_path.iterdir()) == []


def _report() -> figures.Report:
    runs = [
        figures.Run(
            transactions=10,
            seconds=2.0,
            transactions_per_s=rate,
            ceiling=Ceiling(10.0, 20.0, 10.0, 1.0),
            ratio=0.5,
            latency=figures.latency([0.1]),
            blocks=figures.blocks([10]),
            refusals=0,
            queued_batches_max=0,
            disk_bytes=None,
            processes=(),
            others_cpu_s=None,
            baseline=Baseline(0.2, 0.1, 0.4),
            p50_by_baseline=2.0,
        )
        for rate in (4.0, 5.0, 6.0)
    ]
    curve = [figures.point(pending, runs) for pending in (100, 400)]
    return figures.report(figures.Machine(2, "3", "x", None), {}, runs, curve)


def test_a_point_is_the_spread_of_its_runs() -> None:
    first, last = _report().curve
    assert (first.pending, last.pending) == (100, 400)
    assert last.transactions_per_s == figures.Spread(5.0, 4.0, 6.0)


def test_a_picture_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot.draw(_report(), tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_budget_names_every_step(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    load = ("--transactions", "50", "--shape", "7", "--keys", "9", "--block", "20", "--dir", str(tmp_path))
    outcome = run("bench", "--budget", *load, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    made = json.loads(outcome.out)
    # Two batches of seven a block; the last batch is alone.
    assert made["blocks"] == 4
    assert len(made["steps"]) == 12
    assert all(step["cpu_us"] > 0 and step["waited_us"] >= 0 for step in made["steps"])
    assert not list(tmp_path.iterdir())


@pytest.mark.e2e
def test_a_tiny_run_of_everything(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    load = ("--transactions", "12", "--per-post", "1", "--pending", "1", "--keys", "8", "--conflict", "50")
    scene = ("--families", "2", "--leaves", "5", "--parked", "3", "--legacy")
    outcome = run("bench", *load, *scene, "--ceiling", "0.01", "--dir", str(tmp_path), "--json")
    assert (outcome.code, outcome.err) == (0, "")
    report = json.loads(outcome.out)
    (made,) = report["runs"]
    assert made["transactions"] == 12
    assert 3 <= made["queued_batches_max"] <= 4
    names = {process["name"] for process in made["processes"]}
    assert {"processor intkey worker", "processor intkey_2 worker"} <= names
    base = made["baseline"]
    assert base["sum_ms"] == pytest.approx(base["commit_ms"] + 2 * base["round_trip_ms"])
    assert made["p50_by_baseline"] == pytest.approx(made["latency"]["p50_ms"] / base["sum_ms"])
    assert report["p50_by_baseline"] == dict.fromkeys(("median", "lowest", "highest"), made["p50_by_baseline"])
    assert not list(tmp_path.glob("dovetail-bench-*"))


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "localhost:8080", "ftp://x", "http:///x", ""])
def test_what_is_no_address_of_a_rest_api_is_said(url: str) -> None:
    with pytest.raises(Refused, match="must begin with http"):
        Target.of(url)


@pytest.mark.e2e
def test_a_plot_has_a_point_for_each_load(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn: list[tuple[figures.Report, Path]] = []
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    monkeypatch.setattr(plot, "load_matplotlib", lambda: None)
    monkeypatch.setattr(bench_run, "draw", lambda report, file: drawn.append((report, file)))
    sizes = ("--transactions", "30", "--per-post", "2", "--pending", "6", "--keys", "3", "--ceiling", "0.01")
    outcome = run("bench", *sizes, "--plot", str(tmp_path / "curve.svg"))
    assert (outcome.code, outcome.err) == (0, "")
    assert "PENDING" in outcome.out
    ((report, file),) = drawn
    assert [point.pending for point in report.curve] == [2, 6]
    assert report.curve[-1].transactions_per_s == report.transactions_per_s
    assert file == tmp_path / "curve.svg"
