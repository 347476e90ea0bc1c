"""sawtooth_settings 1.0: authorization, votes, and damaged state."""

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.ledger.settings import (
    APPROVAL_THRESHOLD,
    AUTHORIZED_KEYS,
    PROPOSALS,
    TRANSACTION_FAMILIES,
    decode_setting,
    encode_setting,
    setting_address,
)
from dovetail.ledger.signing import Signer
from dovetail.ledger.transaction import decode_transaction
from families.settings import client
from families.settings.candidates import Candidate, Proposal, Vote
from families.settings.handler import SettingsHandler
from processor_sdk.testing import Event, Ledger, Result
from protos import settings_pb2

KEYS = [Signer(f"{number:064x}") for number in range(1, 6)]
ALICE, BOB, CAROL, DAVE, STRANGER = KEYS
PUBLIC = [signer.public_key for signer in KEYS]


def propose(ledger: Ledger, signer: Signer, key: str, value: str, nonce: str = "n") -> Result:
    return ledger.apply(client.propose(signer, signer.public_key, key, value, nonce).transaction)


def vote(ledger: Ledger, signer: Signer, proposal_id: str, key: str, *, accept: bool = True) -> Result:
    nonce = str(len(ledger.receipts))
    return ledger.apply(client.vote(signer, signer.public_key, proposal_id, key, accept=accept, nonce=nonce))


def updated(*keys: str) -> tuple[Event, ...]:
    """The events of updates of these keys."""
    return tuple(Event("settings/update", (("updated", key),)) for key in keys)


def do_raw(ledger: Ledger, payload: bytes, encoding: str = "") -> Result:
    transaction = ledger.transaction(
        payload, encoding=encoding, inputs=ADDRESSES, outputs=ADDRESSES, signer=ALICE.public_key
    )
    return ledger.apply(transaction)


def stored(ledger: Ledger, key: str) -> str | None:
    return decode_setting(ledger.state.get(setting_address(key))).get(key)


def candidates(ledger: Ledger) -> tuple[Candidate, ...]:
    return client.candidates_in(ledger.state.get(setting_address(PROPOSALS)))


def a_ledger(voters: int, threshold: int) -> Ledger:
    ledger = Ledger(SettingsHandler())
    keys = client.propose_authorized_keys(ALICE, ALICE.public_key, PUBLIC[:voters], "genesis")
    ledger.accepts(keys.transaction)
    if threshold > 1:
        assert propose(ledger, ALICE, APPROVAL_THRESHOLD, str(threshold))
    return ledger


def test_no_setting_can_be_set_before_the_authorized_keys() -> None:
    ledger = Ledger(SettingsHandler())
    assert propose(ledger, ALICE, "a.b", "1").message == f"'a.b' cannot be set before {AUTHORIZED_KEYS} is"
    result = propose(ledger, ALICE, AUTHORIZED_KEYS, f" {PUBLIC[0]} ,, {PUBLIC[1]}")
    assert result.events == updated(AUTHORIZED_KEYS)
    assert propose(ledger, BOB, "a.b", "1")
    assert (stored(ledger, "a.b"), candidates(ledger)) == ("1", ())
    assert propose(ledger, CAROL, "a.b", "2").message == f"{PUBLIC[2]} is not authorized to change settings"
    assert not vote(ledger, CAROL, "00", "a.b")


def test_the_addresses_that_clients_of_1x_declare_suffice() -> None:
    transaction = decode_transaction(client.propose(ALICE, PUBLIC[0], "a.b.c.d.e", "1", "n").transaction.raw)
    key, proposals = setting_address("a.b.c.d.e"), setting_address(PROPOSALS)
    assert set(transaction.header.outputs) == {proposals, key}
    assert set(transaction.header.inputs) == {
        proposals,
        key,
        setting_address(AUTHORIZED_KEYS),
        setting_address(APPROVAL_THRESHOLD),
    }


