"""
Helpers of the replicas' tests: messages signed with any key, an application without transactions,
and replicas that record what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from svcbroker.chain import (
    Candidate,
    Certificate,
    Genesis,
    Header,
    InvalidBlock,
    Phase,
    proposeBlock,
    votePayload,
)
from svcbroker.ledgers.pbft._keys import ReplicaSigner, SignatureVerifier, publicKey
from svcbroker.ledgers.pbft._protocol import (
    Effect,
    Message,
    PhaseVote,
    PreparedCertificate,
    Proposal,
    ProposedBlock,
    RoundChange,
    Send,
    roundChangeDigest,
)
from svcbroker.ledgers.pbft._replica import Replica, ReplicaApplication, Timing
from svcbroker.ledgers.pbft._votes import Rules

T = TypeVar("T")

NOW = 1_700_000_000


class SigningReplicas:
    """
    The replicas of a chain, with all of whose keys the test can sign.
    """

    def __init__(self, nodes: int = 4) -> None:
        self.seeds = [sha256(b"node %d" % index).digest() for index in range(nodes)]
        self.genesis = Genesis(
            group="1", created=NOW * 1000, validators=tuple(map(publicKey, self.seeds))
        )
        self.head = self.genesis.header()
        self.state = self.genesis.state()
        self._keys = [Ed25519PrivateKey.from_private_bytes(seed) for seed in self.seeds]

    def rules(self) -> Rules:
        """The rules, with an empty cache of verified signatures."""
        return Rules(chain=self.genesis.chain, verifier=SignatureVerifier(self.genesis.validators))

    def candidate(self, name: int = 0, view: int = 0, parent: Header | None = None) -> Candidate:
        """A block without transactions; each C{name} gives another one."""
        head = self.head if parent is None else parent
        time = head.timestamp + name
        return proposeBlock(self.state, head, view, time, [])

    def block(self, name: int = 0, view: int = 0, parent: Header | None = None) -> ProposedBlock:
        """The same as sent in a proposal."""
        return ProposedBlock.of(self.candidate(name, view, parent))

    def sign(self, sender: int, phase: Phase, height: int, round: int, digest: bytes) -> bytes:
        """A valid signature over any digest."""
        payload = votePayload(phase, self.genesis.chain, height, round, digest)
        return self._keys[sender].sign(payload)

    def vote(
        self, phase: Phase, sender: int, block: ProposedBlock, round: int = 0, height: int = 0
    ) -> PhaseVote:
        """A vote of any phase for a block."""
        height = height or block.header.height
        digest = block.header.hash
        return PhaseVote(
            phase=phase,
            sender=sender,
            height=height,
            round=round,
            digest=digest,
            signature=self.sign(sender, phase, height, round, digest),
        )

    def prepare(self, sender: int, block: ProposedBlock, round: int = 0) -> PhaseVote:
        """A prepare."""
        return self.vote(Phase.PREPARE, sender, block, round)

    def commit(self, sender: int, block: ProposedBlock, round: int = 0) -> PhaseVote:
        """A commit."""
        return self.vote(Phase.COMMIT, sender, block, round)

    def proposal(
        self,
        sender: int,
        block: ProposedBlock,
        round: int = 0,
        justification: Sequence[RoundChange] = (),
    ) -> Proposal:
        """A proposal."""
        height = block.header.height
        return Proposal(
            sender=sender,
            height=height,
            round=round,
            block=block,
            justification=justification,
            signature=self.sign(sender, Phase.PROPOSE, height, round, block.header.hash),
        )

    def prepared(
        self, block: ProposedBlock, round: int, signers: Sequence[int], signedRound: int = -1
    ) -> PreparedCertificate:
        """A prepared certificate, with signatures of C{signedRound} if that is given."""
        signed = round if signedRound < 0 else signedRound
        return PreparedCertificate(
            round=round,
            digest=block.header.hash,
            signatures=[(index, self.prepare(index, block, signed).signature) for index in signers],
        )

    def roundChange(
        self,
        sender: int,
        round: int,
        prepared: PreparedCertificate | None = None,
        block: ProposedBlock | None = None,
        height: int = 1,
    ) -> RoundChange:
        """A round change."""
        digest = roundChangeDigest(prepared)
        return RoundChange(
            sender=sender,
            height=height,
            round=round,
            prepared=prepared,
            block=block,
            signature=self.sign(sender, Phase.ROUND_CHANGE, height, round, digest),
        )

    def bound(
        self, sender: int, round: int, block: ProposedBlock, preparedRound: int
    ) -> RoundChange:
        """A round change with a valid lock on a block."""
        certificate = self.prepared(block, preparedRound, (0, 1, 2))
        return self.roundChange(sender, round, certificate, block, block.header.height)

    def certificate(
        self, block: ProposedBlock, signers: Sequence[int], round: int = 0, signedRound: int = -1
    ) -> Certificate:
        """A commit certificate, with signatures of C{signedRound} if that is given."""
        signed = round if signedRound < 0 else signedRound
        return Certificate(
            round=round,
            signatures=[(index, self.commit(index, block, signed).signature) for index in signers],
        )


class PlainApplication:
    """
    An L{ReplicaApplication<svcbroker.ledgers.pbft._replica.ReplicaApplication>} of blocks without
    transactions.

    @ivar head: the header that new blocks follow.
    @ivar hasWork: whether it has something to propose.
    @ivar invalid: the hashes of blocks that it refuses.
    @ivar unknown: the hashes of blocks that it cannot check now.
    @ivar blocks: the decided blocks by height.
    @ivar reserved: the rounds reserved.
    @ivar mayReserve: whether reserving succeeds.
    """

    def __init__(self, signing: SigningReplicas) -> None:
        self.head = signing.head
        self.hasWork = True
        self.invalid: set[bytes] = set()
        self.unknown: set[bytes] = set()
        self.blocks: dict[int, tuple[Header, Certificate]] = {}
        self.reserved: list[tuple[int, int]] = []
        self.mayReserve = True
        self._replicas = signing
        self._count = 1000

    def propose(self, view: int) -> Candidate | None:
        """A new block, a different one each time."""
        self._count += 1
        return self._replicas.candidate(self._count, view, self.head) if self.hasWork else None

    def check(self, block: ProposedBlock) -> Candidate | None:
        """The block, unless it is in C{invalid} or C{unknown}."""
        if block.header.hash in self.invalid:
            raise InvalidBlock("the test says so")
        if block.header.hash in self.unknown:
            return None
        made = self._replicas.candidate()
        return Candidate(
            header=block.header,
            transactions=block.transactions,
            body=made.body,
            offsets=made.offsets,
            outcome=made.outcome,
            receipts=made.receipts,
            history=made.history,
        )

    def decided(self, height: int) -> tuple[Header, Certificate] | None:
        """The block that the test has stored."""
        return self.blocks.get(height)

    def reserve(self, height: int, round: int) -> bool:
        """Record the round."""
        self.reserved.append((height, round))
        return self.mayReserve


def sent(effects: Sequence[Effect], kind: type[T]) -> list[T]:
    """The messages of a type among the effects."""
    return [
        effect.message
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, kind)
    ]


class Journal:
    """
    Records what the replicas of a set do.

    @ivar decided: for each height, the hashes of the blocks that any replica continued from.
    """

    def __init__(self) -> None:
        self.decided: dict[int, set[bytes]] = {}
        self.heads: dict[int, Header] = {}
        self._trace = sha256()

    def add(self, index: int, name: str, head: Header, effects: Sequence[Effect]) -> None:
        """Record an input of a replica and its effects."""
        self._trace.update(repr((index, name, head.hash, effects)).encode())
        if name == "start":
            # What was decided after the last stored block came to nothing.
            self.decided = {h: hashes for h, hashes in self.decided.items() if h <= head.height}
        self.decided.setdefault(head.height, set()).add(head.hash)
        self.heads[index] = head

    def digest(self) -> str:
        """The digest of all records."""
        return self._trace.hexdigest()

    def maker(self, kind: type[Replica] = Replica) -> Callable[..., Replica]:
        """Makes replicas that record into this journal."""
        journal = self

        class Watched(kind):  # type: ignore[misc, valid-type]
            def start(self, round: int) -> Sequence[Effect]:
                return self.noted("start", super().start(round))

            def resume(self) -> Sequence[Effect]:
                return self.noted("resume", super().resume())

            def propose(self, height: int) -> Sequence[Effect]:
                return self.noted("propose", super().propose(height))

            def receive(self, messages: Sequence[Message]) -> Sequence[Effect]:
                return self.noted("receive", super().receive(messages))

            def timeOut(self, timer: Any) -> Sequence[Effect]:
                return self.noted("timeOut", super().timeOut(timer))

            def noted(self, name: str, effects: Sequence[Effect]) -> Sequence[Effect]:
                journal.add(self.index, name, self.head, effects)
                return effects

        return Watched


def mixed(
    worse: Mapping[int, type[Replica]], maker: Callable[[type[Replica]], Callable[..., Replica]]
) -> Callable[..., Replica]:
    """A factory of replicas of which some are faulty."""

    def make(
        signer: ReplicaSigner,
        rules: Rules,
        application: ReplicaApplication,
        timing: Timing,
        head: Header,
    ) -> Replica:
        kind = worse.get(signer.index, Replica)
        return maker(kind)(signer, rules, application, timing, head)

    return make
