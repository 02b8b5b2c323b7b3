"""
The messages between replicas, and the effects of a replica's inputs, for the caller to carry out.

Messages are values; the simulated network passes them on as they are. Each is authenticated by the
signature over L{votePayload<svcbroker.chain.votePayload>}. In the literature's terms they are:
pre-prepare (L{Proposal}), prepare and commit (L{PhaseVote}), view change (L{RoundChange}).

They are C{msgspec} structures because many are made for each block, and these are made in a
fraction of the time of attrs classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from hashlib import sha256
from typing import TypeAlias

from msgspec import Struct

from ...chain import Candidate, Certificate, Header, Phase, Transaction

_NOT_PREPARED = sha256(b"svcbroker/not-prepared").digest()


class ProposedBlock(Struct, frozen=True, kw_only=True):
    """
    A block as it is sent: its header and its transactions. The header's hash identifies both.
    """

    header: Header
    transactions: Sequence[Transaction]

    @classmethod
    def of(cls, candidate: Candidate) -> ProposedBlock:
        """A block that was executed."""
        return cls(header=candidate.header, transactions=candidate.transactions)


class PhaseVote(Struct, frozen=True, kw_only=True, cache_hash=True, gc=False):
    """
    A prepare or a commit.

    @ivar phase: C{PREPARE} or C{COMMIT}.
    @ivar sender: the index of the voting replica.
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
    A quorum's prepares for one header in one round. It proves that no other block can have been
    decided in that round.

    @ivar signatures: pairs of a replica's index and the signature of its prepare, by ascending
        index.
    """

    round: int
    digest: bytes
    signatures: Sequence[tuple[int, bytes]]


class RoundChange(Struct, frozen=True, kw_only=True):
    """
    A replica's announcement that it has entered a round, with its lock.

    @ivar round: the round entered.
    @ivar prepared: the replica's prepared certificate of the highest round, if it has one.
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
        """The digest of the lock, which the signature covers."""
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
        """The phase that its signature covers."""
        return Phase.PROPOSE

    @property
    def digest(self) -> bytes:
        """The hash of the proposed header, which its signature covers."""
        return self.block.header.hash


class BlockRequest(Struct, frozen=True, kw_only=True):
    """
    A request for the decided block of a height, from a replica that may be behind.
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


Message: TypeAlias = Proposal | PhaseVote | RoundChange | BlockRequest | DecidedBlock
"""Any message between replicas."""


def roundChangeDigest(prepared: PreparedCertificate | None) -> bytes:
    """
    The digest that a round change signs in place of a header's hash: of the round and the block of
    its lock, or of the fact that it has none.
    """
    if prepared is None:
        return _NOT_PREPARED
    return sha256(
        b"svcbroker/prepared" + prepared.round.to_bytes(8, "big") + prepared.digest
    ).digest()


class Timer(IntEnum):
    """The two timers of a replica."""

    ROUND = 0
    """The round has timed out."""
    RESEND = 1
    """It is time to retransmit."""


class Send(Struct, frozen=True):
    """
    Send a message.

    @ivar target: a replica's index, or C{None} for all others.
    """

    message: Message
    target: int | None = None


class StartTimer(Struct, frozen=True):
    """
    Start a timer: call L{timeOut<svcbroker.ledgers.pbft._replica.Replica.timeOut>} with C{timer}
    after C{delay} seconds. Replaces a running timer of the same kind. A timer that is no
    longer needed is not stopped: the replica ignores it.
    """

    timer: Timer
    delay: float


class Decide(Struct, frozen=True):
    """Store a decided block."""

    candidate: Candidate
    certificate: Certificate


class Evidence(Struct, frozen=True):
    """
    Report that a replica has signed two different values for one height, round and phase.

    @ivar first: the message received first; it is the one that counts.
    @ivar second: the contradicting message.
    """

    first: PhaseVote | Proposal
    second: PhaseVote | Proposal


Effect: TypeAlias = Send | StartTimer | Decide | Evidence
"""Any effect of a replica."""
