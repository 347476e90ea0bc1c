"""The details of a status answer fit into its room; status, reason and ids always stay."""

from dovetail.ledger.status_details import DetailRoom
from protos.client_batch_submit_pb2 import ClientBatchStatus


def invalid(message: str, extended_bytes: int) -> ClientBatchStatus:
    return ClientBatchStatus(
        batch_id="b",
        status="INVALID",
        reason="invalid_transaction",
        family_name="f",
        invalid_transactions=[{"transaction_id": "t", "message": message, "extended_data": bytes(extended_bytes)}],
    )


def left(status: ClientBatchStatus) -> tuple[str, int, int]:
    """Message, bytes of extended data, and omitted bytes."""
    (transaction,) = status.invalid_transactions
    assert (status.batch_id, status.reason, status.family_name) == ("b", "invalid_transaction", "f")
    assert (ClientBatchStatus.Status.Name(status.status), transaction.transaction_id) == ("INVALID", "t")
    return transaction.message, len(transaction.extended_data), status.omitted_bytes


def test_what_does_not_fit_is_left_out_and_counted() -> None:
    room = DetailRoom(1_000)
    assert left(room.fit(invalid("no", 300))) == ("no", 300, 0)
    assert left(room.fit(invalid("nö", 600))) == ("nö", 0, 600)
    assert left(room.fit(invalid("ö" * 100, 3))) == ("", 3, 200)
    assert left(room.fit(invalid("no", 300))) == ("no", 300, 0)
    assert left(room.fit(invalid("yes", 300))) == ("yes", 0, 300)


def test_the_first_details_always_fit() -> None:
    room = DetailRoom(1)
    assert left(room.fit(invalid("", 0))) == ("", 0, 0)
    assert left(room.fit(invalid("no", 0))) == ("no", 0, 0)
    assert left(room.fit(invalid("no", 1))) == ("", 0, 3)


def test_the_message_of_a_pending_batch_counts() -> None:
    room = DetailRoom(100)
    room.fit(invalid("x" * 16, 0))
    pending = room.fit(ClientBatchStatus(batch_id="b", status="PENDING", reason="queued", message="failed"))
    assert (pending.message, pending.omitted_bytes, pending.reason) == ("", 6, "queued")


def test_what_was_left_out_before_counts_too() -> None:
    room = DetailRoom(1)
    room.fit(invalid("no", 0))
    status = invalid("no", 0)
    status.omitted_bytes = 40
    assert left(room.fit(status)) == ("", 0, 42)
