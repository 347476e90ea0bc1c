"""``dovetail upgrade rehearse``: output, exit codes, resuming and refusals."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.commands.upgrade.rehearse import WORKERS_MAX
from dovetail.ledger.building import build_transaction
from dovetail.ledger.permitted import PERMITTED_AT, Permission, encode_permitted_families
from dovetail.ledger.settings import SETTINGS, TRANSACTION_FAMILIES, FamilyVersion, encode_setting
from dovetail.validator.store.opening import READERS_MAX
from families.intkey.addresses import intkey_address
from families.intkey.handler import IntkeyHandler
from families.intkey.payload import LEAF
from tests.dovetail.conftest import Run
from tests.dovetail.rehearsal import rehearsed
from tests.dovetail.rehearsal.rehearsal_chain import SIGNER, Chain, Step, long_chain

HERE = "tests.dovetail.rehearsal.rehearsed"
SAME = "families.intkey.handler:IntkeyHandler"
ROOT = Path(__file__).parents[5]
TRANSACTIONS, A_BLOCK, NAMES = 5_000, 250, 50


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 20 blocks of intkey transactions: 50 sets, then inc and dec of all 50 in turn."""
    folder = tmp_path_factory.mktemp("chain")
    long_chain(folder / "store", TRANSACTIONS, A_BLOCK, NAMES)
    return folder


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 4 blocks, each large enough to be executed by itself: 1,999 new names and one dec."""
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
    assert outcome == (0, f"5,000 transactions of intkey 1.0 in blocks 0 to 19, executed by {SAME}: 0 differ\n", "")


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
    assert outcome.code == 2
    assert (
        "no transaction of intkey 0.9 is in these blocks, they have transactions of intkey 1.0 (5,000)" in outcome.err
    )
    command = ("upgrade", "rehearse", f"{HERE}:OtherFamily", "--family", "other", "--from", "1.0", "--json")
    outcome = run(*command, "--data-dir", str(data), "--blocks", "0")
    found = json.loads(outcome.out)
    assert (outcome.code, found["transactions"]) == (2, 0)
    assert found["notes"] == [
        "no transaction of other 1.0 is in these blocks, nor of another version of the family: check --family, --from"
        " and --blocks"
    ]


def test_after_a_handler_that_ended_its_process_it_goes_on(
    run: Run, pieces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result equals that of one run, and the progress file is removed."""
    handler = f"{HERE}:EndsItsProcess"
    kept = tmp_path / "kept.json"
    monkeypatch.setenv(rehearsed.NAMED, f"2-600:{tmp_path / 'ended'}")
    outcome = run(*arguments(handler, pieces, "--progress-file", str(kept)))
    assert outcome.code == 1
    assert "ended its process in block 2, in one of the chain's transactions 4500 to 4749:" in outcome.err
    assert "4,500 of 8,000 transactions are done; the same command with --resume goes on" in outcome.err
    assert json.loads(kept.read_bytes())["findings"]["transactions"] == 4_500
    code, found = document(run, handler, pieces, "--progress-file", str(kept), "--resume")
    assert (code, found["transactions"], found["blocks"]) == (0, 8_000, [0, 3])
    assert not kept.exists()
    outcome = run(*arguments(handler, pieces, "--progress-file", str(kept), "--resume"))
    assert (outcome.code, "there is no progress in" in outcome.err) == (1, True)


def test_ctrl_c_keeps_what_is_done(run: Run, pieces: Path, tmp_path: Path, home: Path) -> None:
    """Ctrl-C comes while a handler waits in block 2. The resumed rehearsal has the same findings as one run."""
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
        # A terminal sends Ctrl-C to every process.
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out) == (130, "")
    done = re.search(r"([\d,]+) of 8,000 transactions are done; the same command with --resume goes on", err)
    assert done is not None
    assert 0 < int(done[1].replace(",", "")) <= 5_000
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
    progress["question"]["sources_sha256"] = "of before"
    kept.write_text(json.dumps(progress))
    assert "the handler, or a module that it imports, was changed meanwhile" in run(*ends, "--resume").err
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
    assert "in 1 slice; refused in 1 of 1: nothing would be migrated" in outcome.out
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


NEXT = FamilyVersion("intkey", "2.0")


