"""
Block headers, and commit certificates: the signatures that make a block final.

B{Frozen bytes}: headers of all formats, votes and certificates, pinned by C{header}, C{votes} and
C{certificates} in C{docs/vectors/chain.json}.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import force_setattr

from ._encoding import U16, U64, Malformed, Reader, VersionUnknown

OLD_FORMAT = 2
FORMAT = 4
"""
The newest format. A block's transactions are of its format less 1 at most: those of format 2 of
version 1, those of format 3 of version 2 too, and those of format 4 of version 3 too.
"""

_TAG = b"svcbroker/header"
_HEADER = struct.Struct(">16sB32sQ32s32sQHQ32s32s32s32s32sIQ")


_CHAIN_END = struct.calcsize(">16sB32s")
_OWN_AT = _CHAIN_END + U64.size
_SETS_AT = struct.calcsize(">16sB32sQ32s32sQHQ32s32s32s")
_SETS_END = struct.calcsize(">16sB32sQ32s32sQHQ32s32s32s32s32s")
_OWN_SETS_AT = _SETS_AT - _OWN_AT
"""The parts of a header, from and to: in it, and those of its block alone among themselves."""

_VOTE = struct.Struct(">14sB32sQQ32s")

_VOTE_TAG = b"svcbroker/vote"

_ENTRY = struct.Struct(">H64s")


def leaderIndex(view: int, height: int, validators: int) -> int:
    """
    The index of the validator that proposes the block of a height in a view.
    """
    return (view + height) % validators


class Header(Struct, frozen=True, kw_only=True, gc=False):
    """
    Everything that is said of a block, small enough to sign.

    @ivar version: the format of its block: 2, 3 or 4.
    @ivar chain: the id of its chain: the hash of the genesis.
    @ivar height: its height; genesis has 0.
    @ivar parent: the hash of the header before; zeros in genesis.
    @ivar history: the Merkle root over the hashes of all headers before, from genesis on, so
        that any of them can be proved from this one.
    @ivar view: the view in which it was first proposed. It never falls along a chain.
    @ivar proposer: the index of the validator that proposed it.
    @ivar timestamp: its time, in milliseconds since the epoch; it never falls along a chain.
    @ivar transactionRoot: the Merkle root of its transactions' hashes.
    @ivar receiptRoot: the Merkle root of how they ended.
    @ivar stateRoot: the root of the state after it.
    @ivar validators: the hash of the validator set that decides it.
    @ivar nextValidators: the hash of the set that decides the next one.
    @ivar transactionCount: how many transactions it has.
    @ivar transactionTotal: how many the chain has up to and including it.
    @ivar encoded: its canonical encoding. Computed from the other fields; a given value is ignored.
    @ivar hash: its hash: 32 bytes. Computed, too.
    """

    chain: bytes
    height: int
    parent: bytes
    history: bytes
    view: int
    proposer: int
    timestamp: int
    transactionRoot: bytes
    receiptRoot: bytes
    stateRoot: bytes
    validators: bytes
    nextValidators: bytes
    transactionCount: int
    transactionTotal: int
    version: int = OLD_FORMAT
    encoded: bytes = b""
    hash: bytes = b""

    def __post_init__(self) -> None:
        encoded = _HEADER.pack(
            _TAG,
            self.version,
            self.chain,
            self.height,
            self.parent,
            self.history,
            self.view,
            self.proposer,
            self.timestamp,
            self.transactionRoot,
            self.receiptRoot,
            self.stateRoot,
            self.validators,
            self.nextValidators,
            self.transactionCount,
            self.transactionTotal,
        )
        force_setattr(self, "encoded", encoded)
        force_setattr(self, "hash", sha256(encoded).digest())

    @classmethod
    def decode(cls, data: bytes) -> Header:
        """
        Read a header.

        @raise Malformed: the bytes are not a header; L{VersionUnknown} where they are one of
            another format.
        """
        if not data.startswith(_TAG):
            raise Malformed("this is not a header")
        format = data[len(_TAG)] if len(data) > len(_TAG) else 0
        if not OLD_FORMAT <= format <= FORMAT:
            raise VersionUnknown(f"only headers of formats {OLD_FORMAT} to {FORMAT} are known")
        if len(data) != _HEADER.size:
            raise Malformed(f"a header has {_HEADER.size} bytes, not {len(data)}")
        _, version, *fields = _HEADER.unpack(data)
        return cls(
            version=version,
            chain=fields[0],
            height=fields[1],
            parent=fields[2],
            history=fields[3],
            view=fields[4],
            proposer=fields[5],
            timestamp=fields[6],
            transactionRoot=fields[7],
            receiptRoot=fields[8],
            stateRoot=fields[9],
            validators=fields[10],
            nextValidators=fields[11],
            transactionCount=fields[12],
            transactionTotal=fields[13],
        )


def splitHeader(encoded: bytes) -> tuple[bytes, bytes, int] | None:
    """
    Take a header apart, for a store that keeps once what many headers have alike.

    @return: what it says of the chain and of the validator sets, what it says of its block alone,
        and its height; C{None} where the bytes are not a header.
    """
    if len(encoded) != _HEADER.size or not encoded.startswith(_TAG):
        return None
    return (
        encoded[:_CHAIN_END] + encoded[_SETS_AT:_SETS_END],
        encoded[_OWN_AT:_SETS_AT] + encoded[_SETS_END:],
        U64.unpack_from(encoded, _CHAIN_END)[0],
    )


def joinHeader(shared: bytes, own: bytes, height: int) -> bytes:
    """
    Put together what L{splitHeader} took apart. Other bytes make no header, or one of another hash.

    @raise struct.error: the height is out of range.
    """
    parts = (shared[:_CHAIN_END], U64.pack(height), own[:_OWN_SETS_AT], shared[_CHAIN_END:])
    return b"".join((*parts, own[_OWN_SETS_AT:]))


class Phase(IntEnum):
    """The purpose of a vote. The numbers are part of what is signed."""

    PROPOSE = 1
    PREPARE = 2
    COMMIT = 3
    ROUND_CHANGE = 4


class CertificateInvalid(Exception):
    """A certificate that does not make its block final. The text says why."""


def faultsTolerated(validators: int) -> int:
    """The number of validators of a set that may be Byzantine: f, with C{validators} >= 3f+1."""
    return (validators - 1) // 3


def quorum(validators: int) -> int:
    """The number of validators of a set that must agree: any two quorums share a correct one."""
    return validators - faultsTolerated(validators)


def votePayload(phase: Phase, chain: bytes, height: int, round: int, digest: bytes) -> bytes:
    """
    The bytes that a validator signs to vote.

    @param digest: the hash of the header voted for.
    """
    return _VOTE.pack(_VOTE_TAG, phase, chain, height, round, digest)


class Certificate(Struct, frozen=True, kw_only=True, gc=False):
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
