"""Key files, and the files of a first run."""

import os
import stat
from pathlib import Path

import pytest

from dovetail.common.errors import Refused
from dovetail.common.keys import create_key, default_name, key_path, load_signer
from dovetail.ledger.batch import verify_batch
from dovetail.ledger.settings import AUTHORIZED_KEYS
from dovetail.ledger.transaction import decode_transaction
from dovetail.node.genesis import prepare
from families.settings.client import propose_authorized_keys
from protos import genesis_pb2, settings_pb2
from tests.dovetail.conftest import Run


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_key_pair_is_private_and_its_own(tmp_path: Path) -> None:
    files = create_key(tmp_path / "a" / "b" / "alice.priv")
    assert (_mode(files.private), _mode(files.private.parent), _mode(tmp_path / "a")) == (0o600, 0o700, 0o700)
    assert files.public == tmp_path / "a" / "b" / "alice.pub"
    assert files.public.read_text() == f"{files.public_key}\n"
    assert load_signer(files.private).public_key == files.public_key
    assert sorted(entry.name for entry in files.private.parent.iterdir()) == ["alice.priv", "alice.pub"]


def test_a_key_is_not_overwritten_unless_told(tmp_path: Path) -> None:
    path = tmp_path / "alice.priv"
    first = create_key(path)
    with pytest.raises(Refused, match="exists and stays as it is"):
        create_key(path)
    assert load_signer(path).public_key == first.public_key
    assert load_signer(create_key(path, overwrite=True).private).public_key != first.public_key


@pytest.mark.parametrize("content", ["", "xyz", "0" * 64, "ab" * 31, "ab" * 33, "\u00e4" * 32])
def test_what_is_no_key_is_refused_without_showing_it(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.priv"
    path.write_text(content)
    with pytest.raises(Refused, match=r"bad\.priv holds no private key of 64 hex characters$"):
        load_signer(path)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_key_that_others_can_read_or_change_stays_unused(tmp_path: Path, mode: int) -> None:
    files = create_key(tmp_path / "open.priv")
    files.private.chmod(mode)
    with pytest.raises(Refused, match=rf"open\.priv stays unused: .*\(mode {mode:04o}\): chmod 600 it$"):
        load_signer(files.private)
    files.private.chmod(0o400)
    assert load_signer(files.private).public_key == files.public_key


def test_a_missing_key_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"make one: .* keygen .*carol\.priv$"):
        load_signer(tmp_path / "carol.priv")


def test_names_and_paths_of_keys(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"DOVETAIL_HOME": str(home)}
    assert key_path("alice", environ) == home / "keys" / "alice.priv"
    assert key_path("./alice", environ) == Path("alice")
    assert key_path("alice.priv", environ) == Path("alice.priv")
    assert key_path(None, environ) == home / "keys" / "tester.priv"
    with pytest.raises(Refused, match="is no key name"):
        key_path("-rf", environ)
    monkeypatch.setenv("LOGNAME", "CORP\\j\u00f8rgen/x")
    assert default_name() == "CORP_j_rgen_x"


def test_the_first_run_makes_keys_and_a_genesis_that_verifies(tmp_path: Path) -> None:
    data_dir, node_key, user_key = tmp_path / "data", tmp_path / "data" / "keys" / "v.priv", tmp_path / "me.priv"
    prepared = prepare(data_dir, node_key, user_key, make_user_key=True)
    assert prepared.keys == (node_key, user_key)
    assert prepared.genesis == data_dir / "genesis.batch"
    signer = load_signer(user_key)
    batches = genesis_pb2.GenesisData.FromString(prepared.genesis.read_bytes()).batches
    assert len(batches) == 1
    verified = verify_batch(batches[0].SerializeToString())
    assert len(verified.transactions) == 1
    transaction = decode_transaction(verified.transactions[0].raw)
    payload = settings_pb2.SettingsPayload.FromString(transaction.payload)
    proposal = settings_pb2.SettingProposal.FromString(payload.data)
    assert (proposal.setting, proposal.value) == (AUTHORIZED_KEYS, signer.public_key)
    rebuilt = propose_authorized_keys(signer, signer.public_key, [signer.public_key], proposal.nonce)
    assert rebuilt.transaction.raw == verified.transactions[0].raw


def test_later_runs_change_nothing(tmp_path: Path) -> None:
    paths = tmp_path / "data", tmp_path / "data" / "v.priv", tmp_path / "me.priv"
    first = prepare(*paths, make_user_key=True)
    assert first.genesis is not None
    before = first.genesis.read_bytes()
    assert prepare(*paths, make_user_key=True) == ((), None, None)
    assert first.genesis.read_bytes() == before


def test_a_ledger_with_a_store_gets_no_genesis(tmp_path: Path) -> None:
    (tmp_path / "data" / "store").mkdir(parents=True)
    create_key(tmp_path / "v.priv")
    prepared = prepare(tmp_path / "data", tmp_path / "v.priv", tmp_path / "me.priv", make_user_key=True)
    assert prepared.keys == (tmp_path / "me.priv",)
    assert not (tmp_path / "data" / "genesis.batch").exists()


def test_a_ledger_that_lost_its_nodes_key_gets_no_other(tmp_path: Path) -> None:
    (tmp_path / "data" / "store").mkdir(parents=True)
    node_key = tmp_path / "v.priv"
    with pytest.raises(Refused, match=r"key .*v\.priv is missing: put it back from .*, or .* keygen .*v\.priv$"):
        prepare(tmp_path / "data", node_key, tmp_path / "me.priv", make_user_key=True)
    assert not node_key.exists()
    assert not (tmp_path / "me.priv").exists()


def test_a_named_key_is_not_made_up(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="there is no key at"):
        prepare(tmp_path / "data", tmp_path / "v.priv", tmp_path / "typo.priv", make_user_key=False)


def test_a_data_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(Refused, match=r"data is not a folder$"):
        prepare(tmp_path / "data", tmp_path / "v.priv", tmp_path / "me.priv", make_user_key=True)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_an_unwritable_data_folder(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(Refused, match=r"cannot make the folder .*: Permission denied"):
        prepare(tmp_path / "locked" / "data", tmp_path / "v.priv", tmp_path / "me.priv", make_user_key=True)


def test_keygen_and_genesis_commands(run: Run, home: Path, tmp_path: Path) -> None:
    made = run("keygen", "alice")
    assert made.code == 0
    assert (home / "keys" / "alice.pub").read_text().strip() in made.out
    again = run("keygen", "alice")
    assert (again.code, again.out) == (1, "")
    assert again.err.startswith("dovetail: ")
    assert run("keygen", "alice", "--force", "--json").code == 0
    assert run("genesis", "--data-dir", str(tmp_path / "d"), "--key", "alice").code == 0
    assert (tmp_path / "d" / "genesis.batch").exists()
    refused = run("genesis", "--data-dir", str(tmp_path / "d"), "--key", "alice")
    assert refused.code == 1
    assert "has a ledger already" in refused.err