def planned(folder: Path, *permitted: Permission) -> Chain:
    """A chain with the setting of permitted families, and with eight names that have the value 5."""
    chain = Chain(folder / "store", IntkeyHandler(), rehearsed.SaysWhatIsPermitted(), rehearsed.Doubles())
    value = encode_setting({TRANSACTION_FAMILIES: encode_permitted_families(permitted)})
    said = build_transaction(
        SIGNER,
        batcher_pubkey=SIGNER.public_key,
        family_name=SETTINGS.name,
        family_version=SETTINGS.version,
        inputs=(),
        outputs=(PERMITTED_AT,),
        payload=value,
        payload_encoding="",
        nonce="0",
    )
    chain.block([[said]])
    steps: list[list[Step]] = [[("set", name, 5)] for name in "abcdefgh"]
    chain.steps(*steps)
    return chain


def test_the_settings_own_prefixes_are_migrated(run: Run, tmp_path: Path) -> None:
    """The prefixes are those of the version's entry that migrates, not the handler's namespaces."""
    under = sorted(intkey_address(name)[:8] for name in "abcdefgh")[:2]
    plan = Permission(NEXT, 9, None, tuple(under))
    planned(tmp_path, Permission(FamilyVersion("intkey", "1.0")), Permission(NEXT, 4, 5), plan).close()
    code, found = document(run, f"{HERE}:Doubles", tmp_path, "--migrate")
    assert (code, [one["prefixes"] for one in found["slices"]]) == (0, [under])
    assert (found["leaves"], found["changed"]) == (2, 2)
    assert "as the chain's setting says" in found["migration"]
    # Before the setting existed, there was no plan.
    code, found = document(run, f"{HERE}:Doubles", data_of_none(tmp_path), "--migrate")
    assert (code, [one["prefixes"] for one in found["slices"]]) == (0, [["1cf126"]])
    assert "no migration is planned on chain" in found["migration"]


def test_of_several_plans_the_next_is_shown(run: Run, tmp_path: Path) -> None:
    """The command skips a plan whose span is over.

    It shows the plan that begins first, not the first of the setting.
    """
    first, second = sorted(intkey_address(name)[:8] for name in "abcdefgh")[:2]
    ended = Permission(NEXT, 0, 1, ("1cf126",))
    planned(tmp_path, ended, Permission(NEXT, 50, None, (second,)), Permission(NEXT, 9, 20, (first,))).close()
    code, found = document(run, f"{HERE}:Doubles", tmp_path, "--migrate")
    assert (code, [one["prefixes"] for one in found["slices"]]) == (0, [[first]])
    # At an earlier head, an entry that has ended since was still planned.
    code, found = document(run, f"{HERE}:Doubles", tmp_path, "--migrate", "--blocks", "0")
    assert (code, [one["prefixes"] for one in found["slices"]]) == (0, [["1cf126"]])


def data_of_none(folder: Path) -> Path:
    chain = Chain(folder / "none" / "store")
    chain.steps([("set", "a", 5)])
    chain.close()
    return folder / "none"


def test_a_migration_that_is_done_is_not_run_over_its_own_result(run: Run, tmp_path: Path) -> None:
    plan = Permission(NEXT, 2, None, ("1cf126",))
    chain = planned(tmp_path, plan)
    assert chain.migrated(plan).num == 2
    chain.steps([("inc", "a", 1)])
    chain.close()
    outcome = run(*arguments(f"{HERE}:Doubles", tmp_path, "--migrate"))
    assert (outcome.code, outcome.out) == (1, "")
    assert "the migration to intkey 2.0 is in block 2 already: --blocks ..1 shows what it found" in outcome.err
    assert run(*arguments(f"{HERE}:Doubles", tmp_path, "--migrate", "--blocks", "2")) == outcome
    code, found = document(run, f"{HERE}:Doubles", tmp_path, "--migrate", "--blocks", "..1")
    assert (code, found["changed"]) == (0, 8)


