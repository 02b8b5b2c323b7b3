"""
The behaviours of Byzantine replicas: ways to deviate from the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from msgspec.structs import replace

from svcbroker.chain import Kind, Phase, Transaction, leaderIndex
from svcbroker.ledgers.pbft._producer import BlockApplication
from svcbroker.ledgers.pbft._protocol import (
    DecidedBlock,
    Effect,
    Message,
    PhaseVote,
    PreparedCertificate,
    Proposal,
    ProposedBlock,
    RoundChange,
    Send,
)
from svcbroker.ledgers.pbft._replica import Replica

from .adversary import Adversary
from .chain import HostChain, variant


class ByzantineReplica(Replica):
    """
    The correct part of a Byzantine replica, with what its behaviours need. Made by
    L{makeByzantine}.

    @ivar adversary: the knowledge shared by all Byzantine replicas.
    @ivar others: the indexes of all other replicas.
    """

    adversary: Adversary
    others: Sequence[int]

    def leads(self, round: int) -> bool:
        """Whether this replica leads a round of the current height."""
        view = self.head.view + round
        return leaderIndex(view, self.height, self.adversary.nodes) == self.index

    def isCurrent(self, block: ProposedBlock) -> bool:
        """Whether a block is of the current height."""
        return block.header.height == self.height

    def another(
        self, round: int, delay: int, more: Sequence[Transaction] = ()
    ) -> ProposedBlock | None:
        """A valid new block of its own, or C{None}."""
        application = self._application
        assert isinstance(application, HostChain | BlockApplication)
        return variant(application, self.head.view + round, delay, more)


class Behaviour(Protocol):
    """One way in which a replica deviates from the protocol."""

    def alter(self, replica: ByzantineReplica, effects: Sequence[Effect]) -> Sequence[Effect]:
        """The effects to carry out instead of those of the correct replica."""

    def onReceive(self, replica: ByzantineReplica, message: Message) -> Sequence[Effect]:
        """Further effects, when a message arrives."""

    def onTimeOut(self, replica: ByzantineReplica) -> Sequence[Effect]:
        """Further effects, after a timeout."""


class BaseBehaviour:
    """A behaviour that changes nothing; the base of the others."""

    def alter(self, replica: ByzantineReplica, effects: Sequence[Effect]) -> Sequence[Effect]:
        return [twisted for effect in effects for twisted in self._alter(replica, effect)]

    def _alter(self, replica: ByzantineReplica, effect: Effect) -> Sequence[Effect]:
        return [effect]

    def onReceive(self, replica: ByzantineReplica, message: Message) -> Sequence[Effect]:
        return ()

    def onTimeOut(self, replica: ByzantineReplica) -> Sequence[Effect]:
        return ()


class SilentLeader(BaseBehaviour):
    """Never proposes."""

    def _alter(self, replica: ByzantineReplica, effect: Effect) -> Sequence[Effect]:
        if isinstance(effect, Send) and isinstance(effect.message, Proposal):
            replica.adversary.actions["silent leader"] += 1
            return ()
        return [effect]


class WrongRoot(BaseBehaviour):
    """Proposes blocks with a wrong state root."""

    def _alter(self, replica: ByzantineReplica, effect: Effect) -> Sequence[Effect]:
        if not (isinstance(effect, Send) and isinstance(effect.message, Proposal)):
            return [effect]
        said = effect.message
        header = replace(said.block.header, stateRoot=bytes(32))
        block = replace(said.block, header=header)
        replica.adversary.actions["wrong state root"] += 1
        lie = replica.adversary.proposal(replica.index, said.round, block, said.justification)
        return [replace(effect, message=lie)]


class TransactionInventor(BaseBehaviour):
    """Proposes blocks with transactions that no client sent."""

    def _alter(self, replica: ByzantineReplica, effect: Effect) -> Sequence[Effect]:
        if not (isinstance(effect, Send) and isinstance(effect.message, Proposal)):
            return [effect]
        said, adversary = effect.message, replica.adversary
        sender = adversary.random.randbytes(20)
        invented = Transaction.create(Kind.OPEN, sender, 1, 0, "topic/invented")
        block = replica.another(said.round, 0, [invented])
        if block is None:
            return [effect]
        adversary.actions["invented transaction"] += 1
        lie = adversary.proposal(replica.index, said.round, block, said.justification)
        return [replace(effect, message=lie)]


class ViewChooser(BaseBehaviour):
    """Proposes new blocks of later views, in which it would lead, too."""

    def _alter(self, replica: ByzantineReplica, effect: Effect) -> Sequence[Effect]:
        if not (isinstance(effect, Send) and isinstance(effect.message, Proposal)):
            return [effect]
        said, adversary = effect.message, replica.adversary
        turns = adversary.random.choice((1, 2, 250_000_000, 2**60))
        block = replica.another(said.round + turns * adversary.nodes, 0)
        if block is None:
            return [effect]
        adversary.actions["chosen view"] += 1
        adversary.blocks[block.header.hash] = block
        lie = adversary.proposal(replica.index, said.round, block, said.justification)
        return [replace(effect, message=lie)]


class Equivocator(BaseBehaviour):
    """As the leader, proposes two blocks, each to half of the others."""

    def _alter(self, replica: ByzantineReplica, effect: Effect) -> Sequence[Effect]:
        if not (isinstance(effect, Send) and isinstance(effect.message, Proposal)):
            return [effect]
        said, adversary = effect.message, replica.adversary
        block = replica.another(said.round, 1)
        if block is None:
            return [effect]
        adversary.actions["equivocation"] += 1
        adversary.blocks[block.header.hash] = block
        other = adversary.proposal(replica.index, said.round, block, said.justification)
        half = adversary.random.sample(list(replica.others), len(replica.others) // 2)
        return [Send(other if target in half else said, target) for target in replica.others]


class WrongSigner(BaseBehaviour):
    """Votes correctly, with wrong signatures."""

    def _alter(self, replica: ByzantineReplica, effect: Effect) -> Sequence[Effect]:
        if not (isinstance(effect, Send) and isinstance(effect.message, PhaseVote)):
            return [effect]
        replica.adversary.actions["wrong signature"] += 1
        wrong = replica.adversary.random.randbytes(len(effect.message.signature))
        return [replace(effect, message=replace(effect.message, signature=wrong))]


class DoubleVoter(BaseBehaviour):
    """Prepares and commits every block it receives, regardless of its other votes."""

    def __init__(self) -> None:
        self._voted: set[tuple[int, int, bytes]] = set()

    def onReceive(self, replica: ByzantineReplica, message: Message) -> Sequence[Effect]:
        if not isinstance(message, Proposal | PhaseVote) or message.height != replica.height:
            return ()
        place = (message.height, message.round, message.digest)
        if place in self._voted or not 0 <= message.round < 1000:
            return ()
        self._voted.add(place)
        replica.adversary.actions["vote for anything"] += 1
        return [
            Send(replica.adversary.vote(replica.index, phase, *place))
            for phase in (Phase.PREPARE, Phase.COMMIT)
        ]


class FalseRoundChanges(BaseBehaviour):
    """Sends contradicting round changes with false claims about its lock."""

    def _alter(self, replica: ByzantineReplica, effect: Effect) -> Sequence[Effect]:
        if not (isinstance(effect, Send) and isinstance(effect.message, RoundChange)):
            return [effect]
        replica.adversary.actions["conflicting view change"] += 1
        falseChanges = self.falseChanges(replica, effect.message)
        return [
            replace(effect, target=target, message=replica.adversary.random.choice(falseChanges))
            for target in replica.others
        ]

    def falseChanges(self, replica: ByzantineReplica, said: RoundChange) -> Sequence[RoundChange]:
        """All round changes it could send instead of the correct one."""
        adversary, me, height, round = replica.adversary, replica.index, said.height, said.round
        falseChanges = [said, adversary.roundChange(me, height, round)]
        for certificate, block in adversary.stale(height, round)[:1]:
            # The oldest certificate; the same with a later round; and one made of its own
            # signature, repeated.
            last = round - 1
            digest = certificate.digest
            falseChanges += [
                adversary.roundChange(me, height, round, lie, block)
                for lie in (certificate, replace(certificate, round=last))
            ]
            for known in list(adversary.blocks.values())[-2:]:
                if not replica.isCurrent(known):
                    continue
                digest = known.header.hash
                padded = adversary.padded(Phase.PREPARE, me, height, last, digest)
                falseChanges += [
                    adversary.roundChange(
                        me,
                        height,
                        round,
                        PreparedCertificate(round=last, digest=digest, signatures=signatures),
                        known,
                    )
                    for signatures in (padded, ())
                ]
        return falseChanges


class CertificateThief(BaseBehaviour):
    """
    Sends round changes with the certificates of others: the latest one with another block beside
    it, and those of earlier heights.
    """

    def _alter(self, replica: ByzantineReplica, effect: Effect) -> Sequence[Effect]:
        if not (isinstance(effect, Send) and isinstance(effect.message, RoundChange)):
            return [effect]
        said, adversary = effect.message, replica.adversary
        stolen = self.stolen(replica, said.height, said.round)
        if not stolen:
            return [effect]
        adversary.actions["stolen certificate"] += 1
        return [
            replace(effect, target=target, message=adversary.random.choice(stolen))
            for target in replica.others
        ]

    def stolen(self, replica: ByzantineReplica, height: int, round: int) -> Sequence[RoundChange]:
        """All such round changes to a round."""
        adversary, me = replica.adversary, replica.index
        made = [
            adversary.roundChange(me, height, round, certificate, block)
            for certificate, block in adversary.stale(height - 1, round)
        ]
        for certificate, _ in adversary.stale(height, round)[-1:]:
            others = [replica.another(round, 5), *adversary.blocks.values()]
            made += [
                adversary.roundChange(me, height, round, certificate, other)
                for other in others
                if other is not None
                and replica.isCurrent(other)
                and other.header.hash != certificate.digest
            ][:3]
        return made


class UnjustifiedProposer(BaseBehaviour):
    """
    As the leader of a later round, proposes any block, whatever the others are locked on,
    and justifies it in every conceivable way.
    """

    def __init__(self) -> None:
        self._done: set[tuple[int, int]] = set()

    def _alter(self, replica: ByzantineReplica, effect: Effect) -> Sequence[Effect]:
        said = effect.message if isinstance(effect, Send) else None
        # The correct part sends nothing in a round with a false proposal.
        if isinstance(said, Proposal | PhaseVote) and (said.height, said.round) in self._done:
            return ()
        return [effect]

    def onReceive(self, replica: ByzantineReplica, message: Message) -> Sequence[Effect]:
        if not isinstance(message, RoundChange) or message.height != replica.height:
            return ()
        place = (message.height, message.round)
        if not 0 < message.round < 1000 or place in self._done or not replica.leads(message.round):
            return ()
        adversary = replica.adversary
        if (
            len(adversary.changes.get(place, {})) < adversary.quorum - 1
            and adversary.random.random() < 0.5
        ):
            return ()
        block = replica.another(message.round, 2)
        known = [known for known in adversary.blocks.values() if replica.isCurrent(known)]
        if known and (block is None or adversary.random.random() < 0.4):
            block = adversary.random.choice(known)
        if block is None:
            return ()
        self._done.add(place)
        adversary.actions["unjustified proposal"] += 1
        adversary.blocks[block.header.hash] = block
        falseChanges: list[Message] = [
            adversary.proposal(replica.index, message.round, block, justification)
            for justification in self.justifications(replica, block, *place)
        ]
        falseChanges += [
            adversary.vote(index, phase, *place, block.header.hash)
            for index in adversary.seeds
            for phase in (Phase.PREPARE, Phase.COMMIT)
        ]
        return [Send(lie) for lie in falseChanges]

    def justifications(
        self, replica: ByzantineReplica, block: ProposedBlock, height: int, round: int
    ) -> Sequence[Sequence[RoundChange]]:
        """Sets of round changes that might pass for a justification."""
        adversary, me = replica.adversary, replica.index
        own = adversary.roundChange(me, height, round)
        heard = [c for c in adversary.changes.get((height, round), {}).values() if c.sender != me]
        allies = [
            adversary.roundChange(index, height, round) for index in adversary.seeds if index != me
        ]
        free = [c for c in heard if c.prepared is None and c.sender not in adversary.seeds]
        digest, last = block.header.hash, round - 1
        bound = [
            adversary.roundChange(
                me,
                height,
                round,
                PreparedCertificate(round=last, digest=digest, signatures=signatures),
                block,
            )
            for signatures in (adversary.padded(Phase.PREPARE, me, height, last, digest), ())
        ]
        return [
            [own, *allies, *heard],
            [own, *allies, *free],
            ([own, *allies, *free] * adversary.quorum)[: adversary.quorum],
            [replace(own, sender=index) for index in range(adversary.quorum)],
            *([lie, *heard] for lie in bound),
            *self._replayed(replica, block, height, round),
            (),
        ]

    def _replayed(
        self, replica: ByzantineReplica, block: ProposedBlock, height: int, round: int
    ) -> Iterator[Sequence[RoundChange]]:
        """Justifications with round changes of earlier rounds and heights, or another's lock."""
        adversary, me = replica.adversary, replica.index
        own = adversary.roundChange(me, height, round)
        earlier = [p for p in adversary.changes if p != (height, round) and p <= (height, round)]
        for place in sorted(earlier)[-3:]:
            changes = [c for c in adversary.changes[place].values() if c.sender != me]
            yield [own, *changes]
            yield [own, *(c for c in changes if c.prepared is None)]
        heard = [c for c in adversary.changes.get((height, round), {}).values() if c.sender != me]
        for certificate, _ in adversary.stale(height, round)[-1:]:
            yield [adversary.roundChange(me, height, round, certificate, block), *heard]
        yield [own, *(replace(own, sender=me + n * adversary.nodes) for n in (-1, 1, 2))]
        stripped = [replace(change, prepared=None, block=None) for change in heard]
        yield [own, *stripped]


