"""
Ed25519 by ZIP-215, and the stricter rule of our own format.
"""

from __future__ import annotations

import runpy
from hashlib import sha512
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

import svcbroker
from svcbroker.chain import verifySignature
from svcbroker.chain._validators import _LOW_ORDER
from svcbroker.proofs.cometbft import Base64, Hex, LightBlockInvalid
from svcbroker.proofs.cometbft._light import (
    ORDER,
    P,
    Point,
    Vote,
    _add,
    _holds,
    _multiplyBoth,
    decompress,
    verifyZip215,
)
from svcbroker.proofs.cometbft._values import BlockId, votePayload

from ...ledgers.cometbft.support import FakeChain, Node, trustOf

BASE = decompress((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))
assert BASE is not None
EIGHTH = "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"
"""The encoding of a point of order 8."""


def encode(point: Point) -> bytes:
    """The canonical encoding of a point."""
    x, y, z, _ = point
    inverse = pow(z, P - 2, P)
    return (y * inverse % P | (x * inverse % P & 1) << 255).to_bytes(32, "little")


def times(factor: int, point: Point) -> Point:
    """A multiple of a point."""
    return _multiplyBoth(factor, point, 0, point)


def torsion() -> list[Point]:
    """The eight points of low order."""
    eighth = decompress(bytes.fromhex(EIGHTH))
    assert eighth is not None
    return [times(factor, eighth) for factor in range(8)]


def smallEncodings() -> list[bytes]:
    """
    All 14 encodings of points of low order: 8 that are canonical, and those with C{y + P}, or with
    the sign of an C{x} of 0.
    """
    found = {encode(point) for point in torsion()}
    for data in sorted(found):
        number = int.from_bytes(data, "little")
        y, sign = number & (1 << 255) - 1, number >> 255
        for other in (y, y + P):
            for each in (sign, 1 - sign):
                if other < 1 << 255:
                    candidate = (other | each << 255).to_bytes(32, "little")
                    point = decompress(candidate)
                    if point is not None and encode(point) in found:
                        found = found | {candidate}
    return sorted(found)


def sign(secret: int, nonce: int, message: bytes, key: Point, extra: Point) -> bytes:
    """A signature whose C{R} has another point added."""
    assert BASE is not None
    commitment = encode(_add(times(nonce, BASE), extra))
    digest = sha512(commitment + encode(key) + message).digest()
    challenge = int.from_bytes(digest, "little") % ORDER
    return commitment + ((nonce + challenge * secret) % ORDER).to_bytes(32, "little")


