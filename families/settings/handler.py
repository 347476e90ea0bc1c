"""The rules of sawtooth_settings 1.0: which keys may change a setting, and with how many votes (WIRE.md, Families).

The handler reads and writes only the leaves of the setting, the authorized keys, the threshold and the proposals,
because 1.x clients declare only these.
"""

from functools import partial
from typing import ClassVar, Final

from google.protobuf.message import DecodeError

from dovetail.ledger.electorate import Electorate, change_refusal, electorate_of
from dovetail.ledger.errors import NotDecodable
from dovetail.ledger.settings import (
    APPROVAL_THRESHOLD,
    AUTHORIZED_KEYS,
    FAMILY_NAME,
    FAMILY_VERSION,
    NAMESPACE,
    PROPOSALS,
    decode_setting,
    encode_setting,
    setting_address,
    value_digest,
)
from families.settings.candidates import (
    PAYLOAD_ENCODING,
    Candidate,
    Vote,
    decode_candidates,
    decode_proposal,
    encode_candidates,
    proposal_id_of,
)
from processor_sdk import Context, InvalidTransaction, ProtobufCodec, Transaction, TransactionHandler
from protos import settings_pb2

PROPOSALS_BYTES_MAX: Final = 2 * 1024 * 1024
"""The most bytes that open proposals may take in state once every key has voted; each key may fill an equal share.

Otherwise one key could fill the leaf, in which no vote would find room then.
"""


class SettingsHandler(TransactionHandler[settings_pb2.SettingsPayload]):
    """A proposal takes effect when a threshold of authorized keys has accepted it; at threshold 1, at once."""

    family_name = FAMILY_NAME
    family_version = FAMILY_VERSION
    namespaces = (NAMESPACE,)
    encodings: ClassVar = {PAYLOAD_ENCODING: ProtobufCodec(settings_pb2.SettingsPayload)}

    def apply(self, transaction: Transaction[settings_pb2.SettingsPayload], context: Context) -> None:
        signer = transaction.header.signer_pubkey
        electorate = _electorate(context)
        if electorate.keys and signer not in electorate.keys:
            raise InvalidTransaction(f"{signer} is not authorized to change settings")
        payload = transaction.payload
        if payload.action == settings_pb2.SettingsPayload.PROPOSE:
            _propose(context, electorate, signer, payload)
        elif payload.action == settings_pb2.SettingsPayload.VOTE:
            _vote(context, electorate, signer, payload.data)
        else:
            raise InvalidTransaction(f"the action is {payload.action}, neither PROPOSE (1) nor VOTE (2)")


def _propose(context: Context, electorate: Electorate, signer: str, payload: settings_pb2.SettingsPayload) -> None:
    try:
        proposal = decode_proposal(payload.data)
    except NotDecodable as error:
        raise InvalidTransaction(str(error)) from None
    read = partial(_stored, context)
    refusal = change_refusal(proposal.setting, proposal.value, electorate, payload.base, read)
    if refusal is not None:
        raise InvalidTransaction(refusal)
    if electorate.threshold == 1:
        _change(context, proposal.setting, proposal.value)
        return
    candidates = _candidates(context)
    proposal_id = proposal_id_of(payload.data)
    if any(candidate.proposal_id == proposal_id for candidate in candidates):
        raise InvalidTransaction(f"proposal {proposal_id} for {proposal.setting!r} is being voted on already")
    candidate = Candidate(proposal_id, proposal, (Vote(signer, True),), value_digest(read(proposal.setting)))
    _check_room(electorate, [known for known in candidates if known.votes[:1] == candidate.votes], candidate)
    _change(context, PROPOSALS, encode_candidates((*candidates, candidate)))


def _vote(context: Context, electorate: Electorate, signer: str, data: bytes) -> None:
    try:
        message = settings_pb2.SettingVote.FromString(data)
    except DecodeError:
        raise InvalidTransaction("the data of the payload is no SettingVote") from None
    if message.vote not in (settings_pb2.SettingVote.ACCEPT, settings_pb2.SettingVote.REJECT):
        raise InvalidTransaction(f"the vote is {message.vote}, neither ACCEPT (1) nor REJECT (2)")
    candidates = _candidates(context)
    position = next((n for n, known in enumerate(candidates) if known.proposal_id == message.proposal_id), None)
    if position is None:
        raise InvalidTransaction(f"there is no proposal {message.proposal_id[:140]!r} to vote on")
    candidate = candidates[position]
    if any(vote.public_key == signer for vote in candidate.votes):
        raise InvalidTransaction(f"{signer} has voted on proposal {candidate.proposal_id} already")
    votes = (*candidate.votes, Vote(signer, message.vote == settings_pb2.SettingVote.ACCEPT))
    others = (*candidates[:position], *candidates[position + 1 :])

    # Only votes of currently authorized keys count.
    answers = {vote.public_key: vote.accept for vote in votes if vote.public_key in electorate.keys}
    accepted = sum(answers.values())
    undecided = len(electorate.keys) - len(answers)
    if accepted >= electorate.threshold:
        # The electorate and the setting may have changed since the proposal. With a lower threshold, a vote against a
        # proposal finds enough votes for it.
        setting, value, _ = candidate.proposal
        refusal = change_refusal(setting, value, electorate, candidate.base, partial(_stored, context))
        if refusal is None:
            _change(context, setting, value)
        elif message.vote == settings_pb2.SettingVote.ACCEPT:
            raise InvalidTransaction(f"proposal {candidate.proposal_id} cannot take effect: {refusal}")
        left: tuple[Candidate, ...] = others
    elif accepted + undecided < electorate.threshold:
        left = others
    else:
        left = (*candidates[:position], candidate._replace(votes=votes), *candidates[position + 1 :])
    _change(context, PROPOSALS, encode_candidates(left))


def _check_room(electorate: Electorate, own: list[Candidate], new: Candidate) -> None:
    """Check that the open proposals of one key leave room for the other keys' proposals, and for all votes."""
    votes = tuple(Vote(key, True) for key in electorate.keys)
    taken = len(encode_candidates(candidate._replace(votes=votes) for candidate in (*own, new)))
    share = PROPOSALS_BYTES_MAX // len(electorate.keys)
    if taken > share:
        raise InvalidTransaction(
            f"with this proposal the open ones of {new.votes[0].public_key} would take {taken} bytes, and may take"
            f" {share}; {len(own)} are open: have them voted on first"
        )


def _electorate(context: Context) -> Electorate:
    try:
        return electorate_of(_stored(context, AUTHORIZED_KEYS), _stored(context, APPROVAL_THRESHOLD))
    except NotDecodable as error:
        raise InvalidTransaction(f"state is damaged: {error}") from None


def _candidates(context: Context) -> tuple[Candidate, ...]:
    try:
        return decode_candidates(_stored(context, PROPOSALS) or "")
    except NotDecodable as error:
        raise InvalidTransaction(f"state is damaged: {error}") from None


def _entries(context: Context, key: str) -> dict[str, str]:
    address = setting_address(key)
    try:
        return decode_setting(context.get(address))
    except NotDecodable as error:
        raise InvalidTransaction(f"state at {address}, of {key!r}, is damaged: {error}") from None


def _stored(context: Context, key: str) -> str | None:
    return _entries(context, key).get(key)


def _change(context: Context, key: str, value: str) -> None:
    context.set(setting_address(key), encode_setting({**_entries(context, key), key: value}))
    context.add_event("settings/update", (("updated", key),))
