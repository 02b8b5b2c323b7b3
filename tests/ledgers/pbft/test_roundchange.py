"""
Tests for a single replica that changes rounds, catches up, and restarts.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from svcbroker.ledgers.pbft._protocol import (
    BlockRequest,
    Decide,
    DecidedBlock,
    PhaseVote,
    Proposal,
    RoundChange,
    Send,
    StartTimer,
    Timer,
)
from tests.ledgers.pbft.sets import sent
from tests.ledgers.pbft.test_replica import TIMERS, ReplicaTestCase


class TimeOutTests(ReplicaTestCase):
    def test_idleReplicaDoesNotTimeOut(self) -> None:
        for timer in Timer:
            self.assertEqual(self.replica.timeOut(timer), [])

    def test_timeoutSendsRoundChange(self) -> None:
        """Without a lock."""
        self.replica.propose(1)
        effects = self.timeOut()
        change = self.set.roundChange(2, 1)
        self.assertEqual(effects, [Send(change)])
        self.assertEqual((self.replica.round, self.replica.view), (1, 1))

    def test_timerWaitsForQuorum(self) -> None:
        """
        The round timer starts once a quorum has reached the round, so that no replica stays ahead
        for ever.
        """
        self.replica.propose(1)
        self.ignores(self.set.roundChange(0, 1), self.set.roundChange(0, 1))
        self.assertEqual(sent(self.timeOut(), RoundChange), [self.set.roundChange(2, 1)])
        self.assertEqual(self.timeOut(), [])
        effects = self.receive(self.set.roundChange(3, 5))
        self.assertIn(StartTimer(Timer.ROUND, 2.0), effects)
        self.assertEqual(sent(self.timeOut(), RoundChange), [self.set.roundChange(2, 2)])
        self.assertEqual(self.timeOut(), [])

    def test_timerStartsWithJustifiedRound(self) -> None:
        """A quorum's round changes have brought it to the round."""
        y = self.set.block(2, view=2)
        changes = [self.set.roundChange(sender, 2) for sender in (0, 1, 3)]
        effects = self.receive(self.set.proposal(3, y, 2, changes))
        self.assertIn(StartTimer(Timer.ROUND, 4.0), effects)

    def test_timeoutsDoubleUpToBound(self) -> None:
        """The next height starts with the first one."""
        self.replica.propose(1)
        delays = []
        for _ in range(40):
            effects = [*self.timeOut(), *self.join()]
            delays += [e.delay for e in effects if isinstance(e, StartTimer)]
        self.assertEqual(delays[:6], [2.0, 4.0, 8.0, 16.0, 32.0, 60.0])
        self.assertEqual(set(delays[6:]), {60.0})
        self.replica.receive([self.decided()])
        self.assertEqual(self.replica.propose(2)[:2], TIMERS)

    def decided(self, sender: int = 0) -> DecidedBlock:
        """X, decided."""
        certificate = self.set.certificate(self.x, (0, 1, 3))
        self.application.blocks[1] = (self.x.header, certificate)
        return DecidedBlock(sender=sender, header=self.x.header, certificate=certificate)

    def test_lockIsReportedInLaterRounds(self) -> None:
        """With its certificate."""
        self.prepare(self.x)
        certificate = self.set.prepared(self.x, 0, (0, 1, 2))
        proposed = self.set.proposal(1, self.x).signature
        expected = [certificate.signatures[0], (1, proposed), certificate.signatures[2]]
        for round in (1, 2):
            [change] = sent(self.timeOut(), RoundChange)
            assert change.prepared is not None
            self.assertEqual((change.round, change.prepared.round), (round, 0))
            self.assertEqual(list(change.prepared.signatures), expected)
            self.assertEqual(change.block, self.x)
            self.set.rules().checkRoundChange(change)
            self.join()

    def test_highestLockIsReported(self) -> None:
        self.prepare(self.x)
        y = self.set.block(2, view=2)
        changes = [self.set.roundChange(sender, 2) for sender in (0, 1, 3)]
        self.receive(self.set.proposal(3, y, 2, changes))
        effects = self.receive(self.set.prepare(0, y, 2), self.set.prepare(1, y, 2))
        self.assertEqual(sent(effects, PhaseVote), [self.set.commit(2, y, 2)])
        [change] = sent(self.timeOut(), RoundChange)
        assert change.prepared is not None
        self.assertEqual((change.prepared.round, change.block), (2, y))

    def test_lockedReplicaRefusesOtherBlock(self) -> None:
        """Unless a quorum's round changes justify it."""
        self.prepare(self.x)
        mine = sent(self.timeOut(), RoundChange)
        y = self.set.block(2, view=2)
        changes = [*mine, *(self.set.roundChange(sender, 1) for sender in (0, 1))]
        moved = [replace(change, round=2) for change in changes]
        self.ignores(self.set.proposal(3, y, 2, moved))
        honest = [self.set.bound(2, 2, self.x, 0), *(self.set.roundChange(i, 2) for i in (0, 1))]
        self.ignores(self.set.proposal(3, y, 2, honest))
        effects = self.receive(self.set.proposal(3, self.x, 2, honest))
        self.assertEqual(sent(effects, PhaseVote), [self.set.prepare(2, self.x, 2)])

    def test_messagesAreRetransmitted(self) -> None:
        """Those of the current round, until the height is decided."""
        first = self.prepare(self.x)
        said = [*sent(first, PhaseVote)]
        again = self.replica.timeOut(Timer.RESEND)
        self.assertEqual(again, [*map(Send, said), StartTimer(Timer.RESEND, 0.5)])
        [change] = sent(self.timeOut(), RoundChange)
        again = self.replica.timeOut(Timer.RESEND)
        self.assertEqual(again, [Send(change), StartTimer(Timer.RESEND, 0.5)])

    def test_unreservedRoundIsNotEntered(self) -> None:
        """It is tried again."""
        self.replica.propose(1)
        self.application.mayReserve = False
        self.assertEqual(self.timeOut(), [StartTimer(Timer.ROUND, 1.0)])
        self.assertEqual(self.application.reserved, [(1, 1)])
        self.ignores(self.set.roundChange(0, 1))
        self.assertEqual(self.receive(self.set.roundChange(3, 1)), [StartTimer(Timer.ROUND, 1.0)])
        changes = [self.set.roundChange(sender, 2) for sender in (0, 1, 3)]
        block = self.set.block(3, view=2)
        self.assertEqual(sent(self.receive(self.set.proposal(3, block, 2, changes)), PhaseVote), [])
        self.assertEqual(self.replica.round, 0)
        self.application.mayReserve = True
        self.assertEqual(len(sent(self.timeOut(), RoundChange)), 1)


