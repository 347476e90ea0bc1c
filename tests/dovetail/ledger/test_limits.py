"""Limits are positive and fit each other."""

from dataclasses import fields, replace

import pytest

from dovetail.ledger.limits import Limits


def test_every_limit_is_a_positive_number() -> None:
    limits = Limits()
    for field in fields(limits):
        assert getattr(limits, field.name) > 0
    assert limits.page_items_max >= limits.page_items_default


MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None),
        ({"body_bytes_max": 16 * MIB, "page_bytes_max": 1}, None),
        ({"body_bytes_max": 16 * MIB + 1}, "body_bytes_max = 16777217 must be at most half of processor_message"),
        ({"message_bytes_max": 64 * MIB, "body_bytes_max": 32 * MIB}, "half of processor_message_bytes_max = 33554432"),
        ({"message_bytes_max": 64 * MIB, "page_bytes_max": 32 * MIB}, None),
        ({"state_value_bytes_max": 17 * MIB}, "state_value_bytes_max"),
        ({"packed_bytes_max": 17 * MIB}, "packed_bytes_max"),
        ({"state_list_bytes_max": 17 * MIB}, "state_list_bytes_max"),
        ({"block_bytes_max": 17 * MIB}, "block_bytes_max"),
        ({"receipt_bytes_max": 17 * MIB}, "receipt_bytes_max"),
        ({"page_bytes_max": 17 * MIB}, "page_bytes_max = 17825792 must be at most half of message_bytes_max"),
        ({"message_bytes_max": 15 * MIB}, "half of"),
        ({"status_ids_max": 6_000}, "status_ids_max = 6000 must be at most 5461"),
        ({"family_labels_max": 300}, "family_labels_max = 300 must be at most 256"),
    ],
)
def test_what_the_limits_allow_fits_into_a_message(changed: dict[str, int], said: str | None) -> None:
    misfit = replace(Limits(), **changed).misfit()
    assert misfit is None if said is None else said in (misfit or "")
