"""Lists and single resources of the ledger, for people and for scripts."""

import json

import pytest

from tests.dovetail.cli.commands.answers import HEAD, page
from tests.dovetail.conftest import FakeApi, Run

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("with_key")]


_BLOCK = {
    "header": {"block_num": 3, "state_root_hash": "cd" * 32, "signer_pubkey": "02" + "ab" * 32},
    "header_signature": "ab" * 64,
    "batches": [{"transactions": [{}, {}]}],
}


def test_a_list_stops_at_count_and_says_that_there_is_more(run: Run, api: FakeApi) -> None:
    api.answers["GET /blocks?count=2"] = page([_BLOCK], 0, 9, f"{api.url}/blocks?min=1&count=2")
    api.answers["GET /blocks?min=1&count=2"] = page([_BLOCK, _BLOCK], 1, 9, f"{api.url}/blocks?min=3&count=2")
    done = run("block", "list", "--count", "2")
    assert done.code == 0
    rows = [line.split() for line in done.out.splitlines()[1:]]
    assert rows == [["3", "1", "2", "cdcdcdcdcdcdcdcd…", "ab" * 64]] * 2
    assert done.err == "2 of 9; --count 0 shows all\n"


def test_a_whole_list_as_one_json_array(run: Run, api: FakeApi) -> None:
    api.answers["GET /blocks?count=1000&head=7"] = page([_BLOCK], 0, 2, f"{api.url}/blocks?min=1&head=7")
    api.answers["GET /blocks?min=1&head=7"] = page([_BLOCK], 1, 2)
    done = run("block", "list", "--count", "0", "--head", "7", "--json")
    assert json.loads(done.out) == [_BLOCK, _BLOCK]
    assert done.err == ""


@pytest.mark.parametrize("kind", ["block", "batch", "transaction", "state"])
def test_an_empty_list(run: Run, api: FakeApi, kind: str) -> None:
    resource = {"block": "blocks", "batch": "batches", "transaction": "transactions", "state": "state"}[kind]
    api.answers[f"GET /{resource}"] = page([])
    assert run(kind, "list", "--json") == (0, "[]\n", "")
    assert run(kind, "list").code == 0


def test_an_item_of_another_shape_is_told(run: Run, api: FakeApi) -> None:
    api.answers["GET /blocks"] = page([{"header": 3}])
    done = run("block", "list")
    assert done.code == 1
    assert "is not as the REST API documents it" in done.err


def test_what_others_wrote_cannot_steer_the_terminal(run: Run, api: FakeApi) -> None:
    header = {"family_name": "\x1b]0;gotcha\x07[bold]", "family_version": "1\r\n2", "signer_pubkey": "02"}
    transaction = {"header": header, "header_signature": "ab" * 64, "payload": ""}
    api.answers["GET /transactions"] = page([transaction])
    api.answers["GET /transactions/x"] = (200, {"data": transaction, "link": ""})
    for done in (run("transaction", "list"), run("transaction", "show", "x")):
        assert done.code == 0
        assert "\\x1b]0;gotcha\\x07[bold]" in done.out
        assert not {"\x1b", "\x07", "\r"} & set(done.out)


def test_show_as_text_and_as_json(run: Run, api: FakeApi) -> None:
    api.answers["GET /blocks/3"] = (200, {"data": _BLOCK, "link": ""})
    assert run("block", "show", "3").out.splitlines()[:2] == ["header:", "  block_num: 3"]
    assert json.loads(run("block", "show", "3", "--json").out) == _BLOCK
    api.answers[f"GET /state/{'00' * 35}?head=3"] = (200, {"data": "AQ==", "head": HEAD, "link": ""})
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
