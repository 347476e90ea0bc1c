"""The settings family for clients: signed proposals and votes, and the candidates in a leaf."""

from collections.abc import Sequence
from typing import NamedTuple

from dovetail.ledger.building import SignedTransaction, build_transaction
from dovetail.ledger.settings import (
    APPROVAL_THRESHOLD,
    AUTHORIZED_KEYS,
    FAMILY_NAME,
    FAMILY_VERSION,
    PROPOSALS,
    decode_setting,
    setting_address,
)
from dovetail.ledger.signing import Signer
from families.settings.candidates import (
    PAYLOAD_ENCODING,
    Candidate,
    Proposal,
    decode_candidates,
    encode_proposal,
    proposal_id_of,
)
from protos import settings_pb2


class SignedProposal(NamedTuple):
    """A proposal's transaction, and the id for votes."""

    proposal_id: str
    transaction: SignedTransaction


def propose(
    signer: Signer, batcher_pubkey: str, setting: str, value: str, nonce: str, *, base: str = ""
) -> SignedProposal:
    """Propose ``value`` for ``setting``. The signer's vote counts as accepting.

    ``base``: the ``value_digest`` of the value that the proposal replaces; the proposal is INVALID if the setting has
    another value when the proposal enters a block. Empty: whatever the value is then.
    """
    data = encode_proposal(Proposal(setting, value, nonce))
    payload = settings_pb2.SettingsPayload(action=settings_pb2.SettingsPayload.PROPOSE, data=data, base=base)
    return SignedProposal(proposal_id_of(data), _transaction(signer, batcher_pubkey, setting, payload, nonce))


def propose_authorized_keys(
    signer: Signer, batcher_pubkey: str, public_keys: Sequence[str], nonce: str
) -> SignedProposal:
    """Propose the keys that may change settings. At genesis this transaction comes first and takes effect at once."""
    return propose(signer, batcher_pubkey, AUTHORIZED_KEYS, ",".join(public_keys), nonce)


def vote(
    signer: Signer, batcher_pubkey: str, proposal_id: str, setting: str, *, accept: bool, nonce: str
) -> SignedTransaction:
    """Vote on a candidate. ``setting``: the setting that it would change."""
    answer = settings_pb2.SettingVote.ACCEPT if accept else settings_pb2.SettingVote.REJECT
    payload = settings_pb2.SettingsPayload(
        action=settings_pb2.SettingsPayload.VOTE,
        data=settings_pb2.SettingVote(proposal_id=proposal_id, vote=answer).SerializeToString(),
    )
    return _transaction(signer, batcher_pubkey, setting, payload, nonce)


def candidates_in(leaf: bytes | None) -> tuple[Candidate, ...]:
    """The open proposals, oldest first, in the leaf at the address of PROPOSALS. Raises NotDecodable."""
    return decode_candidates(decode_setting(leaf).get(PROPOSALS, ""))


def _transaction(
    signer: Signer, batcher_pubkey: str, setting: str, payload: settings_pb2.SettingsPayload, nonce: str
) -> SignedTransaction:
    changed = dict.fromkeys((setting_address(PROPOSALS), setting_address(setting)))
    read = dict.fromkeys((*changed, setting_address(AUTHORIZED_KEYS), setting_address(APPROVAL_THRESHOLD)))
    return build_transaction(
        signer,
        batcher_pubkey=batcher_pubkey,
        family_name=FAMILY_NAME,
        family_version=FAMILY_VERSION,
        inputs=read,
        outputs=changed,
        payload=payload.SerializeToString(),
        payload_encoding=PAYLOAD_ENCODING,
        nonce=nonce,
    )
