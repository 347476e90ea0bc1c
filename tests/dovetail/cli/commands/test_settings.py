"""``settings``: lists, proposals and votes."""

import json

import pytest

from dovetail.ledger.settings import PROPOSALS, encode_setting, setting_address
from families.settings.candidates import Candidate, Proposal, Vote, encode_candidates
from protos import settings_pb2
from tests.dovetail.cli.commands.answers import HEAD, Submissions, base64_of, leaf_of, page, posted
from tests.dovetail.conftest import FakeApi, Run

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("with_key")]


def _with_proposals(api: FakeApi, *ids: str) -> None:
    candidates = [
        Candidate(proposal_id, Proposal("my.setting", "on", "n"), (Vote("02" + "ab" * 32, True),))
        for proposal_id in ids
    ]
    content = encode_setting({PROPOSALS: encode_candidates(candidates)})
    address = setting_address(PROPOSALS)
    api.answers[f"GET /state/{address}"] = (200, {"data": base64_of(content), "head": HEAD, "link": ""})
    api.answers["GET /state"] = page(
        [leaf_of(setting_address("a.key"), encode_setting({"a.key": "v"})), leaf_of(address, content)]
    )


def test_settings_list(run: Run, api: FakeApi) -> None:
    _with_proposals(api, "ab" * 32)
    listed = json.loads(run("settings", "list", "--json").out)
    assert listed["settings"] == {"a.key": "v"}
    assert listed["proposals"] == [
        {"proposal_id": "ab" * 32, "setting": "my.setting", "value": "on", "votes": {"02" + "ab" * 32: "accept"}}
    ]
    out = run("settings", "list").out
    assert "a.key" in out
    assert "ab" * 32 in out


def test_settings_propose_prints_the_id_to_vote_by(run: Run, api: FakeApi) -> None:
    api.answers = Submissions("COMMITTED")
    done = run("settings", "propose", "my.setting", "on", "--wait", "5", "--json")
    transaction = posted(api)[1]
    payload = settings_pb2.SettingsPayload.FromString(transaction.payload)
    assert payload.action == settings_pb2.SettingsPayload.PROPOSE
    assert len(json.loads(done.out)["proposal_id"]) == 64


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
