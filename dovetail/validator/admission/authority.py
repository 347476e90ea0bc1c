"""Which keys may change settings, by the head's state."""

from typing import Final

from dovetail.ledger.electorate import electorate_of
from dovetail.ledger.errors import NotDecodable
from dovetail.ledger.settings import AUTHORIZED_KEYS, decode_setting, setting_address
from dovetail.validator.core.state.view import Stored
from dovetail.validator.store import Store

_AUTHORIZED_AT: Final = setting_address(AUTHORIZED_KEYS)


def authorized_keys(store: Store) -> frozenset[str]:
    """The keys in the setting; empty if it is absent or cannot be decoded. Raises StorageFailed."""
    if store.head is None:
        return frozenset()
    try:
        setting = decode_setting(Stored(store.node, store.head.root).get(_AUTHORIZED_AT))
        return frozenset(electorate_of(setting.get(AUTHORIZED_KEYS), None).keys)
    except NotDecodable:
        return frozenset()
