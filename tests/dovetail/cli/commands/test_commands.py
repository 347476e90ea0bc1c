"""The commands that talk to a REST API, from their arguments to exit code, stdout and stderr."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail.ledger.batch import decode_batch_list, verify_batch
from dovetail.ledger.settings import PROPOSALS, encode_setting, setting_address
from dovetail.ledger.transaction import Transaction, decode_transaction
from families.intkey.client import VERSIONS, intkey_address
from families.settings.candidates import Candidate, Proposal, Vote, encode_candidates
from protos import settings_pb2
from tests.dovetail.conftest import FakeApi, Run

pytestmark = pytest.mark.timeout(60)

_HEAD = "ee" * 64


@pytest.fixture(autouse=True)
def _with_key(run: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("keygen").code == 0
    monkeypatch.setenv("DOVETAIL_URL", api.url)


def _posted(api: FakeApi) -> tuple[str, Transaction]:
    """The id of the one batch posted, verified, and its one transaction."""
    (request,) = [request for request in api.requests if request.method == "POST"]
    (raw,) = decode_batch_list(request.body)
    batch = verify_batch(raw)
    return batch.id, decode_transaction(batch.transactions[0].raw)


class Told(dict[str, Any]):
    """Accepts a batch and tells ``status`` of whichever is asked for."""

    def __init__(self, status: str, details: dict[str, str] | None = None) -> None:
        super().__init__({"POST /batches": (202, {"link": "…"})})
        self._status, self._details = status, details or {}

    def get(self, asked: str, default: Any = None) -> Any:
        if not asked.startswith("GET /batch_status?"):
            return super().get(asked, default)
        batch_id = asked.partition("id=")[2].partition("&")[0]
        return (200, {"data": {batch_id: self._status}, "details": {batch_id: self._details}, "link": "…"})


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _page(items: list[Any], start: int = 0, total: int | None = None, following: str | None = None) -> Any:
    paging: dict[str, Any] = {"start_index": start, "total_count": len(items) if total is None else total}
    if following:
        paging["next"] = following
    return (200, {"data": items, "head": _HEAD, "link": "", "paging": paging})


def _leaf(address: str, content: bytes) -> dict[str, str]:
    return {"address": address, "data": _base64(content)}


def test_submit_without_waiting_says_how_to_follow(run: Run, api: FakeApi) -> None:
    api.answers["POST /batches"] = (202, {"link": "…"})
    done = run("intkey", "set", "apples", "5")
    batch_id, transaction = _posted(api)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == f"batch {batch_id} accepted"
    assert lines[1].endswith(f" batch status {batch_id} --wait 60 --url {api.url}")
    assert transaction.header.family_name == "intkey"
    assert transaction.header.inputs == transaction.header.outputs == (intkey_address("apples"),)
    assert api.requests[0].target == "/batches"


@pytest.mark.parametrize(
    ("words", "version", "encoding", "value"),
    [
        ((), "1.0", "cbor", 2**32 - 1),
        (("--encoding", "cbor"), "1.0", "cbor", 5),
        (("--encoding", "json"), "1.0", "json", 5),
        (("--family-version", "2.0"), "2.0", "json", 2**64 - 1),
        (("--family-version", "2.0", "--encoding", "cbor"), "2.0", "cbor", 2**32),
    ],
)
def test_a_payload_is_encoded_as_asked(
    run: Run, api: FakeApi, words: tuple[str, ...], version: str, encoding: str, value: int
) -> None:
    api.answers["POST /batches"] = (202, {"link": "…"})
    assert run("intkey", "inc", "apples", str(value), *words).code == 0
    _, transaction = _posted(api)
    assert transaction.header.family_version == version
    assert transaction.header.payload_encoding == f"application/{encoding}"
    codec = VERSIONS[version].encodings[transaction.header.payload_encoding]
    assert codec.decode(transaction.payload) == VERSIONS[version].payload("inc", "apples", value)


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
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
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
    # It is used all the same.
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
    api.answers = Told("COMMITTED")
    done = run("intkey", "inc", "apples", "5", "--wait", "7", "--json")
    batch_id = _posted(api)[0]
    assert done.code == 0
    assert json.loads(done.out) == {"batch_id": batch_id, "status": "COMMITTED", "details": {}}
    assert done.err == f"batch {batch_id} accepted; waiting up to 7 s\n"
    assert [request.target for request in api.requests] == ["/batches", f"/batch_status?id={batch_id}&wait=7"]


def test_a_connection_that_is_lost_while_waiting_does_not_lose_the_id(run: Run, api: FakeApi) -> None:
    api.answers["POST /batches"] = (202, {"link": "…"})
    api.refuse("GET /batch_status", 503, 18, "Validator Disconnected", "it went away")
    done = run("intkey", "inc", "apples", "5", "--wait", "7")
    batch_id = _posted(api)[0]
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
        ("UNKNOWN", {}, "is UNKNOWN: the REST API gave no reason"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_submit_and_wait_in_vain(
    run: Run, api: FakeApi, status: str, details: dict[str, str], reason: str, as_json: bool
) -> None:
    api.answers = Told(status, details)
    done = run("intkey", "set", "apples", "5", "--wait", "7", *(["--json"] if as_json else []))
    assert done.code == 1
    start, _, end = reason.partition(".*")
    assert start in done.err
    assert end.strip() in done.err
    assert "\x1b" not in done.err
    assert not as_json or json.loads(done.out)["status"] == status
    assert as_json or done.out == ""
    follow = f" batch status {_posted(api)[0]} --wait 60 --url {api.url}\n"
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
    assert _posted(api)[1].header.signer_pubkey == (tmp_path / "mine.pub").read_text().strip()


def test_intkey_show(run: Run, api: FakeApi) -> None:
    leaf = {"data": _base64(b"\xa2\x61a\x01\x66apples\x05"), "head": _HEAD, "link": ""}
    api.answers[f"GET /state/{intkey_address('apples')}"] = (200, leaf)
    assert run("intkey", "show", "apples") == (0, "apples: 5\n", "")
    assert json.loads(run("intkey", "show", "apples", "--json").out) == {"name": "apples", "value": 5}


def test_intkey_show_of_no_name(run: Run, api: FakeApi) -> None:
    api.refuse(f"GET /state/{intkey_address('pears')}", 404, 75, "State Not Found", "no leaf")
    assert run("intkey", "show", "pears") == (1, "", "dovetail: intkey has no name 'pears'\n")
    api.refuse(f"GET /state/{intkey_address('pears')}", 503, 15, "Validator Not Ready", "no genesis")
    assert run("intkey", "show", "pears").err == "dovetail: Validator Not Ready: no genesis (code 15)\n"


def test_intkey_list_follows_pages(run: Run, api: FakeApi) -> None:
    first = [_leaf("1cf126" + "0" * 64, b"\xa1\x61a\x01")]
    second = [_leaf("1cf126" + "1" * 64, b"\xa1\x61b\x02")]
    api.answers["GET /state?address=1cf126&count=1000"] = _page(first, 0, 2, f"{api.url}/state?address=1cf126&min=1")
    api.answers["GET /state?address=1cf126&min=1"] = _page(second, 1, 2)
    done = run("intkey", "list", "--json")
    assert json.loads(done.out) == [{"name": "a", "value": 1}, {"name": "b", "value": 2}]
    assert [line.split() for line in run("intkey", "list").out.splitlines()] == [
        ["NAME", "VALUE"],
        ["a", "1"],
        ["b", "2"],
    ]


def test_a_damaged_leaf_is_told(run: Run, api: FakeApi) -> None:
    api.answers["GET /state"] = _page([_leaf("1cf126" + "0" * 64, b"\xff")])
    done = run("intkey", "list")
    assert done.code == 1
    assert done.err.startswith("dovetail: a leaf of intkey is damaged: ")


def _with_proposals(api: FakeApi, *ids: str) -> None:
    candidates = [
        Candidate(proposal_id, Proposal("my.setting", "on", "n"), (Vote("02" + "ab" * 32, True),))
        for proposal_id in ids
    ]
    content = encode_setting({PROPOSALS: encode_candidates(candidates)})
    address = setting_address(PROPOSALS)
    api.answers[f"GET /state/{address}"] = (200, {"data": _base64(content), "head": _HEAD, "link": ""})
    api.answers["GET /state"] = _page(
        [_leaf(setting_address("a.key"), encode_setting({"a.key": "v"})), _leaf(address, content)]
    )


def test_settings_list(run: Run, api: FakeApi) -> None:
    _with_proposals(api, "ab" * 32)
    listed = json.loads(run("settings", "list", "--json").out)
    assert listed["settings"] == {"a.key": "v"}
    assert listed["proposals"] == [
        {
            "proposal_id": "ab" * 32,
            "setting": "my.setting",
            "value": "on",
            "votes": {"02" + "ab" * 32: "accept"},
        }
    ]
    out = run("settings", "list").out
    assert "a.key" in out
    assert "ab" * 32 in out


def test_settings_propose_prints_the_id_to_vote_by(run: Run, api: FakeApi) -> None:
    api.answers = Told("COMMITTED")
    done = run("settings", "propose", "my.setting", "on", "--wait", "5", "--json")
    transaction = _posted(api)[1]
    payload = settings_pb2.SettingsPayload.FromString(transaction.payload)
    assert payload.action == settings_pb2.SettingsPayload.PROPOSE
    assert len(json.loads(done.out)["proposal_id"]) == 64


@pytest.mark.parametrize(("answer", "vote"), [("accept", 1), ("reject", 2)])
def test_settings_vote_by_the_beginning_of_an_id(run: Run, api: FakeApi, answer: str, vote: int) -> None:
    _with_proposals(api, "ab" * 32, "ac" * 32)
    api.answers["POST /batches"] = (202, {"link": "…"})
    assert run("settings", "vote", "ab", answer).code == 0
    transaction = _posted(api)[1]
    cast = settings_pb2.SettingVote.FromString(settings_pb2.SettingsPayload.FromString(transaction.payload).data)
    assert (cast.proposal_id, cast.vote) == ("ab" * 32, vote)
    assert setting_address("my.setting") in transaction.header.outputs


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [("a", "begins several open proposals: abab"), ("ff", "there is no open proposal ff; open are: abab")],
)
def test_settings_vote_on_what_is_not_one_proposal(run: Run, api: FakeApi, wanted: str, reason: str) -> None:
    _with_proposals(api, "ab" * 32, "ac" * 32)
    done = run("settings", "vote", wanted, "accept")
    assert done.code == 1
    assert reason in done.err


_BLOCK = {
    "header": {"block_num": 3, "state_root_hash": "cd" * 32, "signer_pubkey": "02" + "ab" * 32},
    "header_signature": "ab" * 64,
    "batches": [{"transactions": [{}, {}]}],
}


def test_a_list_stops_at_count_and_says_that_there_is_more(run: Run, api: FakeApi) -> None:
    api.answers["GET /blocks?count=2"] = _page([_BLOCK], 0, 9, f"{api.url}/blocks?min=1&count=2")
    api.answers["GET /blocks?min=1&count=2"] = _page([_BLOCK, _BLOCK], 1, 9, f"{api.url}/blocks?min=3&count=2")
    done = run("block", "list", "--count", "2")
    assert done.code == 0
    rows = [line.split() for line in done.out.splitlines()[1:]]
    assert rows == [["3", "1", "2", "cdcdcdcdcdcdcdcd…", "ab" * 64]] * 2
    assert done.err == "2 of 9; --count 0 shows all\n"


def test_a_whole_list_as_one_json_array(run: Run, api: FakeApi) -> None:
    api.answers["GET /blocks?count=1000&head=7"] = _page([_BLOCK], 0, 2, f"{api.url}/blocks?min=1&head=7")
    api.answers["GET /blocks?min=1&head=7"] = _page([_BLOCK], 1, 2)
    done = run("block", "list", "--count", "0", "--head", "7", "--json")
    assert json.loads(done.out) == [_BLOCK, _BLOCK]
    assert done.err == ""


@pytest.mark.parametrize("kind", ["block", "batch", "transaction", "state"])
def test_an_empty_list(run: Run, api: FakeApi, kind: str) -> None:
    resource = {"block": "blocks", "batch": "batches", "transaction": "transactions", "state": "state"}[kind]
    api.answers[f"GET /{resource}"] = _page([])
    assert run(kind, "list", "--json") == (0, "[]\n", "")
    assert run(kind, "list").code == 0


def test_an_item_of_another_shape_is_told(run: Run, api: FakeApi) -> None:
    api.answers["GET /blocks"] = _page([{"header": 3}])
    done = run("block", "list")
    assert done.code == 1
    assert "is not as the REST API documents it" in done.err


def test_what_others_wrote_cannot_steer_the_terminal(run: Run, api: FakeApi) -> None:
    header = {"family_name": "\x1b]0;gotcha\x07[bold]", "family_version": "1\r\n2", "signer_pubkey": "02"}
    transaction = {"header": header, "header_signature": "ab" * 64, "payload": ""}
    api.answers["GET /transactions"] = _page([transaction])
    api.answers["GET /transactions/x"] = (200, {"data": transaction, "link": ""})
    for done in (run("transaction", "list"), run("transaction", "show", "x")):
        assert done.code == 0
        assert "\\x1b]0;gotcha\\x07[bold]" in done.out
        assert not {"\x1b", "\x07", "\r"} & set(done.out)


def test_show_as_text_and_as_json(run: Run, api: FakeApi) -> None:
    api.answers["GET /blocks/3"] = (200, {"data": _BLOCK, "link": ""})
    assert run("block", "show", "3").out.splitlines()[:2] == ["header:", "  block_num: 3"]
    assert json.loads(run("block", "show", "3", "--json").out) == _BLOCK
    api.answers[f"GET /state/{'00' * 35}?head=3"] = (200, {"data": "AQ==", "head": _HEAD, "link": ""})
    shown = run("state", "show", "00" * 35, "--head", "3", "--json")
    assert json.loads(shown.out) == {"address": "00" * 35, "data": "AQ=="}


def test_batch_status(run: Run, api: FakeApi) -> None:
    first, second = "ab" * 64, "cd" * 64
    answer = {
        "data": {first: "COMMITTED", second: "PENDING"},
        "details": {second: {"reason": "waiting_for_dependency", "dependency": "ef" * 64}},
    }
    api.answers["GET /batch_status"] = (200, answer)
    assert run("batch", "status", first, second).code == 0
    waited = run("batch", "status", first, second, "--wait", "3", "--json")
    assert waited.code == 1
    reason, follow = waited.err.splitlines()
    assert reason == f"dovetail: batch {second} is still PENDING after 3 s: waiting_for_dependency {'ef' * 64}"
    assert follow.endswith(f" batch status {second} --wait 60 --url {api.url}")
    assert json.loads(waited.out)[first] == {"status": "COMMITTED", "details": {}}
    assert api.requests[-1].target == f"/batch_status?id={first}%2C{second}&wait=3"
