"""
Tests for a single replica: inputs, and exactly the effects they have.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Certificate, Phase, checkCertificate
from svcbroker.ledgers.pbft._keys import ReplicaSigner
from svcbroker.ledgers.pbft._protocol import (
    BlockRequest,
    Decide,
    Effect,
    Evidence,
    Message,
    PhaseVote,
    Proposal,
    ProposedBlock,
    RoundChange,
    Send,
    StartTimer,
    Timer,
)
from svcbroker.ledgers.pbft._replica import Replica, Timing
from svcbroker.ledgers.pbft._votes import HEIGHTS_AHEAD, MESSAGES_KEPT, ROUNDS_AHEAD, FutureMessages
from tests.ledgers.pbft.sets import PlainApplication, SigningReplicas, sent

TIMERS = [StartTimer(Timer.ROUND, 1.0), StartTimer(Timer.RESEND, 0.5)]


class ReplicaTestCase(SynchronousTestCase):
    """
    Shared by these tests. Replica 2 of four is at height 1, where replica 1 leads round 0, replica
    2 round 1, replica 3 round 2 and replica 0 round 3.
    """

    def setUp(self) -> None:
        self.set = SigningReplicas()
        self.application = PlainApplication(self.set)
        self.replica = self.makeReplica(2)
        self.x = self.set.block(1)
        self.y = self.set.block(2)

    def makeReplica(self, index: int) -> Replica:
        """A replica that was not started."""
        rules = self.set.rules()
        signer = ReplicaSigner(index, self.set.seeds[index], self.set.genesis.chain, rules.verifier)
        return Replica(signer, rules, self.application, Timing(), self.set.head)

    def receive(self, *messages: Message) -> list[Effect]:
        """Pass messages to the replica."""
        return [effect for message in messages for effect in self.replica.receive([message])]

    def ignores(self, *messages: Message) -> None:
        """Check that messages have no effect."""
        for message in messages:
            self.assertEqual(list(self.replica.receive([message])), [], message)

    def ignoresTimers(self) -> None:
        """Check that timers that are still running have no effect."""
        for timer in Timer:
            self.assertEqual(self.replica.timeOut(timer), [])

    def prepare(self, block: ProposedBlock, round: int = 0) -> list[Effect]:
        """Propose or accept a block, and become prepared."""
        leader = (round + 1) % 4
        effects = self.receive(self.set.proposal(leader, block, round)) if leader != 2 else []
        return effects + self.receive(
            *(self.set.prepare(sender, block, round) for sender in (0, 1))
        )

    def timeOut(self) -> Sequence[Effect]:
        """Let the round time out."""
        return self.replica.timeOut(Timer.ROUND)

    def join(self) -> list[Effect]:
        """Move two others to its round, so that its round timer starts."""
        return self.receive(*(self.set.roundChange(other, self.replica.round) for other in (0, 1)))


class NormalTests(ReplicaTestCase):
    def test_leaderProposesAndDecides(self) -> None:
        """The proposal is its prepare."""
        self.replica = self.makeReplica(1)
        self.assertEqual(self.replica.leader, self.replica.index)
        effects = self.replica.propose(1)
        [proposal] = sent(effects, Proposal)
        block = proposal.block
        expected = self.set.proposal(1, block)
        self.assertEqual(proposal, replace(expected, justification=()))
        self.assertEqual(effects, [*TIMERS, Send(proposal)])
        self.ignores(self.set.prepare(2, block))
        self.assertEqual(
            self.receive(self.set.prepare(3, block)), [Send(self.set.commit(1, block))]
        )
        self.ignores(self.set.commit(0, block))
        [decide] = self.receive(self.set.commit(3, block))
        assert isinstance(decide, Decide)
        self.assertEqual(decide.candidate.header, block.header)
        self.assertEqual(
            decide.certificate,
            Certificate(
                round=0,
                signatures=tuple(
                    (index, self.set.commit(index, block).signature) for index in (0, 1, 3)
                ),
            ),
        )
        checkCertificate(decide.certificate, block.header, 4, self.set.rules().verifier.verify)
        self.assertEqual((self.replica.head, self.replica.height), (block.header, 2))
        self.ignoresTimers()

    def test_followerPreparesProposal(self) -> None:
        """Although it was not asked to produce a block."""
        effects = self.receive(self.set.proposal(1, self.x))
        self.assertEqual(effects, [*TIMERS, Send(self.set.prepare(2, self.x))])
        self.ignores(self.set.prepare(1, self.x), self.set.prepare(2, self.x))
        self.assertEqual(
            self.receive(self.set.prepare(0, self.x)), [Send(self.set.commit(2, self.x))]
        )
        self.ignores(self.set.commit(0, self.x))
        [decide] = self.receive(self.set.commit(1, self.x))
        self.assertIsInstance(decide, Decide)

    def test_votesMayPrecedeProposal(self) -> None:
        votes = [self.set.commit(sender, self.x) for sender in (0, 1, 3)]
        votes += [self.set.prepare(sender, self.x) for sender in (0, 1, 3)]
        self.ignores(*votes)
        effects = self.receive(self.set.proposal(1, self.x))
        self.assertIsInstance(effects[-1], Decide, effects)
        self.ignoresTimers()

    def test_preparedReplicaSkipsPrepare(self) -> None:
        """
        A quorum's prepares arrive together with the proposal. The replica commits at once, and
        prepares with the next retransmission, since others may not have received the prepares.
        """
        prepares = [self.set.prepare(sender, self.x) for sender in (0, 3)]
        effects = self.replica.receive([self.set.proposal(1, self.x), *prepares])
        commit, prepare = self.set.commit(2, self.x), self.set.prepare(2, self.x)
        self.assertEqual(effects, [*TIMERS, Send(commit)])
        again = [Send(commit), Send(prepare), TIMERS[1]]
        self.assertEqual(self.replica.timeOut(Timer.RESEND), again)
        self.assertEqual(self.replica.timeOut(Timer.RESEND), again)

    def test_decidedReplicaSkipsCommit(self) -> None:
        self.receive(self.set.proposal(1, self.x))
        messages = [self.set.commit(sender, self.x) for sender in (0, 1, 3)]
        [decide] = self.replica.receive([self.set.prepare(0, self.x), *messages])
        assert isinstance(decide, Decide)
        self.assertEqual([index for index, _ in decide.certificate.signatures], [0, 1, 3])
        self.ignoresTimers()

    def test_messagesAfterDecisionAreHandled(self) -> None:
        """One batch may end a height and begin the next."""
        commits = [self.set.commit(sender, self.x) for sender in (0, 1, 3)]
        following = self.set.block(2, parent=self.x.header)
        late, proposal = self.set.prepare(0, self.x), self.set.proposal(2, following)
        self.replica = self.makeReplica(3)
        effects = self.replica.receive([self.set.proposal(1, self.x), *commits, late, proposal])
        vote = self.set.prepare(3, following)
        self.assertIsInstance(effects[2], Decide)
        self.assertEqual([*effects[:2], *effects[3:]], [*TIMERS, *TIMERS, Send(vote)])

    def test_skippedVotesAreNotSentLater(self) -> None:
        """They are not sent in a later round."""
        prepares = [self.set.prepare(sender, self.x) for sender in (0, 3)]
        self.replica.receive([self.set.proposal(1, self.x), *prepares])
        [change] = sent(self.timeOut(), RoundChange)
        self.assertEqual(change.block, self.x)
        self.assertEqual(self.replica.timeOut(Timer.RESEND)[:-1], [Send(change)])

    def test_oneVoteForMessagesTogether(self) -> None:
        first = self.set.prepare(0, self.x)
        effects = self.replica.receive([first, self.set.proposal(1, self.x), first])
        commit, prepare = self.set.commit(2, self.x), self.set.prepare(2, self.x)
        self.assertEqual(effects, [*TIMERS, Send(prepare), Send(commit)])

    def test_leaderWithoutWorkWaits(self) -> None:
        self.replica = self.makeReplica(1)
        self.application.hasWork = False
        self.assertEqual(self.replica.propose(1), TIMERS)
        self.application.hasWork = True
        self.assertEqual(len(sent(self.replica.propose(1), Proposal)), 1)
        self.assertEqual(self.replica.propose(1), [])

    def test_leaderBehindDoesNotPropose(self) -> None:
        """On top of a block that it has not decided."""
        self.replica = self.makeReplica(1)
        self.application.head = self.x.header
        self.assertEqual(sent(self.replica.propose(1), Proposal), [])

    def test_singleReplicaIsAQuorum(self) -> None:
        self.set = SigningReplicas(1)
        self.application = PlainApplication(self.set)
        self.replica = self.makeReplica(0)
        for height in (1, 2):
            decides = [
                effect for effect in self.replica.propose(height) if isinstance(effect, Decide)
            ]
            self.assertEqual([decide.candidate.header.height for decide in decides], [height])
            self.application.head = decides[0].candidate.header

    def test_equalInputsGiveEqualEffects(self) -> None:
        inputs: list[Message] = [
            self.set.prepare(0, self.x),
            self.set.proposal(1, self.x),
            self.set.prepare(1, self.x),
            self.set.roundChange(0, 2),
            self.set.bound(3, 1, self.x, 0),
            self.set.prepare(0, self.y),
            self.set.commit(0, self.x),
            self.set.commit(1, self.x),
        ]
        first = [repr(self.replica.receive([message])) for message in inputs]
        self.replica = self.makeReplica(2)
        self.assertEqual([repr(self.replica.receive([message])) for message in inputs], first)
        self.assertGreater(len("".join(first)), 1000)


class ProposalTests(ReplicaTestCase):
    def test_onlyTheLeaderMayPropose(self) -> None:
        self.ignores(*(self.set.proposal(sender, self.x) for sender in (0, 2, 3)))

    def test_forgedProposalIsIgnored(self) -> None:
        good = self.set.proposal(1, self.x)
        forged = self.set.proposal(3, self.x).signature
        self.ignores(replace(good, signature=forged), replace(good, block=self.y))

    def test_wrongParentIsIgnored(self) -> None:
        orphan = self.set.block(1, parent=replace(self.set.head, timestamp=5))
        self.ignores(self.set.proposal(1, orphan))

    def test_invalidBlockGetsNoVote(self) -> None:
        """A valid one is still accepted afterwards."""
        self.application.invalid.add(self.x.header.hash)
        self.ignores(self.set.proposal(1, self.x))
        self.assertEqual(len(self.receive(self.set.proposal(1, self.y))), 3)

    def test_uncheckedBlockCanBeRetried(self) -> None:
        """A block that cannot be checked now can be checked with a retransmission."""
        self.application.unknown.add(self.x.header.hash)
        self.ignores(self.set.proposal(1, self.x))
        self.application.unknown.clear()
        self.assertEqual(len(self.receive(self.set.proposal(1, self.x))), 3)

    def test_unjustifiedProposalIsIgnored(self) -> None:
        """In later rounds, without a quorum's round changes."""
        block = self.set.block(3, view=2)
        self.ignores(self.set.proposal(3, block, 2))
        changes = [self.set.roundChange(sender, 2) for sender in (0, 3, 3)]
        self.ignores(self.set.proposal(3, block, 2, changes))
        self.assertEqual(self.replica.round, 0)

    def test_justifiedProposalIsFollowed(self) -> None:
        """To its later round."""
        changes = [self.set.roundChange(sender, 2) for sender in (0, 1, 3)]
        block = self.set.block(3, view=2)
        effects = self.receive(self.set.proposal(3, block, 2, changes))
        self.assertEqual(sent(effects, RoundChange), [self.set.roundChange(2, 2)])
        self.assertEqual(sent(effects, PhaseVote), [self.set.prepare(2, block, 2)])
        self.assertEqual((self.replica.round, self.replica.view), (2, 2))

    def test_earlierRoundIsIgnored(self) -> None:
        self.replica.propose(1)
        self.timeOut()
        self.ignores(self.set.proposal(1, self.x))

    def test_roundOutOfRangeIsIgnored(self) -> None:
        """Nothing is stored for it."""
        for round in (-1, ROUNDS_AHEAD + 1, 2**64):
            vote = replace(self.set.prepare(0, self.x), round=round)
            self.ignores(vote, replace(vote, phase=Phase.COMMIT))
            self.ignores(replace(self.set.proposal(1, self.x), round=round))
            self.ignores(replace(self.set.roundChange(0, 1), round=round))
        self.assertEqual(len(self.replica._rounds), 0)

    def test_repeatedProposalIsIgnored(self) -> None:
        proposal = self.set.proposal(1, self.x)
        self.receive(proposal)
        self.ignores(proposal)


