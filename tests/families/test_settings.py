"""sawtooth_settings 1.0: authorization, votes, and damaged state."""

import base64
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.ledger.electorate import AUTHORIZED_KEYS_MAX, electorate_of
from dovetail.ledger.permitted import decode_permitted_families, locks
from dovetail.ledger.settings import (
    APPROVAL_THRESHOLD,
    AUTHORIZED_KEYS,
    PROPOSALS,
    TRANSACTION_FAMILIES,
    decode_setting,
    encode_setting,
    setting_address,
    value_digest,
)
from dovetail.ledger.signing import Signer
from dovetail.ledger.transaction import decode_transaction
from families.settings import client
from families.settings.candidates import Candidate, Proposal, Vote, decode_candidates, encode_candidates
from families.settings.handler import PROPOSALS_BYTES_MAX, SettingsHandler
from processor_sdk.testing import Event, Ledger, Result
from protos import settings_pb2

KEYS = [Signer(f"{number:064x}") for number in range(1, 6)]
ALICE, BOB, CAROL, DAVE, STRANGER = KEYS
PUBLIC = [signer.public_key for signer in KEYS]
NO_POINT = "02" + "00" * 32
MANY = [Signer(f"{number:064x}").public_key for number in range(1, AUTHORIZED_KEYS_MAX + 2)]


def permitting(*entries: dict[str, object], **members: object) -> str:
    """A value that permits sawtooth_settings 1.0 with ``members``; or an entry for each of ``entries``."""
    default = {"family": "sawtooth_settings", "version": "1.0"}
    return json.dumps([{**default, **entry} for entry in entries or (members,)])


def propose(ledger: Ledger, signer: Signer, key: str, value: str, nonce: str = "n", base: str = "") -> Result:
    return ledger.apply(client.propose(signer, signer.public_key, key, value, nonce, base=base).transaction)


def open_proposal(ledger: Ledger, signer: Signer, key: str, value: str, base: str = "") -> str:
    """Propose as ``signer`` at a ledger with a threshold above 1. Returns the proposal's id."""
    nonce = str(len(ledger.receipts))
    proposal = client.propose(signer, signer.public_key, key, value, nonce, base=base)
    ledger.accepts(proposal.transaction)
    return proposal.proposal_id


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
    assert candidates(ledger) == (
        Candidate(proposal.proposal_id, Proposal("a.b", "1", "n"), (Vote(PUBLIC[0], True),), "unset"),
    )
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
        (AUTHORIZED_KEYS, "alice", "'alice' is not a compressed public key"),
        (AUTHORIZED_KEYS, PUBLIC[0].upper(), "lower-case"),
        (AUTHORIZED_KEYS, f"{PUBLIC[0]},{NO_POINT}", f"cannot sign: {NO_POINT} is no point of the curve"),
        (AUTHORIZED_KEYS, f"{PUBLIC[0]},{PUBLIC[0]}", "twice"),
        (AUTHORIZED_KEYS, ",".join(MANY), "holds 101 keys, at most 100 are allowed"),
        (APPROVAL_THRESHOLD, "0", "'0', not a whole number from 1"),
        (APPROVAL_THRESHOLD, "-1", "not a whole number"),
        (APPROVAL_THRESHOLD, "1.0", "not a whole number"),
        (APPROVAL_THRESHOLD, "", "not a whole number"),
        (APPROVAL_THRESHOLD, "\N{ARABIC-INDIC DIGIT ONE}", "not a whole number"),
        (APPROVAL_THRESHOLD, "4", "above the number of authorized keys, 3"),
        (TRANSACTION_FAMILIES, "{}", "not an array"),
        (TRANSACTION_FAMILIES, '[{"family": "x"}]', "version"),
        (TRANSACTION_FAMILIES, "[]", "could not enter block 0: no setting, this one included, could be changed then"),
        (TRANSACTION_FAMILIES, '[{"family": "intkey", "version": "1.0"}]', "could not enter block 0"),
        (TRANSACTION_FAMILIES, permitting(version="2.0"), "could not enter block 0"),
        (TRANSACTION_FAMILIES, permitting(until_block=99), "could not enter block 100"),
        (TRANSACTION_FAMILIES, permitting(until_block=2**63 - 1), f"could not enter block {2**63}"),
        (TRANSACTION_FAMILIES, permitting(from_block=1), "could not enter block 0"),
        (TRANSACTION_FAMILIES, permitting(migrate=["1cf126"]), "could not enter a block before its migration"),
        (TRANSACTION_FAMILIES, permitting({"until_block": 8}, {"from_block": 10}), "could not enter block 9"),
        (TRANSACTION_FAMILIES, permitting({}, {"migrate": ["1cf126"]}), "before its migration"),
        (
            TRANSACTION_FAMILIES,
            permitting({}, {"family": "intkey", "migrate": ["1cf126", "000000ab"]}),
            "intkey 1.0 would migrate 000000ab, where the ledger's own settings are",
        ),
    ],
)
def test_a_value_that_would_do_harm_is_refused(key: str, value: str, said: str) -> None:
    ledger = a_ledger(voters=3, threshold=1)
    before = dict(ledger.state)
    assert said in propose(ledger, ALICE, key, value).message
    assert ledger.state == before


