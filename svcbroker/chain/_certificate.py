"""
Commit certificates: the signatures that make a block final.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum

from msgspec import Struct

from ._encoding import U16, U64, Reader
from ._header import Header

_VOTE = struct.Struct(">14sB32sQQ32s")
_TAG = b"svcbroker/vote"
_ENTRY = struct.Struct(">H64s")


class Phase(IntEnum):
    """What a vote is for. The numbers are part of what is signed."""

    PROPOSE = 1
    PREPARE = 2
    COMMIT = 3
    ROUND_CHANGE = 4


class CertificateInvalid(Exception):
    """A certificate that does not make its block final. The text says why."""


def faultsTolerated(validators: int) -> int:
    """How many of a set of validators may be Byzantine: f, with C{validators} >= 3f+1."""
    return (validators - 1) // 3


def quorum(validators: int) -> int:
    """How many of a set of validators must agree: any two quorums share a correct one."""
    return validators - faultsTolerated(validators)


def votePayload(phase: Phase, chain: bytes, height: int, round: int, digest: bytes) -> bytes:
    """
    The bytes that a validator signs to vote.

    @param digest: the hash of the header voted for.
    """
    return _VOTE.pack(_TAG, phase, chain, height, round, digest)


class Certificate(Struct, frozen=True, kw_only=True):
    """
    A quorum's commit votes for one header in one round.

    @ivar round: the round of the votes, counted from 0 at each height.
    @ivar signatures: pairs of a validator's index and its signature, by rising index.
    """

    round: int
    signatures: Sequence[tuple[int, bytes]]

    def encode(self) -> bytes:
        """Its canonical encoding."""
        return (
            U64.pack(self.round)
            + U16.pack(len(self.signatures))
            + b"".join([_ENTRY.pack(index, signature) for index, signature in self.signatures])
        )

    @classmethod
    def decode(cls, data: bytes) -> Certificate:
        """
        Read a certificate.

        @raise Malformed: the bytes are not one.
        """
        reader = Reader(data)
        round = reader.number(U64)
        count = reader.number(U16)
        rest = reader.take(count * _ENTRY.size)
        reader.finish()
        return cls(round=round, signatures=tuple(_ENTRY.iter_unpack(rest)))


def checkCertificate(
    certificate: Certificate,
    header: Header,
    validators: int,
    verify: Callable[[int, bytes, bytes], bool],
) -> None:
    """
    Make sure that a certificate makes a block final.

    @param validators: how many validators decide this block.
    @param verify: C{verify(index, payload, signature)}: whether that validator has signed it.
    @raise CertificateInvalid: too few distinct validators signed this very header in one round.
    """
    payload = votePayload(Phase.COMMIT, header.chain, header.height, certificate.round, header.hash)
    last = -1
    for index, signature in certificate.signatures:
        if index <= last:
            raise CertificateInvalid("its signers are not in rising order")
        last = index
        if index >= validators:
            raise CertificateInvalid(f"signer {index} is not a validator of this chain")
        if not verify(index, payload, signature):
            raise CertificateInvalid(f"the signature of validator {index} does not hold")
    count, needed = len(certificate.signatures), quorum(validators)
    if count < needed:
        raise CertificateInvalid(f"{count} signatures are fewer than the {needed} needed")
