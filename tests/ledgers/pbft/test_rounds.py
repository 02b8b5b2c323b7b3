"""
Tests for the rules of round changes: each false claim is refused.
"""

from __future__ import annotations

from attrs import evolve
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Certificate, Phase
from svcbroker.ledgers.pbft._protocol import DecidedBlock, Proposal, RoundChange
from svcbroker.ledgers.pbft._votes import MessageRefused
from tests.ledgers.pbft.sets import SigningReplicas


class RulesTestCase(SynchronousTestCase):
    """
    Shared by these tests: four replicas at height 1, and the blocks X and Y.
    """

    def setUp(self) -> None:
        self.set = SigningReplicas()
        self.rules = self.set.rules()
        self.x = self.set.block(1)
        self.y = self.set.block(2)

    def refused(self, proposal: Proposal, reason: str) -> None:
        """Check that a proposal is refused with a reason."""
        error = self.assertRaises(MessageRefused, self.rules.checkProposal, proposal, self.set.head)
        self.assertIn(reason, str(error))

    def changeRefused(self, change: RoundChange, reason: str) -> None:
        """Check that a round change is refused with a reason, alone and in a justification."""
        error = self.assertRaises(MessageRefused, self.rules.checkRoundChange, change)
        self.assertIn(reason, str(error))
        others = [self.set.roundChange(sender, change.round) for sender in (0, 1, 2)]
        justification = [*(other for other in others if other.sender != change.sender), change]
        block = self.set.block(9, view=change.round) if change.block is None else change.block
        leader = (change.round + 1) % 4
        self.refused(self.set.proposal(leader, block, change.round, justification), reason)

    def follows(self, proposal: Proposal) -> None:
        """Check that a proposal is accepted."""
        self.rules.checkProposal(proposal, self.set.head)


class FirstRoundTests(RulesTestCase):
    def test_anyBlockInRoundZero(self) -> None:
        self.follows(self.set.proposal(1, self.x))

    def test_proposalMustBeSigned(self) -> None:
        """By its sender, for its height, round and block."""
        good = self.set.proposal(1, self.x)
        for bad in (
            replace(good, sender=2),
            replace(good, sender=4),
            replace(good, sender=-1),
            replace(good, round=1),
            replace(good, block=self.y),
            replace(good, signature=b""),
            replace(good, signature=self.set.prepare(1, self.x).signature),
        ):
            self.refused(bad, "PROPOSE is not signed")

    def test_numbersMustBeInRange(self) -> None:
        for number in (-1, 2**64):
            self.refused(replace(self.set.proposal(1, self.x), round=number), "is not one")
            change = replace(self.set.roundChange(0, 1), height=number)
            self.assertRaises(MessageRefused, self.rules.checkRoundChange, change)
        vote = self.set.prepare(0, self.x)
        for digest in (vote.digest + b"x", vote.digest[:-1]):
            self.assertRaises(MessageRefused, self.rules.checkVote, replace(vote, digest=digest))

    def test_signatureOfOtherChainIsRefused(self) -> None:
        """Although the keys are the same."""
        self.set.genesis = evolve(self.set.genesis, created=1)
        self.refused(self.set.proposal(1, self.x), "PROPOSE is not signed")

    def test_blockMustFollowTheLast(self) -> None:
        orphan = self.set.block(1, parent=self.set.block(7).header)
        reason = "does not follow"
        self.refused(self.set.proposal(1, orphan), reason)
        good = self.set.proposal(1, self.x)
        signature = self.set.sign(1, Phase.PROPOSE, 2, 0, self.x.header.hash)
        self.refused(replace(good, height=2, signature=signature), reason)

    def test_firstBlockHasParentsView(self) -> None:
        self.refused(self.set.proposal(1, self.set.block(1, view=1)), "first view")


