"""``dovetail upgrade rehearse``: what it prints and ends with, going on after an interruption, and what is refused."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from families.intkey.handler import IntkeyHandler
from tests.dovetail import rehearsed
from tests.dovetail.conftest import Run
from tests.dovetail.rehearsal_chain import Chain, Step, long_chain

HERE = "tests.dovetail.rehearsed"
SAME = "families.intkey.handler:IntkeyHandler"
ROOT = Path(__file__).parents[2]
TRANSACTIONS, A_BLOCK, NAMES = 5_000, 250, 50


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 20 blocks of intkey transactions: 50 sets, then inc and dec of all 50 in turn."""
    folder = tmp_path_factory.mktemp("chain")
    long_chain(folder / "store", TRANSACTIONS, A_BLOCK, NAMES)
    return folder


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 4 blocks, each large enough to be judged by itself: 1,999 new names and one dec."""
    folder = tmp_path_factory.mktemp("pieces")
    chain = Chain(folder / "store")
    for block in range(4):
        names: list[Step] = [("set", f"{block}-{number}", 5) for number in range(1_999)]
        chain.steps(*([step] for step in names), [("dec", f"{block}-0", 1)])
    chain.close()
    return folder


def decs(first: int = 0, end: int = TRANSACTIONS) -> int:
    return sum(number >= NAMES and number // NAMES % 2 == 1 for number in range(first, end))


def arguments(handler: str, data: Path, *more: str) -> list[str]:
    where = ["--family", "intkey", "--data-dir", str(data)]
    return ["upgrade", "rehearse", handler, *where, *(() if "--migrate" in more else ("--from", "1.0")), *more]


def document(run: Run, handler: str, data: Path, *more: str) -> tuple[int, Any]:
    outcome = run(*arguments(handler, data, "--json", *more))
    return outcome.code, json.loads(outcome.out)


def test_nothing_differs(run: Run, data: Path) -> None:
    outcome = run(*arguments(SAME, data))
    assert outcome == (0, f"5,000 transactions of intkey 1.0 in blocks 0 to 19, judged by {SAME}: 0 differ\n", "")


@pytest.mark.parametrize("workers", ["1", "3"])
def test_what_was_planted_differs(run: Run, data: Path, workers: str) -> None:
    code, found = document(run, f"{HERE}:DecByOneMore", data, "--workers", workers, "--differences-max", "10000")
    assert code == 1
    assert (found["transactions"], found["differing"]) == (TRANSACTIONS, decs())
    assert found["kinds"] == {"write_changed": decs()}
    assert len(found["differences"]) == decs()
    assert [one["block_num"] for one in found["differences"]] == sorted(
        one["block_num"] for one in found["differences"]
    )
    for one in found["differences"]:
        ((name, old),) = one["old"]["decoded"].items()
        assert one["new"]["decoded"] == {name: old - 1}


def test_people_get_a_table_and_what_is_left_out(run: Run, data: Path) -> None:
    outcome = run(*arguments(f"{HERE}:DecByOneMore", data, "--blocks", "0..3", "--differences-max", "2"))
    assert outcome.code == 1
    heading, first, second, blank, summary, kind = outcome.out.splitlines()
    assert heading.split()[:3] == ["BLOCK", "DIFFERENCE", "ADDRESS"]
    assert first.split()[:2] == second.split()[:2] == ["0", "write_changed"]
    assert "{'n0': " in first
    assert (blank, kind) == ("", f"  write_changed: {decs(0, 1000)}")
    assert summary.endswith(f"{decs(0, 1000)} differ")
    assert "--differences-max shows more" in outcome.err


@pytest.mark.parametrize(
    ("blocks", "first", "last"), [("3..4", 3, 4), ("18..", 18, 19), ("..1", 0, 1), ("7", 7, 7), ("0..0", 0, 0)]
)
def test_some_blocks(run: Run, data: Path, blocks: str, first: int, last: int) -> None:
    code, found = document(run, f"{HERE}:DecByOneMore", data, "--blocks", blocks, "--differences-max", "0")
    assert found["blocks"] == [first, last]
    assert found["transactions"] == (last - first + 1) * A_BLOCK
    assert found["differing"] == decs(first * A_BLOCK, (last + 1) * A_BLOCK)
    assert (code, found["differences"]) == (1 if found["differing"] else 0, [])


@pytest.mark.parametrize("blocks", ["a..b", "..", "5..3", "-1", "", "1...2", "²"])
def test_what_are_no_blocks_is_wrong_usage(run: Run, data: Path, blocks: str) -> None:
    assert run(*arguments(SAME, data, "--blocks", blocks)).code == 2


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        ("nowhere.at_all:Handler", "cannot import nowhere.at_all"),
        (f"{HERE}:Nobody", "has no handler class Nobody; it has DecAddsData, DecByOneMore"),
        ("families.settings.handler:SettingsHandler", "of the family sawtooth_settings, not of intkey; check --family"),
        (f"{HERE}:EndsItsProcess", ""),
    ],
)
def test_a_handler_that_cannot_be_had(run: Run, data: Path, handler: str, said: str) -> None:
    outcome = run(*arguments(handler, data))
    assert outcome.code == (1 if said else 0)
    assert said in outcome.err


def test_a_folder_without_a_ledger(run: Run, tmp_path: Path) -> None:
    outcome = run(*arguments(SAME, tmp_path / "nothing"))
    assert outcome.code == 1
    assert "there is no store at" in outcome.err
    assert run("upgrade", "rehearse", SAME, "--family", "intkey").code == 2


def test_a_block_that_is_not_there_yet(run: Run, data: Path) -> None:
    outcome = run(*arguments(SAME, data, "--blocks", "0..20"))
    assert (outcome.code, "the newest block is 19" in outcome.err) == (1, True)


def test_a_family_that_is_not_there(run: Run, data: Path) -> None:
    outcome = run("upgrade", "rehearse", SAME, "--family", "intkey", "--from", "0.9", "--data-dir", str(data))
    assert outcome.code == 0
    assert "no transaction of intkey 0.9" in outcome.err


def test_after_a_handler_that_ended_its_process_it_goes_on(
    run: Run, pieces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes out is what one run gives; the file of its progress is gone then."""
    handler = f"{HERE}:EndsItsProcess"
    kept = tmp_path / "kept.json"
    monkeypatch.setenv(rehearsed.NAMED, f"2-5:{tmp_path / 'ended'}")
    outcome = run(*arguments(handler, pieces, "--progress-file", str(kept)))
    assert outcome.code == 1
    assert "the handler ended its process in blocks 2 to 2" in outcome.err
    assert "2 of 4 blocks are done; the same command with --resume goes on" in outcome.err
    assert json.loads(kept.read_bytes())["findings"]["transactions"] == 4_000
    code, found = document(run, handler, pieces, "--progress-file", str(kept), "--resume")
    assert (code, found["transactions"], found["blocks"]) == (0, 8_000, [0, 3])
    assert not kept.exists()
    outcome = run(*arguments(handler, pieces, "--progress-file", str(kept), "--resume"))
    assert (outcome.code, "there is no progress in" in outcome.err) == (1, True)


