"""Submitting commands, from their arguments to the posted batch, exit code, stdout and stderr."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.ledger.batch import decode_batch_list, verify_batch
from families.intkey.client import intkey_address
from tests.dovetail.cli.commands.answers import Submissions, posted
from tests.dovetail.conftest import FakeApi, Run

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("with_key")]


def test_submit_without_waiting_says_how_to_follow(run: Run, api: FakeApi) -> None:
    api.answers["POST /batches"] = (202, {"link": "…"})
    done = run("intkey", "set", "apples", "5")
    batch_id, transaction = posted(api)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == f"batch {batch_id} accepted"
    assert lines[1].endswith(f" batch status {batch_id} --wait 60 --url {api.url}")
    assert transaction.header.family_name == "intkey"
    assert transaction.header.inputs == transaction.header.outputs == (intkey_address("apples"),)
    assert api.requests[0].target == "/batches"


@pytest.mark.parametrize(
    "words",
    [("intkey", "set", "apples", "5"), ("intkey", "dec", "apples", "5"), ("settings", "propose", "my.setting", "on")],
)
def test_a_batch_is_written_instead_of_submitted(
    run: Run, api: FakeApi, tmp_path: Path, words: tuple[str, ...]
) -> None:
    file = tmp_path / "batches.bin"
    for as_json in (False, True):
        done = run(*words, "--output", str(file), *(["--json"] if as_json else []))
        (raw,) = decode_batch_list(file.read_bytes())
        assert done.code == 0
        told = json.loads(done.out)["batch_id"] if as_json else done.out.removesuffix("\n")
        assert told == verify_batch(raw).id
    assert api.requests == []


@pytest.mark.parametrize("as_json", [False, True])
def test_a_batch_is_written_to_stdout(tmp_path: Path, as_json: bool) -> None:
    command = [sys.executable, "-m", "dovetail", "intkey", "set", "apples", "5", "--output", "-"]
    done = subprocess.run(
        [*command, "--json"] if as_json else command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        check=True,
    )
    (raw,) = decode_batch_list(done.stdout)
    told = json.loads(done.stderr)["batch_id"] if as_json else done.stderr.decode().splitlines()[-1]
    assert told == verify_batch(raw).id
    assert not (tmp_path / "-").exists()


def test_a_file_that_a_batch_replaces_is_told_and_a_device_is_kept(run: Run, tmp_path: Path) -> None:
    file, device = tmp_path / "batches.bin", tmp_path / "pipe"
    words = ("intkey", "set", "apples", "5", "--output")
    assert "replaced" not in run(*words, str(file)).err
    assert run(*words, str(file)).err.startswith(f"replaced {file}, which existed\n")
    os.mkfifo(device)
    refused = run(*words, str(device))
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == f"dovetail: cannot write {device}: it exists and is no file; - writes to stdout\n"
    assert device.is_fifo()


def test_a_password_of_the_url_is_not_shown(run: Run, api: FakeApi) -> None:
    with_password = api.url.replace("//", "//me:secret@")
    shown = api.url.replace("//", "//me:…@")
    api.answers["POST /batches"] = (202, {"link": "…"})
    accepted = run("intkey", "set", "apples", "5", "--url", with_password)
    assert f"--url {shown!r}" in accepted.out
    # The request has the password, although no output shows it.
    assert api.requests[-1].headers["Authorization"].startswith("Basic ")
    refused = run("block", "list", "--url", "http://me:secret@127.0.0.1:1")
    assert refused.err == "dovetail: nothing answers at http://me:…@127.0.0.1:1; is `dovetail up` running?\n"
    unusable = run("block", "list", "--url", "http://me:sec/ret@127.0.0.1:1")
    assert unusable.err == "dovetail: 'http://me:…@127.0.0.1:1' is no URL\n"
    for done in (accepted, refused, unusable, run("status", "--url", with_password)):
        assert "sec" not in done.out + done.err


def test_a_written_batch_cannot_be_waited_for(run: Run, tmp_path: Path) -> None:
    words = ("intkey", "set", "apples", "5", "--wait", "3")
    assert run(*words, "--output", str(tmp_path / "batches.bin")).code == 2
    assert run(*words[:-2], "--output", "").code == 2
    assert "cannot write" in run(*words[:-2], "--output", str(tmp_path / "missing" / "batches.bin")).err
    assert list(tmp_path.glob("*.bin")) == []


def test_submit_and_wait_until_committed(run: Run, api: FakeApi) -> None:
    api.answers = Submissions("COMMITTED")
    done = run("intkey", "inc", "apples", "5", "--wait", "7", "--json")
    batch_id = posted(api)[0]
    assert done.code == 0
    assert json.loads(done.out) == {"batch_id": batch_id, "status": "COMMITTED", "details": {}}
    assert done.err == f"batch {batch_id} accepted; waiting up to 7 s\n"
    assert [request.target for request in api.requests] == ["/batches", f"/batch_status?id={batch_id}&wait=7"]


def test_a_connection_that_is_lost_while_waiting_does_not_lose_the_id(run: Run, api: FakeApi) -> None:
    api.answers["POST /batches"] = (202, {"link": "…"})
    api.refuse("GET /batch_status", 503, 18, "Validator Disconnected", "it went away")
    done = run("intkey", "inc", "apples", "5", "--wait", "7")
    batch_id = posted(api)[0]
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[1] == "dovetail: Validator Disconnected: it went away (code 18)"
    assert done.err.endswith(f" batch status {batch_id} --wait 60 --url {api.url}\n")


@pytest.mark.parametrize(
    ("status", "details", "reason"),
    [
        (
            "INVALID",
            {"reason": "invalid_transaction", "message": "no \x1b[31mapples"},
            r"INVALID: .* no \x1b[31mapples",
        ),
        (
            "PENDING",
            {"reason": "waiting_for_processor", "family_name": "intkey", "family_version": "1.0"},
            "still PENDING after 7 s: waiting_for_processor intkey 1.0",
        ),
        ("UNKNOWN", {}, "is UNKNOWN: the node dropped it or never had it; submit it again"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_submit_and_wait_in_vain(
    run: Run, api: FakeApi, status: str, details: dict[str, str], reason: str, as_json: bool
) -> None:
    api.answers = Submissions(status, details)
    done = run("intkey", "set", "apples", "5", "--wait", "7", *(["--json"] if as_json else []))
    assert done.code == 1
    start, _, end = reason.partition(".*")
    assert start in done.err
    assert end.strip() in done.err
    assert "\x1b" not in done.err
    assert not as_json or json.loads(done.out)["status"] == status
    assert as_json or done.out == ""
    follow = f" batch status {posted(api)[0]} --wait 60 --url {api.url}\n"
    assert done.err.endswith(follow) == (status == "PENDING")


def test_a_refused_list_is_told_with_its_rule(run: Run, api: FakeApi) -> None:
    api.refuse("POST /batches", 400, 30, "Submitted Batches Invalid", "batch ab: the signature is wrong")
    done = run("intkey", "set", "apples", "5")
    assert (done.code, done.out) == (1, "")
    assert done.err == "dovetail: Submitted Batches Invalid: batch ab: the signature is wrong (code 30)\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("intkey", "set", "apples"),
        ("intkey", "set", "apples", "many"),
        ("intkey", "set", "apples", "4294967296"),
        ("intkey", "set", "apples", "18446744073709551616", "--family-version", "2.0"),
        ("intkey", "set", "apples", "1", "--family-version", "3.0"),
        ("intkey", "set", "a" * 21, "1"),
        ("intkey", "set", "apples", "1", "--wait", "-1"),
        ("intkey", "sett", "apples", "1"),
        ("settings", "vote", "ab", "maybe"),
        ("batch", "status"),
        ("nothing",),
        ("intkey", "set", "apples", "1", "--key", ""),
        ("intkey", "show", "apples", "--head", ""),
        ("batch", "status", "ab", ""),
        ("batch", "show", ""),
        ("block", "show", ""),
        ("transaction", "show", ""),
        ("state", "show", ""),
        ("block", "list", "--url", ""),
        ("settings", "propose", "", "value"),
        ("settings", "vote", "", "accept"),
        ("keygen", ""),
        ("genesis", "--data-dir", ""),
        ("up", "--data-dir", ""),
        ("validator", "--key-file", ""),
        ("processor", ""),
        ("intkey", "set", "apples\udcff", "1"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_asks_nobody(run: Run, api: FakeApi, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err
    assert api.requests == []


def test_without_a_key_nothing_is_sent(run: Run, api: FakeApi) -> None:
    done = run("intkey", "set", "apples", "5", "--key", "nobody")
    assert done.code == 1
    assert "make one: " in done.err
    assert " keygen " in done.err
    assert api.requests == []


def test_a_key_by_path(run: Run, api: FakeApi, tmp_path: Path) -> None:
    api.answers["POST /batches"] = (202, {"link": "…"})
    run("keygen", str(tmp_path / "mine.priv"))
    assert run("intkey", "dec", "apples", "5", "--key", str(tmp_path / "mine.priv")).code == 0
    assert posted(api)[1].header.signer_pubkey == (tmp_path / "mine.pub").read_text().strip()