@pytest.mark.parametrize(
    "value",
    [
        permitting({}, {"family": "intkey", "from_block": 7, "migrate": ["1cf126"]}),
        permitting({"until_block": 8}, {"from_block": 9}),
        permitting({"from_block": 5}, {"until_block": 6}),
    ],
)
def test_good_families_are_accepted(value: str) -> None:
    ledger = a_ledger(voters=1, threshold=1)
    assert propose(ledger, ALICE, TRANSACTION_FAMILIES, value)


HARMFUL = [
    (TRANSACTION_FAMILIES, "[]"),
    (TRANSACTION_FAMILIES, '[{"family": "sawtooth_settings", "version": "1.0", "until_block": 9}]'),
    (AUTHORIZED_KEYS, f"{PUBLIC[0]},{NO_POINT}"),
    (APPROVAL_THRESHOLD, "5"),
]


@pytest.mark.parametrize(("key", "value"), HARMFUL)
def test_a_vote_puts_no_value_in_force_that_would_do_harm(key: str, value: str) -> None:
    """An earlier build may have accepted the proposal."""
    ledger = a_ledger(voters=3, threshold=2)
    harmful = Candidate("ab" * 32, Proposal(key, value, "n"), (Vote(PUBLIC[0], True),))
    ledger.state[setting_address(PROPOSALS)] = encode_setting({PROPOSALS: encode_candidates([harmful])})
    before = stored(ledger, key)
    assert f"proposal {'ab' * 32} cannot take effect: " in vote(ledger, BOB, "ab" * 32, key).message
    assert (stored(ledger, key), len(candidates(ledger))) == (before, 1)
    assert vote(ledger, BOB, "ab" * 32, key, accept=False)
    assert vote(ledger, CAROL, "ab" * 32, key, accept=False)
    assert candidates(ledger) == ()


STEPS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from(
            [
                *HARMFUL,
                (TRANSACTION_FAMILIES, permitting({}, {"family": "intkey"})),
                *(
                    (AUTHORIZED_KEYS, ",".join(PUBLIC[first : first + count]))
                    for first in (0, 1)
                    for count in (1, 2, 4)
                ),
                *((APPROVAL_THRESHOLD, str(threshold)) for threshold in (1, 2, 4)),
            ]
        ),
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.booleans()), max_size=4),
    ),
    max_size=8,
)