class ContradictionTests(ReplicaTestCase):
    def test_secondVoteIsEvidence(self) -> None:
        """Once, and only the first vote counts."""
        for make in (self.set.prepare, self.set.commit):
            first, second = make(0, self.x), make(0, self.y)
            self.ignores(first, first)
            self.assertEqual(self.receive(second), [Evidence(first, second)])
            self.ignores(second, make(0, self.set.block(7)))
        votes = sent(self.receive(self.set.proposal(1, self.x)), PhaseVote)
        self.assertEqual(votes, [self.set.prepare(2, self.x), self.set.commit(2, self.x)])

    def test_secondProposalIsEvidence(self) -> None:
        """Justified or not."""
        first, second = self.set.proposal(1, self.x), self.set.proposal(1, self.y)
        self.receive(first)
        self.assertEqual(self.receive(second), [Evidence(first, second)])
        self.ignores(second, self.set.proposal(1, self.set.block(7)))

    def test_forgedSignatureIsNoEvidence(self) -> None:
        self.receive(self.set.prepare(0, self.x), self.set.proposal(1, self.x))
        self.ignores(replace(self.set.prepare(3, self.y), sender=0))
        self.ignores(replace(self.set.proposal(3, self.y), sender=1))

    def test_sameHeaderIsNoEvidence(self) -> None:
        """Only the header is signed, so other transactions with it prove nothing."""
        self.receive(self.set.proposal(1, self.x))
        other = replace(self.x, transactions=[object()])
        self.ignores(self.set.proposal(1, other))

    def test_leadersOtherPrepareIsEvidence(self) -> None:
        """A leader prepares another block than it proposed."""
        proposal, prepare = self.set.proposal(1, self.x), self.set.prepare(1, self.y)
        self.receive(proposal)
        self.assertEqual(self.receive(prepare), [Evidence(proposal, prepare)])

    def test_leadersEarlierPrepareIsEvidence(self) -> None:
        """Its prepare of another block arrives before its proposal."""
        proposal, prepare = self.set.proposal(1, self.x), self.set.prepare(1, self.y)
        self.ignores(prepare)
        self.assertEqual(
            [each for each in self.receive(proposal) if isinstance(each, Evidence)],
            [Evidence(prepare, proposal)],
        )

    def test_votesOfOtherRoundsAreNoEvidence(self) -> None:
        self.ignores(self.set.prepare(0, self.x, 0), self.set.prepare(0, self.y, 1))
        self.ignores(self.set.commit(0, self.x, 0), self.set.commit(0, self.y, 1))


