"""Settings: encoding and undecodable values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.ledger.errors import NotDecodable
from dovetail.ledger.settings import decode_setting, encode_setting
from tests.system.independent import protobuf_wire as wire


@given(st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=5))
def test_settings_round_trip_in_one_form(entries: dict[str, str]) -> None:
    encoded = encode_setting(entries)
    assert decode_setting(encoded) == entries
    assert encode_setting(dict(reversed(entries.items()))) == encoded
    assert encoded == wire.encode(
        [(1, wire.encode(wire.present([(1, key), (2, entries[key])]))) for key in sorted(entries)]
    )


def test_a_setting_that_is_none() -> None:
    assert decode_setting(None) == decode_setting(b"") == {}
    with pytest.raises(NotDecodable, match="no Setting"):
        decode_setting(b"\x0a\xff")