class Forger(BaseBehaviour):
    """Sends decided blocks that were not decided, and messages in the names of others."""

    def onReceive(self, replica: ByzantineReplica, message: Message) -> Sequence[Effect]:
        adversary = replica.adversary
        if adversary.random.random() > 0.08:
            return ()
        effects: list[Effect] = []
        if isinstance(message, PhaseVote):
            adversary.actions["forged message"] += 1
            forged = replace(message, digest=bytes(32), round=message.round + 1)
            effects += [Send(forged), Send(replace(forged, sender=replica.index))]
        blocks = [known for known in adversary.blocks.values() if replica.isCurrent(known)][-2:]
        new = replica.another(replica.round, 3)
        if new is not None:
            adversary.blocks[new.header.hash] = new
            blocks.append(new)
        for block in blocks:
            adversary.actions["forged block"] += 1
            for certificate in adversary.certificates(replica.index, block, replica.round):
                fake = DecidedBlock(
                    sender=replica.index, header=block.header, certificate=certificate
                )
                effects.append(Send(fake, adversary.random.choice(replica.others)))
        return effects


class Replayer(BaseBehaviour):
    """Repeats old messages, its own and those of others, much later."""

    def __init__(self) -> None:
        self._known: list[Message] = []

    def onReceive(self, replica: ByzantineReplica, message: Message) -> Sequence[Effect]:
        adversary = replica.adversary
        self._known.append(message)
        if len(self._known) < 20 or adversary.random.random() > 0.1:
            return ()
        adversary.actions["replayed message"] += 1
        replayed = adversary.random.choice(self._known)
        del self._known[:-100]
        return [Send(replayed), Send(replace(replayed, sender=replica.index))]

    def alter(self, replica: ByzantineReplica, effects: Sequence[Effect]) -> Sequence[Effect]:
        self._known += [effect.message for effect in effects if isinstance(effect, Send)]
        return effects