class VoteTests(ReplicaTestCase):
    def test_otherPhasesAreNoVotes(self) -> None:
        self.receive(self.set.proposal(1, self.x))
        for phase in (Phase.PROPOSE, Phase.ROUND_CHANGE):
            self.ignores(*(self.set.vote(phase, sender, self.x) for sender in (0, 1, 3)))

    def test_forgedVoteIsIgnored(self) -> None:
        self.receive(self.set.proposal(1, self.x))
        good = self.set.prepare(0, self.x)
        for bad in (
            replace(good, sender=3),
            replace(good, sender=4),
            replace(good, sender=-1),
            replace(good, digest=self.y.header.hash),
            replace(good, digest=good.digest + b"x"),
            replace(good, round=1),
            replace(good, phase=Phase.COMMIT),
            replace(good, signature=b"x" * 64),
        ):
            self.ignores(bad)
        self.ignores(self.set.prepare(2, self.x), self.set.prepare(1, self.x))
        self.assertEqual(len(self.receive(good)), 1)

    def test_votesForOtherBlocksDoNotCount(self) -> None:
        self.receive(self.set.proposal(1, self.x))
        self.ignores(self.set.prepare(0, self.y), self.set.prepare(1, self.x))
        self.assertEqual(len(self.receive(self.set.prepare(3, self.x))), 1)
        self.ignores(self.set.commit(0, self.y), self.set.commit(1, self.x))
        self.assertIsInstance(self.receive(self.set.commit(3, self.x))[0], Decide)

    def test_votesOfOtherRoundsDoNotCount(self) -> None:
        """Nor do prepares count as commits."""
        self.prepare(self.x)
        self.ignores(self.set.commit(0, self.x, 0), self.set.commit(1, self.x, 1))
        self.ignores(self.set.commit(3, self.x, 2), self.set.prepare(3, self.x))
        effects = self.receive(self.set.commit(1, self.x, 0))
        [decide] = [effect for effect in effects if isinstance(effect, Decide)]
        self.assertEqual([index for index, _ in decide.certificate.signatures], [0, 1, 2])

    def test_commitsOnceARound(self) -> None:
        self.assertEqual(len(sent(self.prepare(self.x), PhaseVote)), 2)
        self.ignores(self.set.prepare(3, self.x), self.set.prepare(1, self.x))

    def test_lateCommitsStillDecide(self) -> None:
        self.prepare(self.x)
        self.timeOut()
        self.ignores(self.set.commit(0, self.x))
        effects = self.receive(self.set.commit(1, self.x))
        self.assertIsInstance(effects[0], Decide)

    def test_latePreparesDoNotLock(self) -> None:
        self.receive(self.set.proposal(1, self.x))
        self.timeOut()
        self.ignores(self.set.prepare(0, self.x), self.set.prepare(3, self.x))
        self.join()
        [change] = sent(self.timeOut(), RoundChange)
        self.assertIsNone(change.prepared)

    def test_votesOfDecidedHeightsAreIgnored(self) -> None:
        self.prepare(self.x)
        self.receive(self.set.commit(0, self.x), self.set.commit(1, self.x))
        self.ignores(self.set.commit(3, self.x), self.set.prepare(3, self.x))
        self.ignores(self.set.proposal(1, self.x))


