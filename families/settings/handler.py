"""The rules of sawtooth_settings 1.0: which keys may change a setting, and with how many votes (WIRE.md, Families).

The handler reads and writes only the leaves of the setting, the authorized keys, the threshold and the proposals,
because 1.x clients declare only these.
"""

import re
from typing import ClassVar, NamedTuple

from google.protobuf.message import DecodeError

from dovetail.ledger.errors import NotDecodable
from dovetail.ledger.ids import is_public_key
from dovetail.ledger.permitted import decode_permitted_families
from dovetail.ledger.settings import (
    APPROVAL_THRESHOLD,
    AUTHORIZED_KEYS,
    FAMILY_NAME,
    FAMILY_VERSION,
    NAMESPACE,
    PROPOSALS,
    TRANSACTION_FAMILIES,
    decode_setting,
    encode_setting,
    setting_address,
    split_keys,
)
from families.settings.candidates import (
    PAYLOAD_ENCODING,
    Candidate,
    Proposal,
    Vote,
    decode_candidates,
    decode_proposal,
    encode_candidates,
    proposal_id_of,
)
from processor_sdk import Context, InvalidTransaction, ProtobufCodec, Transaction, TransactionHandler
from protos import settings_pb2

is_threshold = re.compile(r"[1-9][0-9]{0,8}").fullmatch
"""Whether a text is a valid number of votes for APPROVAL_THRESHOLD."""


class _Electorate(NamedTuple):
    """The keys that vote; empty before the first keys are set."""

    keys: tuple[str, ...]
    threshold: int


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
            _propose(context, electorate, signer, payload.data)
        elif payload.action == settings_pb2.SettingsPayload.VOTE:
            _vote(context, electorate, signer, payload.data)
        else:
            raise InvalidTransaction(f"the action is {payload.action}, neither PROPOSE (1) nor VOTE (2)")


def _propose(context: Context, electorate: _Electorate, signer: str, data: bytes) -> None:
    try:
        proposal = decode_proposal(data)
    except NotDecodable as error:
        raise InvalidTransaction(str(error)) from None
    _check_proposal(electorate, proposal)
    if electorate.threshold == 1:
        _change(context, proposal.setting, proposal.value)
        return
    candidates = _candidates(context)
    proposal_id = proposal_id_of(data)
    if any(candidate.proposal_id == proposal_id for candidate in candidates):
        raise InvalidTransaction(f"proposal {proposal_id} for {proposal.setting!r} is being voted on already")
    candidate = Candidate(proposal_id, proposal, (Vote(signer, True),))
    _change(context, PROPOSALS, encode_candidates((*candidates, candidate)))


def _vote(context: Context, electorate: _Electorate, signer: str, data: bytes) -> None:
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
        # The electorate may have changed since the proposal.
        _check_proposal(electorate, candidate.proposal)
        _change(context, candidate.proposal.setting, candidate.proposal.value)
        left: tuple[Candidate, ...] = others
    elif accepted + undecided < electorate.threshold:
        left = others
    else:
        left = (*candidates[:position], candidate._replace(votes=votes), *candidates[position + 1 :])
    _change(context, PROPOSALS, encode_candidates(left))


def _check_proposal(electorate: _Electorate, proposal: Proposal) -> None:
    """Check that ``proposal`` may take effect under this electorate. Raises InvalidTransaction."""
    setting, value = proposal.setting, proposal.value
    if not setting:
        raise InvalidTransaction("the proposal names no setting")
    if not electorate.keys and setting != AUTHORIZED_KEYS:
        raise InvalidTransaction(f"{setting!r} cannot be set before {AUTHORIZED_KEYS} is")
    if setting == PROPOSALS:
        raise InvalidTransaction(f"{PROPOSALS} is changed by proposals and votes only")
    if setting == AUTHORIZED_KEYS:
        _check_keys(value, electorate.threshold)
    elif setting == APPROVAL_THRESHOLD:
        if not is_threshold(value):
            raise InvalidTransaction(f"{APPROVAL_THRESHOLD} is {value[:80]!r}, not a whole number from 1 on")
        if int(value) > len(electorate.keys):
            raise InvalidTransaction(
                f"{APPROVAL_THRESHOLD} is {value}, above the number of authorized keys, {len(electorate.keys)}"
            )
    elif setting == TRANSACTION_FAMILIES:
        try:
            decode_permitted_families(value)
        except NotDecodable as error:
            raise InvalidTransaction(str(error)) from None


def _check_keys(value: str, threshold: int) -> None:
    keys = split_keys(value)
    for key in keys:
        if not is_public_key(key):
            raise InvalidTransaction(
                f"{AUTHORIZED_KEYS} holds {key[:80]!r}, not a public key of 66 lower-case hex characters"
            )
    if len(set(keys)) != len(keys):
        raise InvalidTransaction(f"{AUTHORIZED_KEYS} names a key twice")
    if len(keys) < threshold:
        raise InvalidTransaction(f"{AUTHORIZED_KEYS} holds {len(keys)} keys, fewer than {max(threshold, 1)} votes need")


def _electorate(context: Context) -> _Electorate:
    keys = _stored(context, AUTHORIZED_KEYS)
    threshold = _stored(context, APPROVAL_THRESHOLD)
    if keys is not None and not split_keys(keys):
        # Treating the setting as unset would authorize every key.
        raise InvalidTransaction(f"state of {AUTHORIZED_KEYS} is damaged: it names no key")
    if threshold is not None and not is_threshold(threshold):
        raise InvalidTransaction(f"state of {APPROVAL_THRESHOLD} is damaged: {threshold[:80]!r}")
    return _Electorate(tuple(dict.fromkeys(split_keys(keys or ""))), int(threshold or 1))


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
