"""Which families may enter a block: the setting, read from the state, and what is said to those that it leaves out."""

from collections.abc import Callable
from typing import Final

from ledger import settings
from ledger.errors import NotDecodable, some_of
from ledger.settings import FamilyVersion

PERMITTED_AT: Final = settings.setting_address(settings.TRANSACTION_FAMILIES)
"""The address of the leaf that says which families may enter a block."""

_SHOWN_MAX: Final = 10
_SHOWN_CHARACTERS_MAX: Final = 80


def permitted_families(read: Callable[[str], bytes | None]) -> frozenset[FamilyVersion] | None:
    """The families that may enter a block on this state; None where the setting is absent: all.

    A value that cannot be understood permits the settings family alone, so that it can be mended.
    """
    try:
        stored = settings.decode_setting(read(PERMITTED_AT))
        value = stored.get(settings.TRANSACTION_FAMILIES)
        return None if value is None else settings.decode_permitted_families(value)
    except NotDecodable:
        return frozenset({FamilyVersion(settings.FAMILY_NAME, settings.FAMILY_VERSION)})


def permission_refusal(family: FamilyVersion, permitted: frozenset[FamilyVersion] | None) -> str | None:
    """Why ``family`` may not enter a block, short enough to be kept for every batch that it refuses; None if it may."""
    if permitted is None or family in permitted:
        return None
    names = [name[:_SHOWN_CHARACTERS_MAX] for name in sorted(map(str, permitted))]
    listed = some_of(names, _SHOWN_MAX) or "none"
    return f"{family} is not permitted; {settings.TRANSACTION_FAMILIES} permits: {listed}"
