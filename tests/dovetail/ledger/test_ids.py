"""Ids and public keys: the form of their text."""

from dovetail.ledger.ids import is_id, is_public_key
from tests.system.independent import secp256k1

KEY = secp256k1.private_key_from("values")
PUBLIC = secp256k1.public_key(KEY)
NO_HEX_128 = ["", "0" * 127, "0" * 129, "A" * 128, "g" * 128, "0" * 128 + "\n", " " + "0" * 127, "\u0660" * 128]


def test_ids() -> None:
    assert is_id("0123456789abcdef" * 8)
    assert not any(map(is_id, NO_HEX_128))


def test_public_keys_have_a_form() -> None:
    assert is_public_key(PUBLIC)
    bad = ["", "04" + "0" * 64, "02" + "0" * 63, "02" + "0" * 65, PUBLIC.upper(), PUBLIC + "\n", "00" + PUBLIC[2:]]
    assert not any(map(is_public_key, bad))