class FollowTests(ReplicaTestCase):
    def test_oneReplicaIsNotFollowed(self) -> None:
        for round in (1, 5, 2**64 - 1):
            self.ignores(self.set.roundChange(0, round))
        self.assertEqual(self.replica.round, 0)

    def test_lowestOfManyRoundsIsEntered(self) -> None:
        self.ignores(self.set.roundChange(0, 7))
        effects = self.receive(self.set.roundChange(1, 3))
        self.assertEqual(sent(effects, RoundChange), [self.set.roundChange(2, 3)])
        self.assertEqual(self.replica.round, 3)
        effects = self.receive(self.set.roundChange(3, 5))
        self.assertEqual(sent(effects, RoundChange), [self.set.roundChange(2, 5)])

    def test_farRoundsAreFollowed(self) -> None:
        """By a replica that was away for long."""
        self.receive(self.set.roundChange(0, 1000), self.set.roundChange(1, 1001))
        self.assertEqual(self.replica.round, 1000)
        self.assertLess(len(self.replica._rounds), 3)

    def test_ownRoundChangeMustBeSigned(self) -> None:
        """Others cannot send round changes in its name."""
        forged = replace(self.set.roundChange(0, 3), sender=1)
        self.ignores(self.set.roundChange(0, 3), forged)

    def test_roundZeroIsNotEntered(self) -> None:
        self.replica = self.makeReplica(1)
        first = self.replica.propose(1)
        self.ignores(*(self.set.roundChange(sender, 0) for sender in (0, 2, 3)))
        self.assertEqual(len(sent(first, Proposal)), 1)


class NewLeaderTests(ReplicaTestCase):
    def lead(self, *changes: RoundChange) -> Sequence[Proposal]:
        """Enter round 1, and receive round changes."""
        self.timeOut()
        return sent(self.receive(*changes), Proposal)

    def test_leaderProposesNewBlock(self) -> None:
        """Of its own view, if no replica is locked."""
        self.replica.propose(1)
        self.assertEqual(self.lead(self.set.roundChange(0, 1)), [])
        [proposal] = sent(self.receive(self.set.roundChange(3, 1)), Proposal)
        self.assertEqual({change.sender for change in proposal.justification}, {0, 2, 3})
        self.assertEqual(proposal.block.header.view, 1)
        self.set.rules().checkProposal(proposal, self.set.head)
        self.assertEqual(sent(self.receive(self.set.roundChange(1, 1)), Proposal), [])

    def test_leaderProposesLockedBlock(self) -> None:
        self.replica.propose(1)
        [proposal] = self.lead(self.set.bound(0, 1, self.x, 0), self.set.roundChange(3, 1))
        self.assertEqual(proposal.block, self.x)
        self.set.rules().checkProposal(proposal, self.set.head)

    def test_leaderProposesOwnLock(self) -> None:
        self.prepare(self.x)
        [proposal] = self.lead(self.set.roundChange(0, 1), self.set.roundChange(3, 1))
        self.assertEqual(proposal.block, self.x)

    def test_falseLockIsNotCounted(self) -> None:
        self.replica.propose(1)
        certificate = self.set.prepared(self.y, 0, (3, 3, 3))
        lie = self.set.roundChange(3, 1, certificate, self.y)
        self.assertEqual(self.lead(lie, self.set.roundChange(0, 1)), [])
        [proposal] = sent(self.receive(self.set.roundChange(1, 1)), Proposal)
        self.assertNotEqual(proposal.block, self.y)

    def test_nothingDueNothingNewProposed(self) -> None:
        """Only a locked block is."""
        self.receive(self.set.proposal(1, self.x))
        free = [self.set.roundChange(sender, 1) for sender in (0, 3)]
        self.assertEqual(self.lead(*free), [])
        [proposal] = sent(self.receive(self.set.bound(1, 1, self.x, 0)), Proposal)
        self.assertEqual(proposal.block, self.x)


