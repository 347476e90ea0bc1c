"""Who may change settings, and which values a setting may get: those that leave the settings changeable.

The rule has one home, for the settings family, the commands that propose, and those that warn voters.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from dovetail.ledger import migration
from dovetail.ledger.errors import InvalidKey, NotDecodable
from dovetail.ledger.permitted import decode_permitted_families, locks
from dovetail.ledger.settings import (
    APPROVAL_THRESHOLD,
    AUTHORIZED_KEYS,
    PROPOSALS,
    TRANSACTION_FAMILIES,
    split_keys,
    value_digest,
)
from dovetail.ledger.signing import check_public_key

AUTHORIZED_KEYS_MAX: Final = 100
"""The most keys that may change settings."""

_THRESHOLD_DIGITS_MAX: Final = 9
_CACHED_MAX: Final = 4
_SHOWN_CHARACTERS_MAX: Final = 80
_DIGEST_CHARACTERS_SHOWN: Final = 16


Read = Callable[[str], str | None]
"""Gives the value of a setting; None if it is not set."""


class Electorate(NamedTuple):
    """The keys that vote, and how many of them must accept; no keys before the first ones are set."""

    keys: tuple[str, ...]
    threshold: int


@lru_cache(maxsize=_CACHED_MAX)
def electorate_of(keys: str | None, threshold: str | None) -> Electorate:
    """The electorate by the stored values of AUTHORIZED_KEYS and APPROVAL_THRESHOLD. Raises NotDecodable.

    Keys that cannot sign do not vote, and a threshold above the number of those that can is that number: otherwise
    nobody could ever correct these values.
    """
    if threshold is not None and not _is_threshold(threshold):
        raise NotDecodable(f"the value of {APPROVAL_THRESHOLD} is no number of votes: {_shown(threshold)}")
    if keys is None:
        return Electorate((), 1)
    able = tuple(key for key in dict.fromkeys(split_keys(keys)) if _why_no_key(key) is None)
    if not able:
        # Treating the setting as unset would authorize every key.
        raise NotDecodable(f"the value of {AUTHORIZED_KEYS} names no key that can sign: {_shown(keys)}")
    return Electorate(able, min(int(threshold or 1), len(able)))


def change_refusal(setting: str, value: str, electorate: Electorate, base: str, read: Read) -> str | None:
    """Why a change of ``setting`` to ``value`` may not take effect; None if it may.

    ``base``: the ``value_digest`` of the value that the change was made against; empty if that is not known. ``read``
    gives a setting's value now; it is called for a change with a base. A change against another value would undo,
    unseen, what changed between the two.
    """
    refusal = value_refusal(setting, value, electorate)
    return refusal if refusal or not base else _base_refusal(setting, base, read(setting))


def value_refusal(setting: str, value: str, electorate: Electorate) -> str | None:
    """Why ``setting`` may not become ``value`` under this electorate; None if it may."""
    if not setting:
        return "the proposal names no setting"
    if not electorate.keys and setting != AUTHORIZED_KEYS:
        return f"{setting!r} cannot be set before {AUTHORIZED_KEYS} is"
    if setting == PROPOSALS:
        return f"{PROPOSALS} is changed by proposals and votes only"
    if setting == AUTHORIZED_KEYS:
        return _keys_refusal(split_keys(value), electorate.threshold)
    if setting == APPROVAL_THRESHOLD:
        return _threshold_refusal(value, len(electorate.keys))
    if setting == TRANSACTION_FAMILIES:
        try:
            return locks(decode_permitted_families(value))
        except NotDecodable as error:
            return str(error)
    return None


def _base_refusal(setting: str, base: str, now: str | None) -> str | None:
    digest = value_digest(now)
    if base == digest:
        return None
    shown = "" if now is None else f", {_shown(now)}"
    return (
        f"the change of {setting!r} was made against its value {_short(base)}, and the value is {_short(digest)}"
        f" now{shown}: it would undo what changed meanwhile; propose it anew"
    )


def _keys_refusal(keys: tuple[str, ...], threshold: int) -> str | None:
    for key in keys:
        why = _why_no_key(key)
        if why is not None:
            return f"{AUTHORIZED_KEYS} holds a key that cannot sign: {why}"
    if len(set(keys)) != len(keys):
        return f"{AUTHORIZED_KEYS} names a key twice"
    if len(keys) > AUTHORIZED_KEYS_MAX:
        return f"{AUTHORIZED_KEYS} holds {len(keys)} keys, at most {AUTHORIZED_KEYS_MAX} are allowed"
    if len(keys) < threshold:
        return f"{AUTHORIZED_KEYS} holds {len(keys)} keys, fewer than {threshold} votes need"
    return None


def _threshold_refusal(value: str, keys: int) -> str | None:
    if not _is_threshold(value):
        return f"{APPROVAL_THRESHOLD} is {_shown(value)}, not a whole number from 1 on"
    if int(value) > keys:
        return f"{APPROVAL_THRESHOLD} is {value}, above the number of authorized keys, {keys}"
    return None


def _why_no_key(key: str) -> str | None:
    if key == migration.PUBLIC_KEY:
        return f"{key} is the key of migrations, with which clients sign nothing"
    try:
        check_public_key(key)
    except InvalidKey as error:
        return str(error)
    return None


def _is_threshold(text: str) -> bool:
    return text.isascii() and text.isdigit() and text[0] != "0" and len(text) <= _THRESHOLD_DIGITS_MAX


def _shown(value: str) -> str:
    return repr(value[:_SHOWN_CHARACTERS_MAX])


def _short(digest: str) -> str:
    return digest[:_DIGEST_CHARACTERS_SHOWN]