def test_a_proposal_takes_effect_with_the_vote_that_reaches_the_threshold() -> None:
    ledger = a_ledger(voters=4, threshold=3)
    proposal = client.propose(ALICE, PUBLIC[0], "a.b", "1", "n")
    assert ledger.accepts(proposal.transaction).events == updated(PROPOSALS)
    assert candidates(ledger) == (Candidate(proposal.proposal_id, Proposal("a.b", "1", "n"), (Vote(PUBLIC[0], True),)),)
    refused = propose(ledger, BOB, "a.b", "1")
    assert f"proposal {proposal.proposal_id} for 'a.b' is being voted on already" in refused.message
    assert propose(ledger, BOB, "a.b", "1", "another nonce")
    assert "has voted" in vote(ledger, ALICE, proposal.proposal_id, "a.b").message
    assert vote(ledger, BOB, proposal.proposal_id, "a.b")
    assert not vote(ledger, BOB, proposal.proposal_id, "a.b")
    assert stored(ledger, "a.b") is None
    assert vote(ledger, CAROL, proposal.proposal_id, "a.b").events == updated("a.b", PROPOSALS)
    assert stored(ledger, "a.b") == "1"
    assert [candidate.proposal.nonce for candidate in candidates(ledger)] == ["another nonce"]
    assert "there is no proposal" in vote(ledger, DAVE, proposal.proposal_id, "a.b").message


def test_a_candidate_is_removed_when_it_can_no_longer_be_accepted() -> None:
    ledger = a_ledger(voters=4, threshold=3)
    proposal = client.propose(ALICE, PUBLIC[0], "a.b", "1", "n")
    ledger.accepts(proposal.transaction)
    assert vote(ledger, BOB, proposal.proposal_id, "a.b", accept=False)
    assert len(candidates(ledger)) == 1
    assert vote(ledger, CAROL, proposal.proposal_id, "a.b", accept=False)
    assert (candidates(ledger), stored(ledger, "a.b")) == ((), None)


def test_votes_of_keys_that_lost_their_authority_do_not_count() -> None:
    ledger = a_ledger(voters=4, threshold=2)
    proposal = client.propose(ALICE, PUBLIC[0], "a.b", "1", "n")
    ledger.accepts(proposal.transaction)
    keys = client.propose(BOB, PUBLIC[1], AUTHORIZED_KEYS, ",".join(PUBLIC[1:4]), "n")
    ledger.accepts(keys.transaction)
    assert vote(ledger, CAROL, keys.proposal_id, AUTHORIZED_KEYS)
    assert not vote(ledger, ALICE, proposal.proposal_id, "a.b")
    assert vote(ledger, BOB, proposal.proposal_id, "a.b")
    assert stored(ledger, "a.b") is None
    assert vote(ledger, CAROL, proposal.proposal_id, "a.b")
    assert stored(ledger, "a.b") == "1"


def test_a_proposal_that_no_longer_fits_the_electorate_does_not_take_effect() -> None:
    ledger = a_ledger(voters=3, threshold=2)
    fewer = client.propose(ALICE, PUBLIC[0], AUTHORIZED_KEYS, ",".join(PUBLIC[:2]), "n")
    higher = client.propose(ALICE, PUBLIC[0], APPROVAL_THRESHOLD, "3", "n")
    ledger.accepts(fewer.transaction)
    ledger.accepts(higher.transaction)
    assert vote(ledger, BOB, higher.proposal_id, APPROVAL_THRESHOLD)
    assert vote(ledger, BOB, fewer.proposal_id, AUTHORIZED_KEYS)
    assert "holds 2 keys, fewer than 3 votes need" in vote(ledger, CAROL, fewer.proposal_id, AUTHORIZED_KEYS).message
    assert len(candidates(ledger)) == 1


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("", "1", "names no setting"),
        (PROPOSALS, "", "by proposals and votes only"),
        (AUTHORIZED_KEYS, " , ", "holds 0 keys"),
        (AUTHORIZED_KEYS, "alice", "'alice', not a public key"),
        (AUTHORIZED_KEYS, PUBLIC[0].upper(), "lower-case"),
        (AUTHORIZED_KEYS, f"{PUBLIC[0]},{PUBLIC[0]}", "twice"),
        (APPROVAL_THRESHOLD, "0", "'0', not a whole number from 1"),
        (APPROVAL_THRESHOLD, "-1", "not a whole number"),
        (APPROVAL_THRESHOLD, "1.0", "not a whole number"),
        (APPROVAL_THRESHOLD, "", "not a whole number"),
        (APPROVAL_THRESHOLD, "\N{ARABIC-INDIC DIGIT ONE}", "not a whole number"),
        (APPROVAL_THRESHOLD, "4", "above the number of authorized keys, 3"),
        (TRANSACTION_FAMILIES, "{}", "not an array"),
        (TRANSACTION_FAMILIES, '[{"family": "x"}]', "version"),
    ],
)
def test_a_value_that_would_do_harm_is_refused(key: str, value: str, said: str) -> None:
    ledger = a_ledger(voters=3, threshold=1)
    before = dict(ledger.state)
    assert said in propose(ledger, ALICE, key, value).message
    assert ledger.state == before