class CatchUpTests(ReplicaTestCase):
    def setUp(self) -> None:
        super().setUp()
        certificate = self.set.certificate(self.x, (0, 1, 3))
        self.decided = DecidedBlock(sender=3, header=self.x.header, certificate=certificate)

    def storeX(self) -> None:
        """Have the application store X."""
        self.application.blocks[1] = (self.x.header, self.decided.certificate)

    def test_decidedBlockIsAdopted(self) -> None:
        """The next one is requested."""
        self.storeX()
        self.replica.propose(1)
        request = Send(BlockRequest(sender=2, height=2), 3)
        self.assertEqual(self.receive(self.decided), [request])
        self.ignoresTimers()
        self.assertEqual(self.replica.head, self.x.header)

    def test_knownBlockIsDecided(self) -> None:
        """A decided block that it holds."""
        self.receive(self.set.proposal(1, self.x))
        effects = self.receive(self.decided)
        assert isinstance(effects[0], Decide)
        self.assertEqual(effects[0].candidate.header, self.x.header)
        self.assertEqual(effects[0].certificate, self.decided.certificate)

    def test_unknownBlockIsNotAdopted(self) -> None:
        """Its transactions are not available."""
        self.ignores(self.decided)
        self.assertEqual(self.replica.height, 1)

    def test_invalidDecidedBlockIsIgnored(self) -> None:
        """Without a valid certificate, or with another parent."""
        self.storeX()
        for certificate in (
            self.set.certificate(self.x, (0, 1)),
            self.set.certificate(self.x, (0, 1, 1)),
            self.set.certificate(self.y, (0, 1, 3)),
            self.set.certificate(self.x, (0, 1, 3), round=1, signedRound=0),
        ):
            self.ignores(replace(self.decided, certificate=certificate))
        orphan = self.set.block(1, parent=replace(self.set.head, timestamp=5))
        certificate = self.set.certificate(orphan, (0, 1, 3))
        self.ignores(DecidedBlock(sender=3, header=orphan.header, certificate=certificate))
        self.assertEqual(self.replica.head, self.set.head)

    def test_laterBlockCausesRequest(self) -> None:
        later = self.set.block(1, parent=self.x.header)
        certificate = self.set.certificate(later, (0, 1, 3))
        effects = self.receive(DecidedBlock(sender=3, header=later.header, certificate=certificate))
        self.assertEqual(effects, [Send(BlockRequest(sender=2, height=1), 3)])

    def test_requestsAreAnswered(self) -> None:
        """So are round changes of earlier heights."""
        request = BlockRequest(sender=0, height=1)
        self.ignores(request)
        self.storeX()
        self.receive(self.decided)
        answer = Send(replace(self.decided, sender=2), 0)
        self.assertEqual(self.receive(request), [answer])
        self.assertEqual(self.receive(self.set.roundChange(0, 1)), [answer])
        self.ignores(BlockRequest(sender=0, height=2), BlockRequest(sender=0, height=-5))

    def test_dueHeightIsProposedLater(self) -> None:
        """Once the replica gets there."""
        self.replica.propose(2)
        self.storeX()
        self.application.head = self.x.header
        [proposal] = sent(self.receive(self.decided), Proposal)
        self.assertEqual((proposal.sender, proposal.height), (2, 2))


class BeginningTests(ReplicaTestCase):
    def test_startRequestsBlock(self) -> None:
        request = Send(BlockRequest(sender=2, height=1))
        self.assertEqual(self.replica.start(0), [request])

    def test_startInReservedRound(self) -> None:
        """With a round change, and the first timeout."""
        request = Send(BlockRequest(sender=2, height=1))
        change = self.set.roundChange(2, 8)
        self.assertEqual(self.replica.start(8), [request, Send(change)])
        self.assertEqual(self.replica.propose(1), TIMERS[1:])
        self.assertEqual(self.join(), TIMERS[:1])
        effects = self.receive(self.set.roundChange(0, 9), self.set.roundChange(1, 9))
        self.assertIn(StartTimer(Timer.ROUND, 2.0), effects)
        self.ignores(self.set.proposal(1, self.x))

    def test_resumeRetransmits(self) -> None:
        """The timers start again."""
        request = Send(BlockRequest(sender=2, height=1))
        self.assertEqual(self.replica.resume(), [request])
        [change] = sent(self.replica.start(8), RoundChange)
        self.assertEqual(self.replica.resume(), [request, Send(change)])
        self.replica.propose(1)
        self.join()
        self.assertEqual(self.replica.resume(), [request, Send(change), *TIMERS])
