"""Limits are positive and fit each other."""

from dataclasses import fields

from dovetail.ledger.limits import Limits


def test_every_limit_is_a_positive_number() -> None:
    limits = Limits()
    for field in fields(limits):
        assert getattr(limits, field.name) > 0
    assert limits.message_bytes_max > limits.body_bytes_max
    assert limits.page_items_max >= limits.page_items_default
