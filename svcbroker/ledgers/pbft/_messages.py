"""
What replicas say to each other.

Messages are values; the simulated network hands them over as they are. What makes each of them
trustworthy is the signature over L{votePayload<svcbroker.chain.votePayload>}; the names are
those of the literature: pre-prepare (L{Proposal}), prepare and commit (L{Vote}), view change
(L{RoundChange}).
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TypeAlias

from attrs import frozen

from ...chain import Certificate, Header, Phase, Transaction

_NOT_PREPARED = sha256(b"svcbroker/not-prepared").digest()


@frozen(kw_only=True)
class ProposedBlock:
    """
    A block on the wire: its header and what is in it. The header's hash stands for both.
    """

    header: Header
    transactions: Sequence[Transaction]


@frozen(kw_only=True)
class Vote:
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


@frozen(kw_only=True)
class PreparedCertificate:
    """
    A quorum's prepares for one header in one round: no other block can have been decided in
    that round.

    @ivar signatures: pairs of a replica's index and its prepare's signature, by rising index.
    """

    round: int
    digest: bytes
    signatures: Sequence[tuple[int, bytes]]


@frozen(kw_only=True)
class RoundChange:
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


@frozen(kw_only=True)
class Proposal:
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


@frozen(kw_only=True)
class BlockRequest:
    """
    A replica that may be behind asks for the decided block of a height.
    """

    sender: int
    height: int


@frozen(kw_only=True)
class DecidedBlock:
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
