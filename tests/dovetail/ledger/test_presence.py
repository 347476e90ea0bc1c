"""What a handler reads of an address, and the validator's answer for it."""

import pytest

from dovetail.ledger.presence import as_listed, as_read, get_response


def test_an_entry_without_bytes_reads_as_none() -> None:
    assert [as_read(value) for value in (None, b"", b"x", b"\0")] == [None, None, b"x", b"\0"]
    assert list(as_listed(iter([("a", b"x"), ("b", b""), ("c", b"\0")]))) == [("a", b"x"), ("c", b"\0")]


@pytest.mark.parametrize(("bytes_max", "served"), [(6, True), (5, False)])
def test_an_answer_has_an_entry_for_each_address_within_the_limit(bytes_max: int, served: bool) -> None:
    response = get_response([("aa", b"x"), ("b", None), ("cc", b"")], bytes_max)
    assert (response is not None) == served
    if response is not None:
        assert response.status == response.OK
        assert [(entry.address, entry.data) for entry in response.entries] == [("aa", b"x"), ("b", b""), ("cc", b"")]