class JustificationTests(RulesTestCase):
    def test_newBlockHasRoundsView(self) -> None:
        """If no replica is locked."""
        changes = [self.set.roundChange(sender, 1) for sender in (0, 2, 3)]
        self.follows(self.set.proposal(2, self.set.block(3, view=1), 1, changes))
        for view in (0, 2):
            block = self.set.block(3, view=view)
            self.refused(self.set.proposal(2, block, 1, changes), "not of its round's view")

    def test_quorumMustJustify(self) -> None:
        block = self.set.block(3, view=1)
        for senders in ((), (0,), (0, 2)):
            changes = [self.set.roundChange(sender, 1) for sender in senders]
            self.refused(self.set.proposal(2, block, 1, changes), "no quorum")

    def test_sendersMustBeDistinct(self) -> None:
        changes = [self.set.roundChange(sender, 1) for sender in (0, 2, 2)]
        block = self.set.block(3, view=1)
        self.refused(self.set.proposal(2, block, 1, changes), "counted twice")

    def test_roundChangesMustMatchRound(self) -> None:
        """And height."""
        block = self.set.block(3, view=2)
        for other in (1, 3):
            changes = [self.set.roundChange(sender, 2) for sender in (0, 1)]
            changes.append(self.set.roundChange(2, other))
            self.refused(self.set.proposal(3, block, 2, changes), "for another round")
        changes[-1] = self.set.roundChange(2, 2, height=2)
        self.refused(self.set.proposal(3, block, 2, changes), "for another round")

    def test_roundChangesMustBeSigned(self) -> None:
        changes = [self.set.roundChange(sender, 1) for sender in (0, 2, 3)]
        changes[1] = replace(changes[0], sender=2)
        block = self.set.block(3, view=1)
        self.refused(self.set.proposal(2, block, 1, changes), "ROUND_CHANGE is not signed")

    def test_unknownSendersAreRefused(self) -> None:
        changes = [self.set.roundChange(sender, 1) for sender in (0, 2)]
        changes.append(replace(changes[0], sender=4))
        block = self.set.block(3, view=1)
        self.refused(self.set.proposal(2, block, 1, changes), "not signed by node 4")

    def test_lockedBlockIsProposedAgain(self) -> None:
        """Although it is of an earlier view."""
        changes = [
            self.set.bound(0, 3, self.x, 0),
            self.set.roundChange(1, 3),
            self.set.roundChange(2, 3),
        ]
        self.follows(self.set.proposal(0, self.x, 3, changes))
        for block in (self.y, self.set.block(3, view=3)):
            self.refused(self.set.proposal(0, block, 3, changes), "another block")

    def test_highestLockDecides(self) -> None:
        later = self.set.block(3, view=1)
        changes = [
            self.set.bound(0, 3, later, 1),
            self.set.bound(1, 3, self.x, 0),
            self.set.roundChange(2, 3),
        ]
        for order in (changes, changes[::-1]):
            self.assertEqual(self.rules.highestPrepared(order), changes[0])
            self.follows(self.set.proposal(0, later, 3, order))
            self.refused(self.set.proposal(0, self.x, 3, order), "another block")

    def test_noLockNoHighest(self) -> None:
        self.assertIsNone(self.rules.highestPrepared([self.set.roundChange(0, 1)]))
        self.assertIsNone(self.rules.highestPrepared([]))


