"""Connection key files: valid contents, and permissions."""

import pickle
import stat

import pytest
import zmq

from dovetail.ledger.connection_keys import ConnectionSecret, decode_public, decode_secret
from dovetail.ledger.errors import InvalidKey
from dovetail.ledger.secret_files import changeable_by_others, readable_by_others

# The key pair of libzmq's manual.
PUBLIC, SECRET = b"Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID", b"D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"
ME, ROOT, OTHER = 1000, 0, 1001


def test_what_the_library_makes_is_read_whole() -> None:
    assert zmq.curve_public(SECRET) == PUBLIC
    for _ in range(50):
        public, secret = zmq.curve_keypair()
        assert decode_public(public + b"\n", "a.pub") == public.decode()
        assert decode_secret(secret + b"\n", "a.priv", mode=0o100600, owner=ME, reader=ME).reveal() == secret


@pytest.mark.parametrize(
    "content",
    [
        b"", b"x" * 39, b"x" * 41, b"\xff" * 40, b" " * 40, b"'" * 40, PUBLIC + b"\0",
        # Five characters of the alphabet that encode more than 32 bits.
        b"#" * 40, b"0" * 35 + b"%nSc1",
        PUBLIC + b"\n" + PUBLIC, PUBLIC + b" " * 1024,
    ],
)  # fmt: skip
def test_what_is_no_key_is_refused_without_showing_it(content: bytes) -> None:
    for decode in (
        lambda text: decode_public(text, "a.pub"),
        lambda text: decode_secret(text, "a.priv", mode=0o600, owner=ME, reader=ME),
    ):
        with pytest.raises(InvalidKey, match=r"it holds no (public|secret) connection key of 40 Z85 characters$"):
            decode(content)


def test_the_highest_group_is_a_key_and_the_next_is_none() -> None:
    assert decode_public(b"0" * 35 + b"%nSc0", "a.pub") == "0" * 35 + "%nSc0"


@pytest.mark.parametrize("signing", [b"ab" * 32, b"02" + b"ab" * 32])
def test_a_key_that_signs_is_told_from_one_of_connections(signing: bytes) -> None:
    with pytest.raises(InvalidKey, match=r"it holds a key that signs$"):
        decode_secret(signing, "a.priv", mode=0o600, owner=ME, reader=ME)


@pytest.mark.parametrize(
    ("mode", "owner", "reader", "advice"),
    [
        (0o600, ME, ME, None),
        (0o400, ME, ME, None),
        (0o600, ROOT, ROOT, None),
        # A service manager gives a service access to a file of root with these permissions.
        (0o440, ROOT, ME, None),
        (0o640, ROOT, ME, None),
        (0o640, ME, ME, "chmod 600"),
        (0o440, ROOT, ROOT, "chmod 600"),
        (0o644, ME, ME, "chmod 600"),
        (0o602, ME, ME, "chmod 600"),
        (0o604, ROOT, ME, "chmod 640"),
        (0o660, ROOT, ME, "chmod 640"),
        (0o640, OTHER, ME, "chmod 600"),
    ],
)
def test_a_secret_is_its_owners_alone(mode: int, owner: int, reader: int, advice: str | None) -> None:
    refused = readable_by_others(stat.S_IFREG | mode, owner, reader)
    if advice is None:
        assert refused is None
        assert decode_secret(SECRET, "a.priv", mode=mode, owner=owner, reader=reader).reveal() == SECRET
    else:
        assert refused is not None
        assert f"(mode {mode:04o}): {advice} it" in refused
        with pytest.raises(InvalidKey, match="others than its owner may read or change it"):
            decode_secret(SECRET, "a.priv", mode=mode, owner=owner, reader=reader)


@pytest.mark.parametrize(
    ("mode", "owner", "reader", "advice"),
    [
        (0o644, ME, ME, None),
        (0o755, ROOT, ME, None),
        (0o444, ROOT, ROOT, None),
        (0o664, ME, ME, "(mode 0664): chmod go-w it"),
        (0o1777, ROOT, ME, "(mode 1777): chmod go-w it"),
        (0o646, ROOT, ROOT, "(mode 0646): chmod go-w it"),
        (0o644, OTHER, ME, "belongs to user 1001, who may change it: chown it to user 1000, who reads it, or to root"),
        (0o600, OTHER, ROOT, "chown it to user 0"),
    ],
)
def test_what_says_whom_to_trust_is_its_readers_or_roots(
    mode: int, owner: int, reader: int, advice: str | None
) -> None:
    refused = changeable_by_others(stat.S_IFREG | mode, owner, reader)
    assert refused is None if advice is None else refused is not None and advice in refused


def test_a_secret_shows_itself_to_nobody() -> None:
    secret = ConnectionSecret(SECRET.decode())
    assert SECRET.decode() not in f"{secret} {secret!r} {[secret]} {vars(type(secret))}"
    assert pickle.loads(pickle.dumps(secret)).reveal() == SECRET


def test_a_secret_passes_for_no_public_key() -> None:
    """Secret and public keys look alike, and public keys are logged."""
    public, _ = zmq.curve_keypair()
    with pytest.raises(InvalidKey, match=r"its name is that of a secret key: name the \.pub file"):
        decode_public(public, "validator.priv")


def test_a_public_key_passes_for_no_secret() -> None:
    with pytest.raises(
        InvalidKey, match=r"its name is that of a public key: name the \.priv file that was made with it$"
    ):
        decode_secret(PUBLIC, "validator.pub", mode=0o644, owner=ME, reader=ME)
    # The file of a secret key may have any other name, such as a name that a service manager gives.
    assert decode_secret(SECRET, "connection", mode=0o600, owner=ME, reader=ME).reveal() == SECRET
