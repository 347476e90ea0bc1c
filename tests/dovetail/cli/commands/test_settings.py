"""``settings``: lists, proposals and votes."""

import json
from pathlib import Path

import pytest

from dovetail.ledger.settings import (
    APPROVAL_THRESHOLD,
    AUTHORIZED_KEYS,
    PROPOSALS,
    encode_setting,
    setting_address,
    value_digest,
)
from families.settings.candidates import Candidate, Proposal, Vote, encode_candidates
from protos import settings_pb2
from protos.batch_pb2 import BatchList
from tests.dovetail.cli.commands.answers import HEAD, Submissions, base64_of, leaf_of, page, posted
from tests.dovetail.conftest import FakeApi, Run

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("with_key")]


KEY = "02" + "ab" * 32


def _with_settings(api: FakeApi, **settings: str) -> None:
    """Answer for the settings that decide about a change of ``my.setting``; KEY may change it."""
    for key in (AUTHORIZED_KEYS, APPROVAL_THRESHOLD, PROPOSALS, "my.setting"):
        api.refuse(f"GET /state/{setting_address(key)}", 404, 75, "State Not Found", "none")
    for key, value in {AUTHORIZED_KEYS: KEY, **settings}.items():
        data = base64_of(encode_setting({key: value}))
        api.answers[f"GET /state/{setting_address(key)}"] = (200, {"data": data, "head": HEAD, "link": ""})


def _with_proposals(api: FakeApi, *ids: str) -> None:
    _with_settings(api)
    candidates = [Candidate(proposal_id, Proposal("my.setting", "on", "n"), (Vote(KEY, True),)) for proposal_id in ids]
    content = encode_setting({PROPOSALS: encode_candidates(candidates)})
    address = setting_address(PROPOSALS)
    api.answers[f"GET /state/{address}"] = (200, {"data": base64_of(content), "head": HEAD, "link": ""})
    api.answers["GET /state"] = page(
        [
            leaf_of(setting_address("a.key"), encode_setting({"a.key": "v"})),
            leaf_of(setting_address(AUTHORIZED_KEYS), encode_setting({AUTHORIZED_KEYS: KEY})),
            leaf_of(address, content),
        ]
    )


def test_settings_list(run: Run, api: FakeApi) -> None:
    _with_proposals(api, "ab" * 32)
    listed = json.loads(run("settings", "list", "--json").out)
    assert listed["settings"] == {"a.key": "v", AUTHORIZED_KEYS: KEY}
    votes = {KEY: "accept"}
    assert listed["proposals"] == [
        {"proposal_id": "ab" * 32, "setting": "my.setting", "value": "on", "votes": votes, "refusal": None}
    ]
    out = run("settings", "list").out
    assert "a.key" in out
    assert "ab" * 32 in out


def test_settings_propose_prints_the_id_to_vote_by(run: Run, api: FakeApi) -> None:
    api.answers = Submissions("COMMITTED")
    _with_settings(api, **{"my.setting": "off"})
    done = run("settings", "propose", "my.setting", "on", "--wait", "5", "--json")
    transaction = posted(api)[1]
    payload = settings_pb2.SettingsPayload.FromString(transaction.payload)
    assert payload.action == settings_pb2.SettingsPayload.PROPOSE
    assert payload.base == value_digest("off")
    assert len(json.loads(done.out)["proposal_id"]) == 64


def test_a_proposal_in_a_file_asks_no_node_and_names_no_base(run: Run, api: FakeApi, tmp_path: Path) -> None:
    file = tmp_path / "proposal"
    assert run("settings", "propose", "my.setting", "on", "--output", str(file)).code == 0
    assert api.requests == []
    (batch,) = BatchList.FromString(file.read_bytes()).batches
    payload = settings_pb2.SettingsPayload.FromString(batch.transactions[0].payload)
    assert (payload.action, payload.base) == (settings_pb2.SettingsPayload.PROPOSE, "")


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        (AUTHORIZED_KEYS, "02" + "00" * 32, "no point of the curve"),
        (AUTHORIZED_KEYS, f"{KEY},{KEY}", "names a key twice"),
        (APPROVAL_THRESHOLD, "2", "above the number of authorized keys, 1"),
    ],
)
def test_a_value_that_nobody_could_change_again_is_not_proposed(
    run: Run, api: FakeApi, setting: str, value: str, said: str
) -> None:
    _with_settings(api)
    done = run("settings", "propose", setting, value)
    assert done.code == 1
    assert said in done.err
    assert not any(request.method == "POST" for request in api.requests)


@pytest.mark.parametrize(("answer", "vote"), [("accept", 1), ("reject", 2)])
def test_settings_vote_by_the_beginning_of_an_id(run: Run, api: FakeApi, answer: str, vote: int) -> None:
    _with_proposals(api, "ab" * 32, "ac" * 32)
    api.answers["POST /batches"] = (202, {"link": "…"})
    assert run("settings", "vote", "ab", answer).code == 0
    transaction = posted(api)[1]
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
