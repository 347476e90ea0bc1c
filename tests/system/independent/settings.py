"""Transactions of sawtooth_settings as a 1.x client makes them: the fields and addresses that ``sawset`` declares.

HTTP and sockets do not belong here. This module must not import the project's packages.
"""

import hashlib
import secrets
from typing import Final, NamedTuple

from tests.system.independent import client, secp256k1
from tests.system.independent import protobuf_wire as wire
from tests.system.independent.client import Batch

FAMILIES: Final = "sawtooth.validator.transaction_families"
KEYS: Final = "sawtooth.settings.vote.authorized_keys"
THRESHOLD: Final = "sawtooth.settings.vote.approval_threshold"
_PROPOSALS: Final = "sawtooth.settings.vote.proposals"
_PROPOSE, _VOTE = 1, 2
_ACCEPT = 1


class Proposal(NamedTuple):
    """A proposal's batch, and the id for votes."""

    id: str
    setting: str
    batch: Batch


def propose(private_key: str, setting: str, value: str) -> Proposal:
    """A proposal, which its key thereby accepts."""
    data = wire.encode([(1, setting), (2, value), (3, secrets.token_hex(8))])
    return Proposal(hashlib.sha256(data).hexdigest(), setting, _batch(private_key, setting, _PROPOSE, data))


def accept(private_key: str, proposal_id: str, setting: str) -> Batch:
    """A vote for a proposal. ``setting``: the one that it would change."""
    return _batch(private_key, setting, _VOTE, wire.encode([(1, proposal_id), (2, _ACCEPT)]))


def setting_address(key: str) -> str:
    """The address of a setting."""
    parts = (key.split(".", 3) + [""] * 3)[:4]
    return "000000" + "".join(hashlib.sha256(part.encode()).hexdigest()[:16] for part in parts)


def _batch(private_key: str, setting: str, action: int, data: bytes) -> Batch:
    outputs = [setting_address(_PROPOSALS), setting_address(setting)]
    inputs = [*outputs, setting_address(KEYS), setting_address(THRESHOLD)]
    transaction = client.make_transaction(
        private_key,
        secp256k1.public_key(private_key),
        "sawtooth_settings",
        "1.0",
        dict.fromkeys(inputs),
        dict.fromkeys(outputs),
        wire.encode([(1, action), (2, data)]),
    )
    return client.make_batch(private_key, [transaction])