class Flooder(BaseBehaviour):
    """Votes in all rounds and heights, near and far."""

    def onTimeOut(self, replica: ByzantineReplica) -> Sequence[Effect]:
        adversary, me, height = replica.adversary, replica.index, replica.height
        adversary.actions["flood"] += 1
        digest = adversary.random.randbytes(32)
        first = adversary.random.randrange(0, 60)
        said: list[Message] = [
            adversary.vote(me, phase, height + ahead, round, digest)
            for phase in (Phase.PREPARE, Phase.COMMIT)
            for ahead in (0, 1)
            for round in range(first, first + 12)
        ]
        said += [adversary.vote(me, Phase.COMMIT, height + n, 0, digest) for n in (5, 20, 2**62)]
        said += [
            adversary.roundChange(me, height, round)
            for round in (replica.round + 1, replica.round + 30, 2**40, 2**63)
        ]
        return [Send(message) for message in said]


class Strategist(BaseBehaviour):
    """
    Behaves correctly in the first round, except that it sends its commits to one replica only.
    Afterwards it supports no block of a correct leader, and denies its lock.
    """

    def _alter(self, replica: ByzantineReplica, effect: Effect) -> Sequence[Effect]:
        if not isinstance(effect, Send):
            return [effect]
        adversary, said = replica.adversary, effect.message
        if isinstance(said, RoundChange):
            adversary.actions["denied lock"] += 1
            return [
                replace(effect, message=adversary.roundChange(said.sender, said.height, said.round))
            ]
        if not isinstance(said, PhaseVote):
            return [effect]
        if said.round == 0 and said.phase is Phase.COMMIT:
            return [replace(effect, target=replica.others[said.height % len(replica.others)])]
        block = adversary.blocks.get(said.digest)
        if said.round and block is not None and block.header.proposer not in adversary.seeds:
            adversary.actions["withheld vote"] += 1
            return ()
        return [effect]


class Intermittent(BaseBehaviour):
    """Takes part in two heights and is silent for two."""

    def alter(self, replica: ByzantineReplica, effects: Sequence[Effect]) -> Sequence[Effect]:
        if replica.height % 4 < 2:
            return effects
        replica.adversary.actions["silence"] += 1
        return [effect for effect in effects if not isinstance(effect, Send)]
