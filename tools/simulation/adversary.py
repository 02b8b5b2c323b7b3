"""
The adversary's knowledge: the messages that any Byzantine replica receives, and their keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from attrs import define, field

from svcbroker.chain import Certificate, Phase, quorum, votePayload
from svcbroker.ledgers.pbft._protocol import (
    Message,
    PhaseVote,
    PreparedCertificate,
    Proposal,
    ProposedBlock,
    RoundChange,
    roundChangeDigest,
)

from .genesis import secretOf, sign

Place = tuple[int, int]
"""A height and a round."""

HEIGHTS_REMEMBERED = 3


@define
class Adversary:
    """
    What the Byzantine replicas of a run share, since they collude.

    @ivar chain: the chain's id.
    @ivar seeds: the private keys of the Byzantine replicas, by index.
    @ivar actions: how often each kind of action was taken.
    @ivar blocks: the blocks seen, by hash.
    @ivar votes: the votes received: signatures by sender, for each phase, height, round and block.
    @ivar changes: the round changes received, by place and sender.
    @ivar signed: called with each signature: its index, payload and value.
    """

    random: Random
    chain: bytes
    nodes: int
    seeds: dict[int, bytes]
    actions: Counter[str] = field(factory=Counter)
    blocks: dict[bytes, ProposedBlock] = field(factory=dict)
    votes: dict[tuple[Phase, int, int, bytes], dict[int, bytes]] = field(factory=dict)
    changes: dict[Place, dict[int, RoundChange]] = field(factory=dict)
    signed: Callable[[int, bytes, bytes], None] = lambda index, payload, signature: None
    _secrets: dict[int, bytes] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._secrets = {index: secretOf(seed) for index, seed in self.seeds.items()}

    def addKey(self, index: int, seed: bytes) -> None:
        """Add a Byzantine replica's key, or replace it."""
        if self.seeds.get(index) != seed:
            self.seeds[index] = seed
            self._secrets[index] = secretOf(seed)

    @property
    def quorum(self) -> int:
        """The number of replicas that must agree."""
        return quorum(self.nodes)

    def observe(self, message: Message) -> None:
        """Learn from a message that a Byzantine replica receives or sends."""
        if isinstance(message, PhaseVote):
            place = (message.phase, message.height, message.round, message.digest)
            self.votes.setdefault(place, {})[message.sender] = message.signature
        elif isinstance(message, Proposal):
            self.blocks[message.digest] = message.block
            # A leader's proposal is its prepare.
            place = (Phase.PREPARE, message.height, message.round, message.digest)
            self.votes.setdefault(place, {})[message.sender] = message.signature
        elif isinstance(message, RoundChange):
            if message.block is not None:
                self.blocks[message.block.header.hash] = message.block
            received = self.changes.setdefault((message.height, message.round), {})
            received[message.sender] = message
        else:
            return
        self._forget(message.height - HEIGHTS_REMEMBERED)

    def _forget(self, height: int) -> None:
        if len(self.votes) > 500 or len(self.blocks) > 100:
            self.votes = {p: v for p, v in self.votes.items() if p[1] > height}
            self.changes = {p: v for p, v in self.changes.items() if p[0] > height}
            self.blocks = {h: b for h, b in self.blocks.items() if b.header.height > height}

    # Messages with the valid signature of a Byzantine replica.

    def sign(self, index: int, phase: Phase, height: int, round: int, digest: bytes) -> bytes:
        """A valid signature of a Byzantine replica over any digest."""
        payload = votePayload(phase, self.chain, height, round, digest)
        signature = sign(self._secrets[index], payload)
        self.signed(index, payload, signature)
        return signature

    def vote(self, index: int, phase: Phase, height: int, round: int, digest: bytes) -> PhaseVote:
        """A signed vote for any digest."""
        return PhaseVote(
            phase=phase,
            sender=index,
            height=height,
            round=round,
            digest=digest,
            signature=self.sign(index, phase, height, round, digest),
        )

    def proposal(
        self, index: int, round: int, block: ProposedBlock, justification: Sequence[RoundChange]
    ) -> Proposal:
        """A signed proposal of any block."""
        header = block.header
        return Proposal(
            sender=index,
            height=header.height,
            round=round,
            block=block,
            justification=justification,
            signature=self.sign(index, Phase.PROPOSE, header.height, round, header.hash),
        )

    def roundChange(
        self,
        index: int,
        height: int,
        round: int,
        prepared: PreparedCertificate | None = None,
        block: ProposedBlock | None = None,
    ) -> RoundChange:
        """A signed round change with any claim."""
        return RoundChange(
            sender=index,
            height=height,
            round=round,
            prepared=prepared,
            block=block,
            signature=self.sign(
                index, Phase.ROUND_CHANGE, height, round, roundChangeDigest(prepared)
            ),
        )

    # False certificates.

    def stale(self, height: int, below: int) -> Sequence[tuple[PreparedCertificate, ProposedBlock]]:
        """Valid prepared certificates of rounds below one, oldest first."""
        found = []
        for (phase, h, round, digest), signatures in self.votes.items():
            block = self.blocks.get(digest)
            isOne = phase is Phase.PREPARE and h == height and round < below
            if isOne and block is not None and len(signatures) >= self.quorum:
                signed = tuple(sorted(signatures.items()))[: self.quorum]
                found.append(
                    (PreparedCertificate(round=round, digest=digest, signatures=signed), block)
                )
        return sorted(found, key=lambda pair: pair[0].round)

    def padded(
        self, phase: Phase, index: int, height: int, round: int, digest: bytes
    ) -> Sequence[tuple[int, bytes]]:
        """As many signatures as a quorum has: those received and one's own, the latter repeated."""
        signatures = dict(self.votes.get((phase, height, round, digest), {}))
        for member in self.seeds:
            signatures[member] = self.sign(member, phase, height, round, digest)
        own = signatures[index]
        padding = [(index, own)] * max(0, self.quorum - len(signatures))
        return tuple(sorted([*signatures.items(), *padding]))

    def certificates(self, index: int, block: ProposedBlock, round: int) -> Sequence[Certificate]:
        """Invalid commit certificates for a block that was not decided."""
        header = block.header
        digest = header.hash
        padded = self.padded(Phase.COMMIT, index, header.height, round, digest)
        few = tuple((member, dict(padded)[member]) for member in sorted(self.seeds))
        prepares = self.votes.get((Phase.PREPARE, header.height, round, digest), {})
        return [
            Certificate(round=round, signatures=padded),
            Certificate(round=round, signatures=few),
            Certificate(round=round, signatures=tuple(sorted(prepares.items()))),
            Certificate(round=round, signatures=()),
            Certificate(round=round, signatures=[(i, bytes(64)) for i in range(self.quorum)]),
        ]