class FutureMessagesTests(ReplicaTestCase):
    def test_nextHeightIsHandledLater(self) -> None:
        following = self.set.block(9, parent=self.x.header)
        future: list[Proposal | PhaseVote] = [
            self.set.proposal(2, following),
            self.set.prepare(2, following),
        ]
        self.replica = self.makeReplica(3)
        for message in future:
            request = BlockRequest(sender=3, height=1)
            self.assertEqual(self.receive(message), [Send(request, message.sender)])
        self.prepare(self.x)
        effects = self.receive(self.set.commit(0, self.x), self.set.commit(1, self.x))
        self.assertEqual(sent(effects, PhaseVote), [self.set.prepare(3, following)])
        effects = self.receive(self.set.prepare(0, following))
        self.assertEqual(sent(effects, PhaseVote), [self.set.commit(3, following)])

    def test_storedMessagesAreBounded(self) -> None:
        """For each sender, and by height."""
        future = FutureMessages()
        far = self.set.vote(Phase.PREPARE, 0, self.x, height=2 + HEIGHTS_AHEAD)
        future.add(far, 1)
        self.assertEqual(future.pop(far.height), [])
        votes = [
            self.set.vote(Phase.PREPARE, 0, self.x, round, height=2)
            for round in range(MESSAGES_KEPT + 5)
        ]
        for vote in votes:
            future.add(vote, 1)
            future.add(vote, 1)
        other = self.set.vote(Phase.PREPARE, 1, self.x, height=2)
        future.add(other, 1)
        future.add(BlockRequest(sender=3, height=2), 1)
        self.assertEqual(future.pop(2), [*votes[:MESSAGES_KEPT], other])
        self.assertEqual(future.pop(2), [])

    def test_pastHeightsMakeRoom(self) -> None:
        future = FutureMessages()
        for round in range(MESSAGES_KEPT):
            future.add(self.set.vote(Phase.PREPARE, 0, self.x, round, height=2), 1)
        self.assertEqual(future.pop(3), [])
        late = self.set.vote(Phase.PREPARE, 0, self.x, height=4)
        future.add(late, 3)
        self.assertEqual(future.pop(4), [late])