def test_good_families_are_accepted() -> None:
    ledger = a_ledger(voters=1, threshold=1)
    assert propose(ledger, ALICE, TRANSACTION_FAMILIES, '[{"family": "intkey", "version": "1.0"}]')


def test_keys_that_share_an_address_keep_their_entries() -> None:
    ledger = a_ledger(voters=1, threshold=1)
    assert setting_address("a") == setting_address("a.")
    assert propose(ledger, ALICE, "a", "1")
    assert propose(ledger, ALICE, "a.", "2")
    assert propose(ledger, ALICE, "a", "3")
    assert (stored(ledger, "a"), stored(ledger, "a.")) == ("3", "2")


def test_proposal_ids() -> None:
    data = settings_pb2.SettingProposal(setting="a.b", value="1", nonce="n").SerializeToString()
    assert client.propose(ALICE, PUBLIC[0], "a.b", "1", "n").proposal_id == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    ("key", "leaf"),
    [
        (AUTHORIZED_KEYS, b"\xff"),
        (AUTHORIZED_KEYS, encode_setting({AUTHORIZED_KEYS: " "})),
        (APPROVAL_THRESHOLD, b"\xff"),
        (APPROVAL_THRESHOLD, encode_setting({APPROVAL_THRESHOLD: "many"})),
        (PROPOSALS, b"\xff"),
        (PROPOSALS, encode_setting({PROPOSALS: "no base64 \N{BULLET}"})),
        (PROPOSALS, encode_setting({PROPOSALS: base64.b64encode(b"\xff").decode()})),
        ("a.b", b"\xff"),
    ],
)
def test_damaged_state_is_told(key: str, leaf: bytes) -> None:
    ledger = a_ledger(voters=3, threshold=2)
    if key == "a.b":
        ledger = a_ledger(voters=3, threshold=1)
    ledger.state[setting_address(key)] = leaf
    assert "damaged" in propose(ledger, ALICE, "a.b", "1").message


def test_deleted_state_counts_as_unset() -> None:
    ledger = a_ledger(voters=3, threshold=2)
    del ledger.state[setting_address(APPROVAL_THRESHOLD)]
    assert propose(ledger, ALICE, "a.b", "1")
    assert stored(ledger, "a.b") == "1"
    ledger = a_ledger(voters=3, threshold=2)
    proposal = client.propose(ALICE, PUBLIC[0], "a.b", "1", "n")
    ledger.accepts(proposal.transaction)
    del ledger.state[setting_address(PROPOSALS)]
    assert not vote(ledger, BOB, proposal.proposal_id, "a.b")


ADDRESSES = [setting_address(key) for key in (PROPOSALS, AUTHORIZED_KEYS, APPROVAL_THRESHOLD, "a.b")]


@pytest.mark.parametrize(
    ("action", "data", "said"),
    [
        (0, b"", "the action is 0"),
        (9, b"", "the action is 9"),
        (1, b"\xff", "no SettingProposal"),
        (1, b"", "names no setting"),
        (2, b"\xff", "no SettingVote"),
        (2, b"", "the vote is 0"),
        (2, settings_pb2.SettingVote(proposal_id="x", vote=settings_pb2.SettingVote.ACCEPT).SerializeToString(), "'x'"),
    ],
)
def test_what_is_wrong_with_a_payload_is_said(action: int, data: bytes, said: str) -> None:
    ledger = a_ledger(voters=1, threshold=1)
    # Raw bytes, because the generated class does not accept unknown actions.
    payload = bytes([0x08, action, 0x12, len(data)]) + data
    assert said in do_raw(ledger, payload).message
    assert "payload_encoding" in do_raw(ledger, payload, "application/cbor").message


@given(st.binary(max_size=100), st.sampled_from([b"", b"\x08\x01\x12", b"\x08\x02\x12"]))
def test_any_bytes_get_a_verdict(data: bytes, head: bytes) -> None:
    ledger = a_ledger(voters=2, threshold=2)
    body = bytes([len(data)]) + data if head else data
    do_raw(ledger, head + body)


@given(st.binary(max_size=60), st.sampled_from(ADDRESSES))
def test_any_damage_gets_a_verdict(leaf: bytes, address: str) -> None:
    ledger = a_ledger(voters=2, threshold=2)
    ledger.state[address] = leaf
    propose(ledger, ALICE, "a.b", "1")
    vote(ledger, BOB, "00", "a.b")