@given(STEPS)
def test_no_order_of_changes_and_votes_locks_the_ledger(
    steps: list[tuple[int, tuple[str, str], list[tuple[int, int, bool]]]],
) -> None:
    """After all of them, the authorized keys together can change every setting."""
    ledger = Ledger(SettingsHandler(), twice=False)
    ledger.accepts(client.propose_authorized_keys(ALICE, PUBLIC[0], PUBLIC[:3], "genesis").transaction)
    for number, (proposer, (key, value), votes) in enumerate(steps):
        propose(ledger, KEYS[proposer], key, value, str(number))
        for voter, place, accept in votes:
            if place < len(found := candidates(ledger)):
                vote(ledger, KEYS[voter], found[place].proposal_id, found[place].proposal.setting, accept=accept)
    electorate = electorate_of(stored(ledger, AUTHORIZED_KEYS), stored(ledger, APPROVAL_THRESHOLD))
    assert 1 <= electorate.threshold <= len(electorate.keys)
    first, *others = (signer for signer in KEYS if signer.public_key in electorate.keys)
    proposal = client.propose(first, first.public_key, TRANSACTION_FAMILIES, permitting({}, {"family": "last"}), "last")
    ledger.accepts(proposal.transaction)
    for signer in others[: electorate.threshold - 1]:
        assert vote(ledger, signer, proposal.proposal_id, TRANSACTION_FAMILIES)
    last = stored(ledger, TRANSACTION_FAMILIES)
    assert last is not None
    assert "last" in last
    assert locks(decode_permitted_families(last)) is None


@pytest.mark.parametrize(
    ("keys", "threshold", "needed"),
    [
        (f"{PUBLIC[0]},{PUBLIC[1]}", "3", 2),
        (f"{PUBLIC[0]},{PUBLIC[1]},{NO_POINT},alice", "4", 2),
        (f"{PUBLIC[0]},{PUBLIC[0]}", "2", 1),
    ],
)
def test_a_threshold_that_nobody_can_meet_is_met_by_all_who_can_sign(keys: str, threshold: str, needed: int) -> None:
    """The values may come from another handler. The keys that can sign may still correct them, all together."""
    ledger = Ledger(SettingsHandler())
    ledger.state[setting_address(AUTHORIZED_KEYS)] = encode_setting({AUTHORIZED_KEYS: keys})
    ledger.state[setting_address(APPROVAL_THRESHOLD)] = encode_setting({APPROVAL_THRESHOLD: threshold})
    proposal = client.propose(ALICE, PUBLIC[0], APPROVAL_THRESHOLD, "1", "n")
    ledger.accepts(proposal.transaction)
    if needed == 2:
        assert stored(ledger, APPROVAL_THRESHOLD) == threshold
        assert vote(ledger, BOB, proposal.proposal_id, APPROVAL_THRESHOLD)
    assert stored(ledger, APPROVAL_THRESHOLD) == "1"


