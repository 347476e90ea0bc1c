"""Reads the setting of the permitted families, and the open proposals, from a node's state."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dovetail.cli.submit import url_argument
from dovetail.client import DovetailClient, is_not_found
from dovetail.common.errors import Refused
from dovetail.common.output import program
from dovetail.ledger.electorate import change_refusal, electorate_of
from dovetail.ledger.errors import NotDecodable
from dovetail.ledger.permitted import BLOCK_NUM_MAX, Permission, permitted_by
from dovetail.ledger.settings import (
    APPROVAL_THRESHOLD,
    AUTHORIZED_KEYS,
    PROPOSALS,
    TRANSACTION_FAMILIES,
    decode_setting,
    setting_address,
)
from families.settings.candidates import Candidate
from families.settings.client import candidates_in


class Setting(NamedTuple):
    """The setting of the permitted families as of one block.

    ``value`` and ``entries``: None if the setting is absent. ``proposals``: the open proposals for this setting.
    ``keys``: the authorized keys. ``threshold``: how many of these keys must accept a proposal.
    """

    head_num: int
    value: str | None
    entries: tuple[Permission, ...] | None
    proposals: tuple[Candidate, ...]
    keys: tuple[str, ...]
    threshold: int

    def differs_only_in_head(self, other: "Setting") -> bool:
        """Whether all but the head is equal."""
        return self[1:] == other[1:]


def read_setting(client: DovetailClient) -> Setting:
    """The setting as of the newest block. Raises Refused, also for a value that cannot be decoded."""
    ready = client.data("/readyz")
    head_num, head_id = (ready.get("head_num"), ready.get("head_id")) if isinstance(ready, dict) else (None, None)
    if type(head_num) is not int or not 0 <= head_num <= BLOCK_NUM_MAX or not isinstance(head_id, str):
        raise Refused(f"{client.url}/readyz names no head")
    value = _value(client, TRANSACTION_FAMILIES, head_id)
    try:
        entries = None if value is None else permitted_by(value)
    except NotDecodable as error:
        raise Refused(
            f"the setting cannot be understood, only the settings family is permitted: {error}; mend it with"
            f" `{program()} settings propose {TRANSACTION_FAMILIES} VALUE{url_argument(client.url)}`"
        ) from None
    proposals = tuple(
        candidate for candidate in open_proposals(client, head_id) if candidate.proposal.setting == TRANSACTION_FAMILIES
    )
    try:
        keys, threshold = electorate_of(
            _value(client, AUTHORIZED_KEYS, head_id), _value(client, APPROVAL_THRESHOLD, head_id)
        )
    except NotDecodable as error:
        raise Refused(str(error)) from None
    return Setting(head_num, value, entries, proposals, keys, threshold)


def read_values(client: DovetailClient, setting: str) -> dict[str, str]:
    """The values that decide about a change of ``setting``, in the newest state. Raises Refused."""
    named = (setting, AUTHORIZED_KEYS, APPROVAL_THRESHOLD)
    found = {key: _value(client, key) for key in dict.fromkeys(named)}
    return {key: value for key, value in found.items() if value is not None}


def refusal_of(setting: str, value: str, base: str, values: Mapping[str, str]) -> str | None:
    """Why the settings family would not let a change take effect; None if it would. ``values``: see ``read_values``."""
    try:
        electorate = electorate_of(values.get(AUTHORIZED_KEYS), values.get(APPROVAL_THRESHOLD))
    except NotDecodable as error:
        return str(error)
    return change_refusal(setting, value, electorate, base, values.get)


def open_proposals(client: DovetailClient, head: str | None = None) -> tuple[Candidate, ...]:
    """The open proposals for any setting, oldest first. Raises Refused."""
    try:
        leaf = client.leaf(setting_address(PROPOSALS), head=head)
    except Refused as error:
        if not is_not_found(error):
            raise
        return ()
    try:
        return candidates_in(leaf)
    except NotDecodable as error:
        raise Refused(f"the open proposals are damaged: {error}") from None


def _value(client: DovetailClient, key: str, head: str | None = None) -> str | None:
    try:
        return decode_setting(client.leaf(setting_address(key), head=head)).get(key)
    except NotDecodable as error:
        raise Refused(f"the setting {key} is damaged: {error}") from None
    except Refused as error:
        if not is_not_found(error):
            raise
        return None


def window_text(entries: Sequence[Permission]) -> str:
    """The blocks in which these entries of one version permit it, and the prefixes that it migrates first."""
    return "; ".join(map(_window, entries)) or "not permitted"


def _window(entry: Permission) -> str:
    parts = []
    if entry.from_block:
        parts.append(f"from block {entry.from_block}")
    if entry.until_block is not None:
        parts.append(f"until block {entry.until_block}")
    return (" ".join(parts) or "permitted") + (f", migrates {', '.join(entry.migrate)}" if entry.migrate else "")
