"""The encoding of open proposals, which are stored under ``sawtooth.settings.vote.proposals``. No rules."""

import base64
import binascii
import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from dovetail.ledger.errors import NotDecodable
from dovetail.ledger.settings import PROPOSALS
from protos import settings_pb2

PAYLOAD_ENCODING: Final = "application/protobuf"


class Proposal(NamedTuple):
    """A proposed change. ``nonce``: distinguishes two proposals of the same change."""

    setting: str
    value: str
    nonce: str


class Vote(NamedTuple):
    """The vote of one key."""

    public_key: str
    accept: bool


class Candidate(NamedTuple):
    """An open proposal, its id and the votes so far. The proposer's vote is the first.

    ``base``: the digest of the value that the proposal was made against; empty in candidates of the 1.x line.
    """

    proposal_id: str
    proposal: Proposal
    votes: tuple[Vote, ...]
    base: str = ""


def encode_proposal(proposal: Proposal) -> bytes:
    """A serialized SettingProposal."""
    return settings_pb2.SettingProposal(
        setting=proposal.setting, value=proposal.value, nonce=proposal.nonce
    ).SerializeToString()


def decode_proposal(data: bytes) -> Proposal:
    """The fields of a serialized SettingProposal. Raises NotDecodable."""
    try:
        message = settings_pb2.SettingProposal.FromString(data)
    except DecodeError:
        raise NotDecodable("the data of the payload is no SettingProposal") from None
    return Proposal(message.setting, message.value, message.nonce)


def proposal_id_of(data: bytes) -> str:
    """The id of a serialized SettingProposal: its SHA-256 as 64 hex characters (WIRE.md)."""
    return hashlib.sha256(data).hexdigest()


def encode_candidates(candidates: Iterable[Candidate]) -> str:
    """The value of the setting: base64 of SettingCandidates."""
    message = settings_pb2.SettingCandidates()
    for candidate in candidates:
        entry = message.candidates.add(
            proposal_id=candidate.proposal_id,
            proposal=settings_pb2.SettingProposal(**candidate.proposal._asdict()),
            base=candidate.base,
        )
        for vote in candidate.votes:
            answer = settings_pb2.SettingVote.ACCEPT if vote.accept else settings_pb2.SettingVote.REJECT
            entry.votes.add(public_key=vote.public_key, vote=answer)
    return base64.b64encode(message.SerializeToString()).decode()


def decode_candidates(value: str) -> tuple[Candidate, ...]:
    """The candidates in a value of the setting, oldest first. An empty value has none. Raises NotDecodable."""
    try:
        message = settings_pb2.SettingCandidates.FromString(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        raise NotDecodable(f"the value of {PROPOSALS} is no base64 of SettingCandidates") from None
    return tuple(
        Candidate(
            entry.proposal_id,
            Proposal(entry.proposal.setting, entry.proposal.value, entry.proposal.nonce),
            tuple(Vote(vote.public_key, vote.vote == settings_pb2.SettingVote.ACCEPT) for vote in entry.votes),
            entry.base,
        )
        for entry in message.candidates
    )
