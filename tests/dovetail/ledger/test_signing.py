"""Keys and signatures, against a second implementation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.ledger import signing
from dovetail.ledger.errors import InvalidKey
from dovetail.ledger.signing import Signer
from tests.system.independent import secp256k1

KEY = secp256k1.private_key_from("values")
PUBLIC = secp256k1.public_key(KEY)
MESSAGE = b"message"
SIGNATURE = secp256k1.sign(KEY, MESSAGE)
NO_HEX_128 = ["", "0" * 127, "0" * 129, "A" * 128, "g" * 128, "0" * 128 + "\n", " " + "0" * 127, "\u0660" * 128]


@given(st.binary(max_size=200))
def test_signatures_are_those_of_a_second_implementation(message: bytes) -> None:
    signature = Signer(KEY).sign(message)
    assert signature == secp256k1.sign(KEY, message)
    assert signing.verify(PUBLIC, message, signature)
    assert not signing.verify(PUBLIC, message + b"\0", signature)
    assert not signing.is_high_s(signature)
    assert signing.is_high_s(secp256k1.to_high_s(signature))


def test_a_high_s_signature_is_none() -> None:
    high = secp256k1.to_high_s(SIGNATURE)
    assert secp256k1.verify(PUBLIC, MESSAGE, high, require_low_s=False)
    assert not signing.verify(PUBLIC, MESSAGE, high)


@pytest.mark.parametrize("s", [1, secp256k1.HALF_N - 1, secp256k1.HALF_N])
def test_the_lower_half_ends_in_the_middle(s: int) -> None:
    assert not signing.is_high_s(f"{1:064x}{s:064x}")
    assert signing.is_high_s(f"{1:064x}{secp256k1.N - s:064x}")


@pytest.mark.parametrize(
    "signature",
    [
        "",
        "00",
        "zz" * 64,
        SIGNATURE[:-2],
        SIGNATURE + "00",
        "0" * 128,
        f"{0:064x}{SIGNATURE[64:]}",
        f"{SIGNATURE[:64]}{0:064x}",
        f"{secp256k1.N:064x}{SIGNATURE[64:]}",
        "f" * 128,
        "\u0660" * 128,
    ],
)
def test_malformed_signatures_do_not_verify(signature: str) -> None:
    assert not signing.verify(PUBLIC, MESSAGE, signature)


@pytest.mark.parametrize(
    "public_key",
    ["", PUBLIC.upper(), PUBLIC[:-2], "02" + "f" * 64, "02" + f"{secp256k1.P:064x}", "04" + "0" * 64, "02" + "0" * 64],
)
def test_malformed_public_keys_are_refused(public_key: str) -> None:
    with pytest.raises(InvalidKey):
        signing.verify(public_key, MESSAGE, SIGNATURE)


@pytest.mark.parametrize(
    "private_key",
    [
        "",
        "00" * 32,
        f"{secp256k1.N:064x}",
        "ff" * 32,
        "11" * 31,
        "11" * 33,
        "zz" * 32,
        "1" * 63,
        "\u0661" * 64,
        "11" * 31 + "  ",
        "\t" + "11" * 31 + "\n",
    ],
)
def test_malformed_private_keys_are_refused(private_key: str) -> None:
    with pytest.raises(InvalidKey) as caught:
        Signer(private_key)
    # Mistyped keys are secrets too.
    assert not private_key or private_key not in str(caught.value)


def test_any_number_below_the_order_signs() -> None:
    private_key = "a1" * 32
    signer = Signer(private_key)
    assert secp256k1.public_key(private_key) == signer.public_key
    assert secp256k1.verify(signer.public_key, MESSAGE, signer.sign(MESSAGE))