def test_a_migration_of_large_values_is_sliced(run: Run, tmp_path: Path) -> None:
    chain = Chain(tmp_path / "store", rehearsed.OtherFamily())
    for number in range(2):
        address = intkey_address(f"{number}")
        large = LEAF.encode({f"{'n' * 600_000}": 5})
        chain.block(
            [[build_transaction(
                SIGNER, batcher_pubkey=SIGNER.public_key, family_name="other", family_version="1.0", inputs=(),
                outputs=(address,), payload=large, payload_encoding="", nonce="",
            )]]
        )  # fmt: skip
    chain.close()
    code, found = document(run, f"{HERE}:Doubles", tmp_path, "--migrate", "--blocks", "0")
    assert (code, len(found["slices"]), found["changed"]) == (0, 1, 1)
    code, found = document(run, f"{HERE}:Doubles", tmp_path, "--migrate")
    assert (code, len(found["slices"]), found["changed"]) == (0, 256, 2)


def test_what_the_configuration_says_of_folder_and_sizes_holds(run: Run, tmp_path: Path) -> None:
    """A slice whose receipt is too large for the node is refused with advice."""
    planned(tmp_path / "ledger").close()
    config = tmp_path / "node.toml"
    config.write_text(f'[validator]\ndata_dir = "{tmp_path / "ledger"}"\n[limits]\nreceipt_bytes_max = 300\n')
    where = ["--family", "intkey", "--config", str(config)]
    outcome = run("upgrade", "rehearse", SAME, *where, "--from", "1.0")
    assert (outcome.code, "8 transactions of intkey 1.0" in outcome.out) == (0, True)
    outcome = run("upgrade", "rehearse", f"{HERE}:Doubles", *where, "--migrate")
    assert outcome.code == 1
    assert "bytes, at most 300 are kept; have migrate write smaller values, or name finer prefixes" in outcome.out


def test_slices_that_are_refused_for_one_reason_are_told_together(run: Run, tmp_path: Path) -> None:
    chain = Chain(tmp_path / "store")
    steps: list[list[Step]] = [[("set", f"n{number}", 13)] for number in range(2_001)]
    chain.steps(*steps)
    chain.close()
    outcome = run(*arguments(f"{HERE}:Doubles", tmp_path, "--migrate"))
    assert outcome.code == 1
    told = [line for line in outcome.out.splitlines() if line.startswith(("refused", "  and"))]
    assert len(told) == 2
    assert told[0].startswith("refused (invalid) under 1cf12600: cannot double {'n")
    refused = len({intkey_address(f"n{number}")[:8] for number in range(2_001)})
    assert told[1] == f"  and {refused - 1} slices more for the same reason"
    assert f"refused in {refused} of 256: nothing would be migrated" in outcome.out


def test_before_a_migration_differences_mean_little_and_that_is_said(run: Run, tmp_path: Path) -> None:
    planned(tmp_path).close()
    outcome = run(*arguments(f"{HERE}:Doubles", tmp_path))
    assert "intkey 2.0 declares migrate, but the state here is the one before its migration" in outcome.err
    code, found = document(run, f"{HERE}:Doubles", tmp_path)
    assert (code, [note.partition(",")[0] for note in found["notes"]]) == (0, ["intkey 2.0 declares migrate"])
    assert document(run, SAME, tmp_path)[1]["notes"] == []
    # In history, the new version's own transactions read the migrated state.
    command = ["upgrade", "rehearse", f"{HERE}:Doubles", "--family", "intkey", "--from", "2.0"]
    assert "declares migrate" not in run(*command, "--data-dir", str(tmp_path)).err


def test_a_module_that_the_handler_imports_was_changed(
    run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "its_rules.py").write_text("MOST = 1\n")
    (tmp_path / "its_handler.py").write_text(
        f"import its_rules\nfrom {HERE} import EndsItsProcess\n\n\nclass Handler(EndsItsProcess):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for number in (1, 2):
        monkeypatch.setenv(rehearsed.NAMED, f"n1:{tmp_path / f'ended{number}'}")
        assert run(*arguments("its_handler:Handler", data)).code == 1
        if number == 1:
            (tmp_path / "its_rules.py").write_text("MOST = 22\n")
            outcome = run(*arguments("its_handler:Handler", data, "--resume"))
            assert outcome.code == 1
            assert "the handler, or a module that it imports, was changed meanwhile; begin with" in outcome.err
    assert run(*arguments("its_handler:Handler", data, "--resume")).code == 0


def test_workers_leave_the_store_to_others_too() -> None:
    assert WORKERS_MAX * 4 <= READERS_MAX


def write_on(folder: Path, pipe: "Connection[None, bool]") -> None:
    """Write block after block, as a validator would, until told to end."""
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
