"""Only the settings family declares or writes anything in the namespace of the settings."""

import pytest

from dovetail.ledger.access import namespace_refusal, write_refusal
from dovetail.ledger.addresses import AccessList
from dovetail.ledger.settings import AUTHORIZED_KEYS, FAMILY_NAME, setting_address

PLACE = setting_address(AUTHORIZED_KEYS)
OVERLAPPING = ("", "00", "0000", "000000", PLACE[:20], PLACE)


@pytest.mark.parametrize("namespace", OVERLAPPING)
def test_no_other_family_declares_it(namespace: str) -> None:
    assert "overlaps 000000" in (namespace_refusal("intkey", ["1cf126", namespace]) or "")
    assert namespace_refusal(FAMILY_NAME, [namespace]) is None
    assert namespace_refusal("intkey", ["1cf126", "000001", "01"]) is None


@pytest.mark.parametrize("namespace", OVERLAPPING)
def test_no_other_family_writes_there_whatever_it_declared(namespace: str) -> None:
    outputs = AccessList([PLACE])
    assert write_refusal("intkey", PLACE, outputs, (namespace,)) == (
        f"it wrote at {PLACE}, and in 000000 only sawtooth_settings writes"
    )
    assert write_refusal(FAMILY_NAME, PLACE, outputs, (namespace,)) is None
