"""Pruned stores: verification in whole and in part, and refusals of commands that need a pruned state."""

import json
import shutil
from pathlib import Path

import pytest

from dovetail.ledger.limits import Limits
from dovetail.rehearsal.history import BlockHistory
from dovetail.validator.store import StorageFailed, Store, StoreReader, records
from tests.dovetail.cli.commands.flipped import forked_child
from tests.dovetail.conftest import Run
from tests.dovetail.rehearsal.rehearsal_chain import long_chain
from tests.dovetail.validator.history.verified import entries, flip, put, raw_entries, verify

BLOCKS = 12
FIRST = 8
"""The first block whose state is not pruned."""


@pytest.fixture(autouse=True)
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork child processes: a new interpreter takes longer than the verification."""
    monkeypatch.setattr("dovetail.cli.commands.chain.run_in_child", forked_child)


@pytest.fixture(scope="module")
def pruned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pruned") / "store"
    long_chain(folder, BLOCKS * 8, 8, 20)
    store = Store(folder, Limits())
    assert not store.prune(BLOCKS - FIRST)
    store.close()
    return folder


@pytest.fixture
def copy(pruned: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pruned, tmp_path / "data" / "store"))


@pytest.mark.parametrize("span", [(0, None), (0, 5), (3, None), (FIRST, None), (FIRST + 1, None), (3, 5), (11, 11)])
def test_a_pruned_store_is_sound_in_whole_and_in_part(pruned: Path, span: tuple[int, int | None]) -> None:
    assert verify(pruned, *span).kept == []


def test_damage_of_what_is_left_is_found(copy: Path) -> None:
    """The damage is in a needed node, in a receipt whose state is pruned, or in the record of pruning."""
    (name, node), *_ = entries(copy, "nodes")
    put(copy, "nodes", name, flip(node, len(node) - 1))
    assert verify(copy).counts == {"node": 1}
    put(copy, "nodes", name, None)
    assert verify(copy).counts["node"] == 1
    put(copy, "nodes", name, node)
    name, record = entries(copy, "transactions")[20]
    put(copy, "transactions", name, record[: records._TRANSACTION.size])
    assert "state_root" in verify(copy).counts
    put(copy, "transactions", name, record)
    content = records.opened("meta", records.PRUNED_KEY, dict(raw_entries(copy, "meta"))[records.PRUNED_KEY])
    assert content is not None
    for at in (7, 23):
        put(copy, "meta", records.PRUNED_KEY, flip(content, at))
        assert len(verify(copy))


def test_the_command_says_what_is_pruned(copy: Path, run: Run) -> None:
    words = ("chain", "verify", "--data-dir", str(copy.parent), "--processes", "1")
    done = run(*words)
    assert (done.code, done.err) == (0, "")
    assert f"states before block {FIRST} are pruned: they were made again from the receipts of block 0 on" in done.out
    done = run(*words, "--from", "3")
    assert f"not checked were the states of blocks 3 to {FIRST - 1}" in done.out
    report = json.loads(run(*words, "--json").out)
    assert (report["sound"], report["states_from_block"]) == (True, FIRST)


def test_history_is_run_again_where_the_state_before_it_is(copy: Path, run: Run) -> None:
    words = ("chain", "verify", "--data-dir", str(copy.parent), "--processes", "1", "--reexecute", "--json")
    report = json.loads(run(*words).out)
    assert report["sound"]
    assert report["reexecuted_blocks"] == BLOCKS - FIRST  # Block 0, and the blocks after the first kept state.
    assert report["pruned_blocks_not_reexecuted"] == FIRST


def test_a_rehearsal_over_pruned_states_says_which_are_there(copy: Path, run: Run) -> None:
    reader = StoreReader.open(copy)
    BlockHistory(reader, FIRST + 1)
    with pytest.raises(StorageFailed, match=f"the state after block {FIRST - 1} is not there any more"):
        BlockHistory(reader, FIRST)
    reader.close()
    words = ("upgrade", "rehearse", "families.intkey.handler:IntkeyHandler", "--family", "intkey", "--from", "1.0")
    done = run(*words, "--data-dir", str(copy.parent))
    assert done.code == 1
    assert f"states are pruned, kept are those after block {FIRST} and later ones" in done.err
    done = run(*words, "--data-dir", str(copy.parent), "--blocks", f"{FIRST + 1}..")
    assert done.code == 0, done.err