class PreparedTests(RulesTestCase):
    def test_validCertificateIsAccepted(self) -> None:
        """Of an earlier round."""
        self.rules.checkRoundChange(self.set.bound(3, 1, self.x, 0))
        self.rules.checkRoundChange(self.set.bound(3, 5, self.x, 4))

    def test_certificateNeedsQuorum(self) -> None:
        certificate = self.set.prepared(self.x, 0, (0, 1))
        self.changeRefused(self.set.roundChange(3, 1, certificate, self.x), "no quorum")

    def test_signersMustBeDistinct(self) -> None:
        for signers in ((0, 1, 1), (0, 0, 1), (0, 1, 0)):
            certificate = self.set.prepared(self.x, 0, signers)
            self.changeRefused(self.set.roundChange(3, 1, certificate, self.x), "rising order")

    def test_unknownSignersAreRefused(self) -> None:
        certificate = self.set.prepared(self.x, 0, (0, 1, 2))
        signatures = [*certificate.signatures[:2], (4, certificate.signatures[2][1])]
        certificate = replace(certificate, signatures=signatures)
        self.changeRefused(self.set.roundChange(3, 1, certificate, self.x), "node 4")

    def test_certificateIsForOneBlock(self) -> None:
        certificate = replace(self.set.prepared(self.x, 0, (0, 1, 2)), digest=self.y.header.hash)
        self.changeRefused(self.set.roundChange(3, 1, certificate, self.y), "PREPARE is not")

    def test_proposalCountsAsPrepare(self) -> None:
        """In any round."""
        certificate = self.set.prepared(self.x, 0, (0, 1, 2))
        signatures = list(certificate.signatures)
        signatures[1] = (1, self.set.proposal(1, self.x).signature)
        certificate = replace(certificate, signatures=signatures)
        self.rules.checkRoundChange(self.set.roundChange(3, 1, certificate, self.x))
        signatures[1] = (1, self.set.proposal(1, self.x, 1).signature)
        certificate = replace(certificate, signatures=signatures)
        self.changeRefused(self.set.roundChange(3, 1, certificate, self.x), "PREPARE is not")

    def test_commitsAreNotPrepares(self) -> None:
        certificate = self.set.prepared(self.x, 0, (0, 1, 2))
        commits = self.set.certificate(self.x, (0, 1, 2)).signatures
        certificate = replace(certificate, signatures=commits)
        self.changeRefused(self.set.roundChange(3, 1, certificate, self.x), "PREPARE is not")

    def test_lockIsOfEarlierRound(self) -> None:
        for preparedRound in (2, 3):
            change = self.set.bound(3, 2, self.x, preparedRound)
            self.changeRefused(change, "not before its own")

    def test_lockedBlockMustBeIncluded(self) -> None:
        """Exactly that of the certificate."""
        certificate = self.set.prepared(self.x, 0, (0, 1, 2))
        reason = "does not bring the block"
        self.changeRefused(self.set.roundChange(3, 1, certificate, None), reason)
        self.changeRefused(self.set.roundChange(3, 1, certificate, self.y), reason)
        self.changeRefused(self.set.roundChange(3, 1, None, self.x), "not bound to")

    def test_lockIsSigned(self) -> None:
        """It can be neither removed nor replaced."""
        change = self.set.bound(3, 2, self.x, 1)
        self.changeRefused(replace(change, prepared=None, block=None), "ROUND_CHANGE is not")
        older = self.set.prepared(self.x, 0, (0, 1, 2))
        self.changeRefused(replace(change, prepared=older), "ROUND_CHANGE is not")

    def test_certificateIsForOneRound(self) -> None:
        """
        In round 0 all prepare X, but only A receives a quorum. In round 1 the leader B proposes Y
        with the round changes of B, C and Z, which are not locked; only C decides Y, and is cut
        off. In round 2, Z claims that the prepares of round 0 for X are of round 1, which would
        undo the decision.
        """
        a, b, c, z = 0, 1, 2, 3
        y = self.set.block(2, view=1)
        self.follows(
            self.set.proposal(
                (1 + 1) % 4, y, 1, [self.set.roundChange(sender, 1) for sender in (b, c, z)]
            )
        )
        moved = self.set.prepared(self.x, 1, (a, b, z), signedRound=0)
        lie = self.set.roundChange(z, 2, moved, self.x)
        honest = [self.set.bound(a, 2, self.x, 0), self.set.bound(b, 2, y, 1)]
        self.changeRefused(lie, "PREPARE is not")
        self.refused(self.set.proposal(3, self.x, 2, [*honest, lie]), "PREPARE is not")
        # With Z's true word X is refused all the same, and Y is what may be proposed.
        true = [*honest, self.set.bound(z, 2, self.x, 0)]
        self.refused(self.set.proposal(3, self.x, 2, true), "another block")
        self.follows(self.set.proposal(3, y, 2, true))


class DecidedTests(RulesTestCase):
    def decided(self, certificate: Certificate) -> DecidedBlock:
        """X, decided by a certificate."""
        return DecidedBlock(sender=0, header=self.x.header, certificate=certificate)

    def test_quorumOfCommitsDecides(self) -> None:
        for signers, round in (((0, 1, 2), 0), ((0, 2, 3), 7), ((0, 1, 2, 3), 0)):
            self.rules.checkDecided(self.decided(self.set.certificate(self.x, signers, round)))

    def test_invalidCertificateIsRefused(self) -> None:
        good = self.set.certificate(self.x, (0, 1, 2))
        prepares = self.set.prepared(self.x, 0, (0, 1, 2)).signatures
        mixed = [*good.signatures[:2], (2, self.set.commit(2, self.x, 1).signature)]
        false = (
            self.set.certificate(self.x, (0, 1)),
            self.set.certificate(self.x, (0, 1, 1)),
            self.set.certificate(self.x, (0, 0, 0)),
            self.set.certificate(self.y, (0, 1, 2)),
            self.set.certificate(self.x, (0, 1, 2), round=1, signedRound=0),
            replace(good, signatures=prepares),
            replace(good, signatures=mixed),
            replace(good, signatures=[*good.signatures[:2], (4, good.signatures[2][1])]),
            replace(good, round=-1),
            replace(good, round=2**64),
        )
        # Known votes are recognized without their payload.
        for known in ((), (0, 1, 2, 3)):
            for sender in known:
                self.rules.checkVote(self.set.commit(sender, self.x))
                self.rules.checkVote(self.set.prepare(sender, self.x))
            for bad in false:
                self.assertRaises(MessageRefused, self.rules.checkDecided, self.decided(bad))
        self.rules.checkDecided(self.decided(good))


class QuorumTests(SynchronousTestCase):
    def test_quorumsShareCorrectReplica(self) -> None:
        for nodes, needed in ((1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (6, 5), (7, 5), (10, 7)):
            rules = SigningReplicas(nodes).rules()
            self.assertEqual((rules.replicas, rules.quorum), (nodes, needed))
