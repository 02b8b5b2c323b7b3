"""
Ed25519 verification by ZIP-215, the rule of CometBFT's validators.

OpenSSL verifies without the cofactor, and refuses some encodings that ZIP-215 accepts. A validator
can therefore sign a vote that its engine accepts and OpenSSL refuses: its block would be final but
not provable. L{verifyZip215} decides such cases; it takes some milliseconds, so it is called only
for signatures that OpenSSL has refused. ZIP-215 accepts all signatures that OpenSSL accepts.

The rule (U{https://zips.z.cash/zip-0215}): the key C{A} and C{R} are any encodings of points of the
curve, canonical or not; C{S} is below the order of the base point; and
C{8 S B = 8 R + 8 SHA-512(R, A, M) A}.

Points are in extended coordinates C{(X, Y, Z, T)}, by RFC 8032, section 5.1.4. Nothing here is
secret, so nothing has to take the same time for all inputs.
"""

from __future__ import annotations

from hashlib import sha512
from typing import Final, TypeAlias

Point: TypeAlias = "tuple[int, int, int, int]"

P: Final = 2**255 - 19
ORDER: Final = 2**252 + 27742317777372353535851937790883648493
"""The order of the base point."""

_D: Final = -121665 * pow(121666, P - 2, P) % P
_ROOT: Final = pow(2, (P - 1) // 4, P)
"""A square root of -1."""

_IDENTITY: Final[Point] = (0, 1, 1, 0)
_SIGN: Final = 1 << 255


def verifyZip215(key: bytes, payload: bytes, signature: bytes) -> bool:
    """Whether an Ed25519 signature is valid by ZIP-215."""
    if len(key) != 32 or len(signature) != 64:
        return False
    public, commitment = decompress(key), decompress(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if public is None or commitment is None or scalar >= ORDER:
        return False
    digest = sha512(signature[:32] + key + payload).digest()
    challenge = int.from_bytes(digest, "little") % ORDER
    # S B - k A - R, times 8, is the identity.
    sum = _add(_multiplyBoth(scalar, _BASE, challenge, _negate(public)), _negate(commitment))
    for _ in range(3):
        sum = _add(sum, sum)
    x, y, z, _ = sum
    return x % P == 0 and (y - z) % P == 0


def decompress(data: bytes) -> Point | None:
    """
    The point of an encoding, also of one that is not canonical: C{y} is taken modulo C{P}, and the
    sign of an C{x} of 0 is ignored. C{None} where there is none on the curve.
    """
    encoded = int.from_bytes(data, "little")
    y = (encoded & (_SIGN - 1)) % P
    square = (y * y - 1) * pow(_D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * _ROOT % P
    if x * x % P != square:
        return None
    if x & 1 != encoded >> 255:
        x = -x % P
    return x, y, 1, x * y % P


def _add(one: Point, other: Point) -> Point:
    x1, y1, z1, t1 = one
    x2, y2, z2, t2 = other
    a = (y1 - x1) * (y2 - x2) % P
    b = (y1 + x1) * (y2 + x2) % P
    c = 2 * t1 * t2 * _D % P
    d = 2 * z1 * z2 % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _negate(point: Point) -> Point:
    x, y, z, t = point
    return -x % P, y, z, -t % P


def _multiplyBoth(first: int, one: Point, second: int, other: Point) -> Point:
    """The sum of two multiples, by Shamir's trick."""
    both = _add(one, other)
    result = _IDENTITY
    for bit in range(max(first.bit_length(), second.bit_length()) - 1, -1, -1):
        result = _add(result, result)
        chosen = (first >> bit & 1) | (second >> bit & 1) << 1
        if chosen:
            result = _add(result, (one, other, both)[chosen - 1])
    return result


def _base() -> Point:
    point = decompress((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))
    assert point is not None
    return point


_BASE: Final = _base()