class Zip215Tests(SynchronousTestCase):
    """
    L{verifyZip215}.
    """

    @given(st.binary(min_size=32, max_size=32), st.binary(max_size=50), st.integers(0, 511))
    @settings(deadline=None)
    def test_agreesWithOpenSslOnHonestSignatures(
        self, seed: bytes, message: bytes, bit: int
    ) -> None:
        """Honest signatures are valid, and none with a bit changed."""
        private = Ed25519PrivateKey.from_private_bytes(seed)
        key, signature = private.public_key().public_bytes_raw(), private.sign(message)
        self.assertTrue(verifyZip215(key, message, signature))
        changed = bytearray(signature)
        changed[bit // 8] ^= 1 << bit % 8
        self.assertFalse(verifyZip215(key, message, bytes(changed)))
        self.assertFalse(verifyZip215(key, message + b"x", signature))

    def test_smallOrderVectorsAreValid(self) -> None:
        """The 196 vectors of ZIP-215: A and R of low order in any encoding, S = 0, any message."""
        encodings = smallEncodings()
        self.assertEqual(len(encodings), 14)
        coordinates = {int.from_bytes(each, "little") % (1 << 255) % P for each in encodings}
        self.assertEqual(coordinates, _LOW_ORDER)
        for key in encodings:
            for commitment in encodings:
                self.assertTrue(verifyZip215(key, b"Zcash", commitment + bytes(32)))

    def test_torsionInRAndKeyIsValid(self) -> None:
        """A validator can add a point of low order to R, or to its key: its vote is valid."""
        assert BASE is not None
        secret, nonce = 1234567, 7654321
        refused = 0
        for inKey in torsion():
            key = _add(times(secret, BASE), inKey)
            for inCommitment in torsion():
                signature = sign(secret, nonce, b"vote", key, inCommitment)
                self.assertTrue(verifyZip215(encode(key), b"vote", signature))
                self.assertFalse(verifyZip215(encode(key), b"other", signature))
                refused += not verifySignature(encode(key), b"vote", signature)
        # OpenSSL refuses nearly all of them.
        self.assertGreater(refused, 40)

    def test_libsodiumAcceptsNoMore(self) -> None:
        """All that libsodium accepts is valid by ZIP-215, so asking it first changes nothing."""
        assert BASE is not None
        for inKey in torsion():
            key = _add(times(1234567, BASE), inKey)
            for inCommitment in torsion():
                signature = sign(1234567, 7654321, b"vote", key, inCommitment)
                for message in (b"vote", b"other"):
                    isValid = verifyZip215(encode(key), message, signature)
                    self.assertIs(_holds(encode(key), message, signature), isValid)
        for encoded in (*smallEncodings(), bytes(31)):
            for signature in (bytes(64), bytes(63), b"\xff" * 64):
                isValid = verifyZip215(encoded, b"vote", signature)
                self.assertIs(_holds(encoded, b"vote", signature), isValid)

    def test_exampleVerifierAgrees(self) -> None:
        """C{docs/examples/verify.py} has the same rule."""
        assert BASE is not None
        path = Path(svcbroker.__file__).parents[1] / "docs" / "examples" / "verify.py"
        example = runpy.run_path(str(path))
        for extra in torsion():
            key = _add(times(1234567, BASE), extra)
            signature = sign(1234567, 7654321, b"vote", key, extra)
            example["checkVote"](encode(key), b"vote", signature)
            with self.assertRaises(Exception) as raised:
                example["checkVote"](encode(key), b"other", signature)
            self.assertIn("a vote is not signed", str(raised.exception))
        self.assertEqual(example["LOW_ORDER"], _LOW_ORDER)

    def test_torsionInAVoteKeepsTheBlockProvable(self) -> None:
        """A final block in which one of four validators has signed so is verified, and made."""
        nodes = [Node.numbered(number) for number in range(1, 5)]
        chain = FakeChain(nodes)
        trust = trustOf(chain.genesis())
        block = chain.add()
        key, vote = block.validators[0].key, block.votes[0]
        assert vote is not None
        seed = next(bytes([number]) * 32 for number in range(1, 5)
                    if Node.numbered(number).member.key == key)  # fmt: skip
        secret = int.from_bytes(sha512(seed).digest()[:32], "little") & (1 << 254) - 8 | 1 << 254
        blockId = BlockId(hash=Hex(block.hash), parts=block.parts)
        header = block.header
        payload = votePayload(header.chainId, header.height, block.round, blockId, vote.time)
        public = decompress(key)
        assert public is not None
        forged = Base64(sign(secret, 99, payload, public, torsion()[1]))
        self.assertFalse(verifySignature(key, payload, forged))
        votes = (Vote(vote.time, forged), *block.votes[1:])
        trust.follow(msgspec.structs.replace(block, votes=votes))
        broken = Base64(forged[:32] + bytes(32))
        votes = (Vote(vote.time, broken), *block.votes[1:])
        with self.assertRaises(LightBlockInvalid):
            trust.follow(msgspec.structs.replace(block, votes=votes))

    def test_largeScalarIsRefused(self) -> None:
        """S must be below the order of the base point."""
        private = Ed25519PrivateKey.from_private_bytes(bytes(32))
        key, signature = private.public_key().public_bytes_raw(), private.sign(b"m")
        scalar = int.from_bytes(signature[32:], "little") + ORDER
        self.assertFalse(verifyZip215(key, b"m", signature[:32] + scalar.to_bytes(32, "little")))
        self.assertFalse(verifyZip215(key, b"m", signature[:63]))
        self.assertFalse(verifyZip215(key[:31], b"m", signature))

    def test_offCurvePointsAreRefused(self) -> None:
        """A and R must be on the curve."""
        off = next(
            data
            for data in (bytes([number]) + bytes(31) for number in range(2, 50))
            if decompress(data) is None
        )
        good = smallEncodings()[0]
        self.assertFalse(verifyZip215(off, b"m", good + bytes(32)))
        self.assertFalse(verifyZip215(good, b"m", off + bytes(32)))


class StrictTests(SynchronousTestCase):
    """
    L{verifySignature}, for our own format.
    """

    def test_lowOrderKeysAreRefused(self) -> None:
        """A key of low order would make one signature valid for any message."""
        for key in smallEncodings():
            for commitment in smallEncodings():
                self.assertFalse(verifySignature(key, b"anything", commitment + bytes(32)))

    def test_nonCanonicalKeysAreRefused(self) -> None:
        """Of two encodings of a key only the canonical one is a key."""
        self.assertEqual(
            decompress((P + 3).to_bytes(32, "little")), decompress(b"\x03" + bytes(31))
        )
        for number in range(19):
            for top in (0, 1 << 255):
                key = (P + number | top).to_bytes(32, "little")
                self.assertFalse(verifySignature(key, b"m", bytes(64)))

    def test_nonCanonicalCommitmentIsRefused(self) -> None:
        """R = P + 1 is the identity in another encoding."""
        private = Ed25519PrivateKey.from_private_bytes(bytes(32))
        key = private.public_key().public_bytes_raw()
        secret = int.from_bytes(sha512(bytes(32)).digest()[:32], "little")
        secret = secret & (1 << 254) - 8 | 1 << 254
        for commitment, isValid in ((1, True), (P + 1, False)):
            encoded = commitment.to_bytes(32, "little")
            digest = sha512(encoded + key + b"m").digest()
            challenge = int.from_bytes(digest, "little") % ORDER
            signature = encoded + (challenge * secret % ORDER).to_bytes(32, "little")
            self.assertIs(verifySignature(key, b"m", signature), isValid)
            self.assertTrue(verifyZip215(key, b"m", signature))
