"""secp256k1 ECDSA over SHA-256 in plain Python: deterministic nonces (RFC 6979), low-s, compact hex signatures.

The module has curve arithmetic, signing, verification and key encoding. It is for tests only, because nothing here runs
in constant time. This module must not use a crypto library.
"""

import hashlib
import hmac
import re
from collections.abc import Iterator
from functools import cache

P = 2**256 - 2**32 - 977
N = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
GX = 0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798
GY = 0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8
HALF_N = N // 2

Affine = tuple[int, int]
Jacobian = tuple[int, int, int]
_INFINITY: Jacobian = (0, 1, 0)
_SIGNATURE = re.compile(r"[0-9a-f]{128}")
_PUBLIC_KEY = re.compile(r"0[23][0-9a-f]{64}")


def private_key_from(label: str) -> str:
    """A private key that depends only on the label, for reproducible tests."""
    return f"{int.from_bytes(hashlib.sha256(label.encode()).digest()) % (N - 1) + 1:064x}"


def public_key(private_key: str) -> str:
    """The compressed public key, 66 lower-case hex characters."""
    x, y = _to_affine(_multiply_base(_secret(private_key)))
    return f"{2 + (y & 1):02x}{x:064x}"


def sign(private_key: str, message: bytes) -> str:
    """Sign the SHA-256 of the message. Returns 128 lower-case hex characters, with a low s."""
    secret = _secret(private_key)
    digest = hashlib.sha256(message).digest()
    for nonce in _nonces(secret, digest):
        r = _to_affine(_multiply_base(nonce))[0] % N
        s = pow(nonce, -1, N) * (int.from_bytes(digest) + r * secret) % N
        if r and s:
            return f"{r:064x}{min(s, N - s):064x}"
    raise AssertionError("nonces never end")


def verify(public_key: str, message: bytes, signature: str, *, require_low_s: bool = True) -> bool:
    """Whether the signature is valid for message and key. The result for malformed arguments is False."""
    if not _SIGNATURE.fullmatch(signature):
        return False
    point = decode_public_key(public_key)
    r, s = int(signature[:64], 16), int(signature[64:], 16)
    if point is None or not (0 < r < N and 0 < s < N) or (require_low_s and s > HALF_N):
        return False
    inverse = pow(s, -1, N)
    digest = int.from_bytes(hashlib.sha256(message).digest())
    total = _add(_multiply_base(digest * inverse % N), _multiply(point, r * inverse % N))
    return total[2] != 0 and _to_affine(total)[0] % N == r


def decode_public_key(public_key: str) -> Affine | None:
    """The point of a compressed key, None if the text is no such key."""
    if not _PUBLIC_KEY.fullmatch(public_key):
        return None
    x = int(public_key[2:], 16)
    square = (x * x * x + 7) % P
    y = pow(square, (P + 1) // 4, P)
    if x >= P or y * y % P != square:
        return None
    return x, y if y & 1 == int(public_key[1]) & 1 else P - y


def to_high_s(signature: str) -> str:
    """The same signature with the other valid s, which the ledger refuses."""
    r, s = signature[:64], int(signature[64:], 16)
    return f"{r}{max(s, N - s):064x}"


def rfc6979_nonce(private_key: str, message: bytes) -> int:
    """The first deterministic nonce for this key and message."""
    return next(_nonces(_secret(private_key), hashlib.sha256(message).digest()))


def _nonces(secret: int, digest: bytes) -> Iterator[int]:
    """RFC 6979, section 3.2, for SHA-256 and a 256-bit order."""
    seed = secret.to_bytes(32) + (int.from_bytes(digest) % N).to_bytes(32)
    key, value = bytes(32), b"\x01" * 32
    for tail in (b"\x00" + seed, b"\x01" + seed):
        key = hmac.digest(key, value + tail, "sha256")
        value = hmac.digest(key, value, "sha256")
    while True:
        value = hmac.digest(key, value, "sha256")
        nonce = int.from_bytes(value)
        if 0 < nonce < N:
            yield nonce
        key = hmac.digest(key, value + b"\x00", "sha256")
        value = hmac.digest(key, value, "sha256")


def _secret(private_key: str) -> int:
    secret = int(private_key, 16)
    if len(private_key) != 64 or not 0 < secret < N:
        raise ValueError("a private key is 32 bytes of hex, above zero and below the group order")
    return secret


def _double(point: Jacobian) -> Jacobian:
    x, y, z = point
    yy = y * y % P
    s = 4 * x * yy % P
    m = 3 * x * x % P
    x3 = (m * m - 2 * s) % P
    return x3, (m * (s - x3) - 8 * yy * yy) % P, 2 * y * z % P


def _add_affine(point: Jacobian, other: Affine) -> Jacobian:
    x, y, z = point
    if not z:
        return other[0], other[1], 1
    zz = z * z % P
    h = (other[0] * zz - x) % P
    r = (other[1] * zz * z - y) % P
    if not h:
        return _INFINITY if r else _double(point)
    hh = h * h % P
    hhh = h * hh % P
    v = x * hh % P
    x3 = (r * r - hhh - 2 * v) % P
    return x3, (r * (v - x3) - y * hhh) % P, z * h % P


def _add(left: Jacobian, right: Jacobian) -> Jacobian:
    return _add_affine(left, _to_affine(right)) if right[2] else left


def _to_affine(point: Jacobian) -> Affine:
    inverse = pow(point[2], -1, P)
    square = inverse * inverse % P
    return point[0] * square % P, point[1] * square * inverse % P


def _all_to_affine(points: list[Jacobian]) -> list[Affine]:
    """Convert many points with a single inversion."""
    products = [1]
    for point in points:
        products.append(products[-1] * point[2] % P)
    inverse = pow(products[-1], -1, P)
    affine = []
    for point, product in zip(reversed(points), reversed(products[:-1]), strict=True):
        z_inverse = inverse * product % P
        inverse = inverse * point[2] % P
        square = z_inverse * z_inverse % P
        affine.append((point[0] * square % P, point[1] * square * z_inverse % P))
    affine.reverse()
    return affine


def _multiples(base: Jacobian) -> list[Jacobian]:
    """1 to 15 times the base."""
    affine = _to_affine(base)
    points = [base]
    for _ in range(14):
        points.append(_add_affine(points[-1], affine))
    return points


@cache
def _base_table() -> list[list[Affine]]:
    """For each of the 64 nibbles of a scalar, 15 multiples of the base point."""
    points: list[Jacobian] = []
    base: Jacobian = (GX, GY, 1)
    for _ in range(64):
        row = _multiples(base)
        points += row
        base = _add(row[-1], base)
    affine = _all_to_affine(points)
    return [affine[start : start + 15] for start in range(0, len(affine), 15)]


def _multiply_base(scalar: int) -> Jacobian:
    total = _INFINITY
    for row in _base_table():
        nibble = scalar & 15
        if nibble:
            total = _add_affine(total, row[nibble - 1])
        scalar >>= 4
    return total


def _multiply(point: Affine, scalar: int) -> Jacobian:
    table = _all_to_affine(_multiples((point[0], point[1], 1)))
    total = _INFINITY
    for shift in range(252, -1, -4):
        for _ in range(4):
            total = _double(total)
        nibble = scalar >> shift & 15
        if nibble:
            total = _add_affine(total, table[nibble - 1])
    return total
