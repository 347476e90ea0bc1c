"""Refusals as values that cross process boundaries."""

from dovetail.ledger.errors import RefusedBatch


def test_a_refusal_survives_its_way_between_processes() -> None:
    restore, arguments = RefusedBatch("rule", "message").__reduce__()
    copy = restore(*arguments)
    assert (copy.rule, copy.message, str(copy)) == ("rule", "message", "message")