def test_ctrl_c_keeps_what_is_done(run: Run, pieces: Path, tmp_path: Path, home: Path) -> None:
    """At a handler that waits in block 2; what goes on from there finds what one run finds."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = arguments(f"{HERE}:WaitsForCtrlC", pieces, "--json")
    environment = {**os.environ, rehearsed.NAMED: f"2-1000:{pipe}"}
    complete = run(*command)
    process = subprocess.Popen(
        [sys.executable, "-m", "dovetail", *command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with pipe.open() as opened:
        assert opened.readline() == "here\n"
        # As a terminal sends it: to every process.
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out) == (130, "")
    assert "2 of 4 blocks are done; the same command with --resume goes on" in err
    assert list((home / "rehearsals").iterdir())
    resumed = run(*command, "--resume")
    assert resumed == complete
    assert not list((home / "rehearsals").iterdir())
    assert (complete.code, json.loads(complete.out)["kinds"]) == (1, {"write_changed": 4})


def test_progress_with_another_question_is_not_gone_on_with(
    run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept.json"
    monkeypatch.setenv(rehearsed.NAMED, f"n1:{tmp_path / 'ended'}")
    ends = arguments(f"{HERE}:EndsItsProcess", data, "--progress-file", str(kept))
    assert run(*ends).code == 1
    outcome = run(*arguments(SAME, data, "--progress-file", str(kept), "--resume"))
    assert f"handler was '{HERE}:EndsItsProcess'; begin with --fresh" in outcome.err
    progress = json.loads(kept.read_bytes())
    progress["question"]["source_sha256"] = "of before"
    kept.write_text(json.dumps(progress))
    assert "the handler's module was changed meanwhile" in run(*ends, "--resume").err
    kept.write_text("{}")
    assert "holds no progress of a rehearsal" in run(*ends, "--resume").err
    assert run(*ends, "--fresh").code == 0


def test_a_migration_shows_what_it_would_write(run: Run, tmp_path: Path) -> None:
    chain = Chain(tmp_path / "store", IntkeyHandler())
    chain.steps([("set", "a", 5)], [("set", "b", 1)], [("set", "c", 7)])
    chain.steps([("set", "d", 13)])
    chain.close()
    handler = f"{HERE}:Doubles"
    code, found = document(run, handler, tmp_path, "--migrate", "--blocks", "..0")
    assert code == 0
    totals = {name: found[name] for name in ("leaves", "added", "changed", "unchanged", "removed", "refused")}
    assert totals == {"leaves": 3, "added": 0, "changed": 1, "unchanged": 1, "removed": 1, "refused": 0}
    shown = {json.dumps(one["old"]["decoded"]): one["new"] and one["new"]["decoded"] for one in found["changes"]}
    assert shown == {'{"a": 5}': {"a": 10}, '{"c": 7}': None}
    assert len(found["slices"]) == 1
    outcome = run(*arguments(handler, tmp_path, "--migrate"))
    assert outcome.code == 1
    assert "refused (invalid) under 1cf126: cannot double {'d': 13}" in outcome.out
    assert "1 of 1 slices are refused: nothing would be migrated" in outcome.out
    outcome = run(*arguments(SAME, tmp_path, "--migrate"))
    assert (outcome.code, "declares no migrate" in outcome.err) == (1, True)


def test_a_large_migration_is_sliced(run: Run, tmp_path: Path) -> None:
    chain = Chain(tmp_path / "store")
    steps: list[Step] = [("set", f"n{number}", 2 + number % 2 * 6) for number in range(2_500)]
    chain.steps(*([step] for step in steps))
    chain.close()
    code, found = document(run, f"{HERE}:Doubles", tmp_path, "--migrate", "--workers", "2", "--differences-max", "10")
    assert (code, len(found["slices"]), found["leaves"], found["changed"]) == (0, 256, 2_500, 2_500)
    assert [one["prefixes"] for one in found["slices"][:2]] == [["1cf12600"], ["1cf12601"]]
    assert sum(one["changed"] for one in found["slices"]) == 2_500
    assert len(found["changes"]) == 10


def write_on(folder: Path, pipe: "Connection[None, bool]") -> None:
    """What a validator does meanwhile: block after block, until told to end."""
    chain = Chain(folder)
    number = 0
    while not pipe.poll():
        names = [f"{number}-{place}" for place in range(100)]
        batches: list[list[Step]] = [[("set", name, 100), ("dec", name, 1)] for name in names]
        chain.steps(*batches)
        number += 1
        if number == 2:
            pipe.send(None)
    chain.close()


def test_a_validator_may_write_meanwhile(run: Run, tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=write_on, args=(tmp_path / "store", theirs))
    process.start()
    ours.recv()
    try:
        found = [document(run, f"{HERE}:DecByOneMore", tmp_path) for _ in range(2)]
    finally:
        ours.send(True)
        process.join()
        ours.close()
        theirs.close()
    assert process.exitcode == 0
    assert [code for code, _ in found] == [1, 1]
    first, second = (one for _, one in found)
    for one in (first, second):
        assert one["transactions"] == (one["blocks"][1] + 1) * 200
        assert one["kinds"] == {"write_changed": one["transactions"] // 2}
    assert second["blocks"][1] > first["blocks"][1] > 0
