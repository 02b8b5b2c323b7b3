"""
What replicas say to each other.

Messages are values; the simulated network hands them over as they are. What makes each of them
trustworthy is the signature over L{votePayload<svcbroker.chain.votePayload>}; the names are
those of the literature: pre-prepare (L{Proposal}), prepare and commit (L{Vote}), view change
(L{RoundChange}).

Many are made for each block, so they are C{msgspec} structures, which are made in a fraction of
the time that other frozen values take.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TypeAlias

from msgspec import Struct

from ...chain import Certificate, Header, Phase, Transaction

_NOT_PREPARED = sha256(b"svcbroker/not-prepared").digest()


class ProposedBlock(Struct, frozen=True, kw_only=True):
    """
    A block on the wire: its header and what is in it. The header's hash stands for both.
    """

    header: Header
    transactions: Sequence[Transaction]


class Vote(Struct, frozen=True, kw_only=True, cache_hash=True):
    """
    A prepare or a commit.

    @ivar phase: C{PREPARE} or C{COMMIT}.
    @ivar sender: the index of the replica that votes.
    @ivar digest: the hash of the header voted for.
    """

    phase: Phase
    sender: int
    height: int
    round: int
    digest: bytes
    signature: bytes


class PreparedCertificate(Struct, frozen=True, kw_only=True):
    """
    A quorum's prepares for one header in one round: no other block can have been decided in
    that round.

    @ivar signatures: pairs of a replica's index and its prepare's signature, by rising index.
    """

    round: int
    digest: bytes
    signatures: Sequence[tuple[int, bytes]]


class RoundChange(Struct, frozen=True, kw_only=True):
    """
    A replica's word that it has gone on to a round, and what it is bound to.

    @ivar round: the round gone to.
    @ivar prepared: the certificate of the highest round in which it was prepared, if it was.
    @ivar block: the block of that certificate.
    """

    sender: int
    height: int
    round: int
    prepared: PreparedCertificate | None
    block: ProposedBlock | None
    signature: bytes

    @property
    def digest(self) -> bytes:
        """What stands for the binding in the signature."""
        return roundChangeDigest(self.prepared)


class Proposal(Struct, frozen=True, kw_only=True):
    """
    A leader's block for a round.

    @ivar justification: in rounds after the first, a quorum's round changes to this round.
    """

    sender: int
    height: int
    round: int
    block: ProposedBlock
    justification: Sequence[RoundChange]
    signature: bytes

    @property
    def phase(self) -> Phase:
        """What it is signed as."""
        return Phase.PROPOSE

    @property
    def digest(self) -> bytes:
        """The hash of the header proposed: what it signs."""
        return self.block.header.hash


class BlockRequest(Struct, frozen=True, kw_only=True):
    """
    A replica that may be behind asks for the decided block of a height.
    """

    sender: int
    height: int


class DecidedBlock(Struct, frozen=True, kw_only=True):
    """
    A decided block with its certificate, for a replica that is behind.
    """

    sender: int
    header: Header
    certificate: Certificate

    @property
    def height(self) -> int:
        """The height of the block."""
        return self.header.height


Message: TypeAlias = Proposal | Vote | RoundChange | BlockRequest | DecidedBlock
"""Anything that replicas say to each other."""


def roundChangeDigest(prepared: PreparedCertificate | None) -> bytes:
    """
    What a round change signs in place of a header's hash: the round and the block it is bound
    to, or that there is none.
    """
    if prepared is None:
        return _NOT_PREPARED
    return sha256(
        b"svcbroker/prepared" + prepared.round.to_bytes(8, "big") + prepared.digest
    ).digest()