def test_the_open_proposals_of_one_key_leave_room_for_all_others() -> None:
    """Otherwise one key of many could fill the leaf, so that no vote finds room in it."""
    ledger = a_ledger(voters=4, threshold=3)
    share = PROPOSALS_BYTES_MAX // 4
    value = "x" * (share // 4)
    for number in range(2):
        assert propose(ledger, ALICE, "a.b", value, str(number))
    refused = propose(ledger, ALICE, "a.b", value, "more")
    assert f"{PUBLIC[0]} would take" in refused.message
    assert f"may take {share}; 2 are open" in refused.message
    proposal_id = open_proposal(ledger, BOB, "a.b", value)
    assert vote(ledger, CAROL, proposal_id, "a.b")
    assert vote(ledger, DAVE, proposal_id, "a.b")
    assert stored(ledger, "a.b") == value


PLAN_1, PLAN_2 = (permitting({}, {"family": name}) for name in ("plan 1", "plan 2"))


@pytest.mark.parametrize("base", ["", "unset"])
def test_of_two_plans_in_parallel_the_second_does_not_remove_the_first(base: str) -> None:
    """A client of the 1.x line names no base. Its proposal is made against the value that it finds in state."""
    ledger = a_ledger(voters=3, threshold=2)
    first = open_proposal(ledger, ALICE, TRANSACTION_FAMILIES, PLAN_1, base)
    second = open_proposal(ledger, BOB, TRANSACTION_FAMILIES, PLAN_2, base)
    elsewhere = open_proposal(ledger, BOB, "a.b", "1")
    assert vote(ledger, CAROL, first, TRANSACTION_FAMILIES)
    refused = vote(ledger, ALICE, second, TRANSACTION_FAMILIES).message
    assert f"proposal {second} cannot take effect" in refused
    assert f"made against its value unset, and the value is {value_digest(PLAN_1)[:16]} now" in refused
    assert "plan 1" in refused
    assert stored(ledger, TRANSACTION_FAMILIES) == PLAN_1
    assert vote(ledger, ALICE, elsewhere, "a.b")
    # The second plan can still be voted against, and be made anew.
    assert vote(ledger, ALICE, second, TRANSACTION_FAMILIES, accept=False)
    assert vote(ledger, CAROL, second, TRANSACTION_FAMILIES, accept=False)
    assert candidates(ledger) == ()
    both = permitting({}, {"family": "plan 1"}, {"family": "plan 2"})
    again = open_proposal(ledger, BOB, TRANSACTION_FAMILIES, both, value_digest(PLAN_1))
    assert vote(ledger, ALICE, again, TRANSACTION_FAMILIES)
    assert stored(ledger, TRANSACTION_FAMILIES) == both


@pytest.mark.parametrize("threshold", [1, 2])
def test_a_proposal_that_comes_after_another_change_is_refused(threshold: int) -> None:
    ledger = a_ledger(voters=3, threshold=1)
    assert propose(ledger, ALICE, "a.b", "1", base="unset")
    if threshold > 1:
        assert propose(ledger, ALICE, APPROVAL_THRESHOLD, str(threshold))
    refused = propose(ledger, BOB, "a.b", "2", base="unset").message
    assert f"made against its value unset, and the value is {value_digest('1')[:16]} now, '1'" in refused
    assert (stored(ledger, "a.b"), candidates(ledger)) == ("1", ())
    assert propose(ledger, BOB, "a.b", "2", base=value_digest("1"))


def test_a_vote_against_an_outdated_proposal_removes_it_even_if_votes_for_it_suffice() -> None:
    """When the threshold falls, a proposal may have enough votes although the next vote is against it."""
    ledger = a_ledger(voters=4, threshold=3)
    outdated = open_proposal(ledger, ALICE, "a.b", "1")
    assert vote(ledger, BOB, outdated, "a.b")
    lower = open_proposal(ledger, ALICE, APPROVAL_THRESHOLD, "1")
    assert vote(ledger, BOB, lower, APPROVAL_THRESHOLD)
    assert vote(ledger, CAROL, lower, APPROVAL_THRESHOLD)
    assert propose(ledger, CAROL, "a.b", "2")
    assert "cannot take effect" in vote(ledger, CAROL, outdated, "a.b").message
    assert vote(ledger, CAROL, outdated, "a.b", accept=False)
    assert (stored(ledger, "a.b"), candidates(ledger)) == ("2", ())


def test_a_candidate_of_the_1x_line_has_no_base_and_is_read_as_there() -> None:
    """Its bytes are the same, and so is its effect."""
    ledger = a_ledger(voters=2, threshold=2)
    entry = settings_pb2.SettingCandidate(
        proposal_id="ab" * 32, proposal=settings_pb2.SettingProposal(setting="a.b", value="1", nonce="n")
    )
    entry.votes.add(public_key=PUBLIC[0], vote=settings_pb2.SettingVote.ACCEPT)
    value = base64.b64encode(settings_pb2.SettingCandidates(candidates=[entry]).SerializeToString()).decode()
    assert encode_candidates(decode_candidates(value)) == value
    ledger.state[setting_address(PROPOSALS)] = encode_setting({PROPOSALS: value})
    assert vote(ledger, BOB, "ab" * 32, "a.b")
    assert stored(ledger, "a.b") == "1"


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
