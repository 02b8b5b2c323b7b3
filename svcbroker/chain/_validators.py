"""
Validator sets, which decide a chain's blocks, and changes of them.

B{Frozen bytes}: sets, changes and approvals, pinned by C{changes} in C{docs/vectors/chain.json}.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Final

from attrs import field, frozen
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ._encoding import U16, U64, Malformed, Reader
from ._header import quorum

KEY_SIZE = 32
SIGNATURE_SIZE = 64

MAX_VALIDATORS = 256
"""No set has more validators."""

_SET_TAG = b"svcbroker/validators\x00"
_CHANGE = struct.Struct(">27s32s32s32s")
_CHANGE_TAG = b"svcbroker/validators-change"
_APPROVAL = struct.Struct(">H64s")


class ChangeRefused(Exception):
    """A change of the validator set that does not hold. The text says why."""


_PRIME = 2**255 - 19
_SIGN = 1 << 255
_LOW_ORDER = frozenset(
    (
        0,
        1,
        _PRIME - 1,
        0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
        0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
    )
)
"""The y coordinates of the points whose order is 1, 2, 4 or 8."""


_CURVE: Final = -121665 * pow(121666, -1, _PRIME) % _PRIME
"""The constant d of the curve."""


def isUsableKey(key: bytes) -> bool:
    """
    Whether a public key can have signatures that L{verifySignature} takes, and not the same one for
    many payloads: 32 bytes that are the canonical encoding of a point of the curve whose order is
    not low.
    """
    y = int.from_bytes(key, "little") & (_SIGN - 1)
    if len(key) != KEY_SIZE or y >= _PRIME or y in _LOW_ORDER:
        return False
    # There is a point where x^2 = (y^2 - 1) / (dy^2 + 1) is a square: by Euler's criterion.
    square = (y * y - 1) * (_CURVE * y * y + 1)
    return pow(square, (_PRIME - 1) // 2, _PRIME) == 1


def verifySignature(key: bytes, payload: bytes, signature: bytes) -> bool:
    """
    Whether an Ed25519 signature is that of a public key under a payload.

    The rule is that of OpenSSL: C{S} below the order of the base point, C{R} canonical, and no
    cofactor. Keys that are not canonical or of low order are refused: of one key there would be
    several encodings, and one signature would be valid under many payloads.
    """
    try:
        _publicKey(key).verify(signature, payload)
    except InvalidSignature:
        return False
    return True


@lru_cache(maxsize=1024)
def _publicKey(key: bytes) -> Ed25519PublicKey:
    y = int.from_bytes(key, "little") & (_SIGN - 1)
    if y >= _PRIME or y in _LOW_ORDER:
        raise InvalidSignature
    return Ed25519PublicKey.from_public_bytes(key)


@lru_cache(maxsize=1024)
def _isVote(key: bytes, payload: bytes, signature: bytes) -> bool:
    """
    L{verifySignature} of a validator's vote. The proofs of a block's events all have the same
    votes, and to verify these takes a third of the time that a proof takes.
    """
    return verifySignature(key, payload, signature)


@frozen
class ValidatorSet:
    """
    The validators that decide blocks, each with one vote.

    @ivar generation: how many changes there were before it. It is part of what is hashed, so no
        set ever comes back, and no approval can be used twice.
    @ivar keys: the Ed25519 public keys (32 bytes each), in the order of the validators' indexes.
    @ivar encoded: its canonical encoding.
    @ivar hash: the hash of it, which headers hold.
    """

    generation: int
    keys: tuple[bytes, ...]
    encoded: bytes = field(init=False, repr=False, eq=False)
    hash: bytes = field(init=False, repr=False, eq=False)

    @encoded.default
    def _encode(self) -> bytes:
        return U64.pack(self.generation) + U16.pack(len(self.keys)) + b"".join(self.keys)

    @hash.default
    def _hash(self) -> bytes:
        return sha256(_SET_TAG + self.encoded).digest()

    @classmethod
    def read(cls, reader: Reader) -> ValidatorSet:
        """
        Take a set off some bytes.

        @raise Malformed: they do not begin with one.
        """
        generation = reader.number(U64)
        count = reader.number(U16)
        if not 1 <= count <= MAX_VALIDATORS:
            raise Malformed(f"a set has 1 to {MAX_VALIDATORS} validators, not {count}")
        keys = tuple(reader.take(KEY_SIZE) for _ in range(count))
        if len(set(keys)) != count:
            # One key under two indexes would count twice in every certificate.
            raise Malformed("a set names one validator twice")
        return cls(generation, keys)

    @classmethod
    def decode(cls, data: bytes) -> ValidatorSet:
        """
        Read a set.

        @raise Malformed: the bytes are not one.
        """
        reader = Reader(data)
        validators = cls.read(reader)
        reader.finish()
        return validators

    def verify(self, index: int, payload: bytes, signature: bytes) -> bool:
        """Whether a signature is that of the validator of an index."""
        return 0 <= index < len(self.keys) and _isVote(self.keys[index], payload, signature)


def changePayload(chain: bytes, current: ValidatorSet, following: ValidatorSet) -> bytes:
    """
    The bytes that validators sign to agree with a change.

    @param chain: the chain's id.
    """
    return _CHANGE.pack(_CHANGE_TAG, chain, current.hash, following.hash)


@frozen(kw_only=True)
class ValidatorChange:
    """
    A change of the validator set: the content of a transaction.

    @ivar following: the set that is to decide from the next block on.
    @ivar approvals: what validators of the set before have signed: pairs of index and signature, by
        rising index.
    @ivar acceptances: what each validator of the new set has signed, by index: a key that no one
        has must not get a vote.
    """

    following: ValidatorSet
    approvals: Sequence[tuple[int, bytes]]
    acceptances: Sequence[bytes]

    def encode(self) -> bytes:
        """Its canonical encoding."""
        return b"".join(
            (
                self.following.encoded,
                *self.acceptances,
                U16.pack(len(self.approvals)),
                *(_APPROVAL.pack(index, signature) for index, signature in self.approvals),
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> ValidatorChange:
        """
        Read a change.

        @raise Malformed: the bytes are not one.
        """
        reader = Reader(data)
        following = ValidatorSet.read(reader)
        acceptances = tuple(reader.take(SIGNATURE_SIZE) for _ in following.keys)
        approvals = reader.take(reader.number(U16) * _APPROVAL.size)
        reader.finish()
        return cls(
            following=following,
            approvals=tuple(_APPROVAL.iter_unpack(approvals)),
            acceptances=acceptances,
        )

    def check(self, chain: bytes, current: ValidatorSet) -> None:
        """
        Make sure that the change holds.

        @param chain: the chain's id.
        @param current: the set before.
        @raise ChangeRefused: it is not the next one, or not signed by a quorum of the set
            before and by all of the new one.
        """
        following = self.following
        if following.generation != current.generation + 1:
            raise ChangeRefused(
                f"set {following.generation} does not follow set {current.generation}"
            )
        payload = changePayload(chain, current, following)
        last = -1
        for index, signature in self.approvals:
            if index <= last:
                raise ChangeRefused("its signers are not in rising order")
            last = index
            if not current.verify(index, payload, signature):
                raise ChangeRefused(f"the approval of validator {index} does not hold")
        if len(self.approvals) < quorum(len(current.keys)):
            raise ChangeRefused("it is not approved by a quorum")
        for index, signature in enumerate(self.acceptances):
            if not following.verify(index, payload, signature):
                raise ChangeRefused(f"validator {index} of the new set has not accepted")
