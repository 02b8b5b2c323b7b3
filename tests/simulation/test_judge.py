"""
Tests for the judge: each violated invariant is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Candidate, Certificate, Header, Kind, Phase, Transaction, proposeBlock
from svcbroker.ledgers.pbft._protocol import ProposedBlock
from svcbroker.model import Event, EventId
from tools.simulation.adversary import Adversary
from tools.simulation.genesis import genesisOf, seedsOf
from tools.simulation.judge import (
    AGREEMENT,
    CERTIFICATE,
    DELIVERY,
    DURABILITY,
    SIGNATURE,
    VALIDITY,
    VIEW,
    Judge,
    Violation,
)


class JudgeTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.genesis = genesisOf(4)
        self.judge = Judge(self.genesis)
        self.state = self.genesis.state()
        self.head = self.genesis.header()
        # All four keys, to sign anything.
        self.keys = Adversary(Random(0), self.genesis.chain, 4, dict(enumerate(seedsOf(4))))
        self.opening = self.transaction(1, Kind.OPEN)
        self.voters = 0

    def transaction(self, nonce: int, kind: Kind = Kind.PUBLISH) -> Transaction:
        """A transaction sent by a client."""
        made = Transaction.create(kind, bytes(20), nonce, 0, "topic")
        self.judge.submitted(made)
        return made

    def block(self, *transactions: Transaction, delay: int = 0) -> Candidate:
        """A block that may come next."""
        time = self.head.timestamp + delay
        return proposeBlock(self.state, self.head, self.head.view, time, transactions)

    def certificate(self, header: Header, *signers: int, round: int = 0) -> Certificate:
        """A certificate."""
        return Certificate(
            round=round,
            signatures=[
                (i, self.keys.sign(i, Phase.COMMIT, header.height, round, header.hash))
                for i in signers
            ],
        )

    def prepare(self, header: Header, round: int) -> None:
        """Have different replicas prepare blocks of one height."""
        height, self.voters = header.height, self.voters + 1
        self.judge.sent(self.voters, self.keys.vote(0, Phase.PREPARE, height, round, header.hash))

    def decide(self, block: Candidate, *signers: int, index: int = 0) -> None:
        """Have a replica decide a block, which it has prepared."""
        self.prepare(block.header, 0)
        certificate = self.certificate(block.header, *(signers or (0, 1, 2)))
        self.judge.decided(index, block.header, certificate, block.transactions)

    def go(self, *transactions: Transaction) -> None:
        """Decide a block, and make it final."""
        block = self.block(*transactions)
        self.decide(block)
        self.judge.final(block.header.height)
        self.state.apply(block.outcome, block.history)
        self.head = block.header

    def violates(self, invariant: str, call: Any, *args: Any, **kw: Any) -> None:
        """Check that a call is a violation, and that the judge remembers it."""
        violation = self.assertRaises(Violation, call, *args, **kw)
        self.assertEqual(violation.invariant, invariant)
        self.assertIsNotNone(self.judge.verdict)

    def test_correctChainHasNoViolation(self) -> None:
        self.go(self.opening)
        published = [self.transaction(2), self.transaction(3)]
        self.go(*published)
        self.judge.acknowledged(0, published[1].hash, 2)
        self.judge.loaded(0, self.judge.chain, 2)
        self.judge.finish([(0, self.judge.chain)], 2)
        self.assertIsNone(self.judge.verdict)

    def test_forkIsReported(self) -> None:
        """Before and after the first block is final."""
        first, second = self.block(self.opening), self.block(self.opening, delay=1)
        self.decide(first)
        self.decide(first, 1, 2, 3, index=1)
        self.violates(AGREEMENT, self.decide, second, index=1)
        self.judge.final(1)
        self.violates(AGREEMENT, self.decide, second, index=1)

    def test_lostBlockMayBeReplaced(self) -> None:
        """But not one found on disk."""
        first, second = self.block(self.opening), self.block(self.opening, delay=1)
        self.decide(first)
        self.judge.found(self.head)
        self.decide(second)
        self.judge.found(second.header)
        self.assertEqual(self.judge.height, 1)
        self.violates(AGREEMENT, self.decide, first)

    def test_badCertificateIsReported(self) -> None:
        """Too few signers, a repeated or unknown one, and signatures of another round or block."""
        block = self.block(self.opening)
        header = block.header
        good = self.certificate(header, 0, 1, 2)
        bad = [
            self.certificate(header, 0, 1),
            self.certificate(header, 0, 1, 1),
            replace(good, signatures=[*good.signatures[:2], (7, good.signatures[2][1])]),
            replace(good, round=1),
            self.certificate(self.block(self.opening, delay=1).header, 0, 1, 2),
        ]
        for certificate in bad:
            self.violates(
                CERTIFICATE, self.judge.decided, 0, header, certificate, block.transactions
            )

    def test_invalidBlockIsReported(self) -> None:
        """Without a parent, with a wrong state root, or with invented transactions."""
        block = self.block(self.opening)
        signed = self.certificate(block.header, 0, 1, 2)
        self.violates(VALIDITY, self.judge.decided, 0, block.header, signed, [])
        wrong = replace(block.header, stateRoot=bytes(32))
        signed = self.certificate(wrong, 0, 1, 2)
        self.violates(VALIDITY, self.judge.decided, 0, wrong, signed, [self.opening])
        invented = Transaction.create(Kind.OPEN, bytes(20), 9, 0, "other")
        self.violates(VALIDITY, self.decide, self.block(invented))
        self.go(self.opening)
        orphan = replace(self.block(self.transaction(2)).header, parent=bytes(32))
        signed = self.certificate(orphan, 0, 1, 2)
        self.violates(VALIDITY, self.judge.decided, 0, orphan, signed, [self.transaction(2)])

    def test_wrongViewIsReported(self) -> None:
        """A later view than that of its round, an earlier one, and the view of another proposer."""
        head = self.head
        for view, round in ((1, 0), (4, 0), (1_000_000_000, 2), (0, 1), (0, 4)):
            block = proposeBlock(self.state, head, view, head.timestamp, [self.opening])
            self.prepare(block.header, round)
            certificate = self.certificate(block.header, 0, 1, 2, round=round)
            self.violates(
                VIEW, self.judge.decided, 0, block.header, certificate, block.transactions
            )
            self.judge.gaveUp()
        block = proposeBlock(self.state, head, 2, head.timestamp, [self.opening])
        for round in (2, 5):
            self.prepare(block.header, round)
        self.judge.decided(
            0, block.header, self.certificate(block.header, 0, 1, 2, round=5), block.transactions
        )

    def test_unpreparedBlockIsReported(self) -> None:
        block = self.block(self.opening)
        certificate = self.certificate(block.header, 0, 1, 2)
        self.violates(VIEW, self.judge.decided, 0, block.header, certificate, block.transactions)

    def event(self, sequence: int) -> Event:
        """An event that a reader got."""
        eventId = EventId("00000000", sequence, 2)
        return Event(topic="topic", content=b"", extensions={}, eventId=eventId)

    def test_wrongDeliveryIsReported(self) -> None:
        """An event twice, one left out, one that is not final, and a last one missing."""
        self.go(self.opening)
        self.go(self.transaction(2), self.transaction(3))
        for sequence in (1, 2):
            self.judge.delivered(self.event(sequence), sequence)
        for sequence, expected in ((1, 2), (2, 1), (3, 3)):
            self.violates(DELIVERY, self.judge.delivered, self.event(sequence), expected)
        final = self.judge.sequences()
        self.assertEqual(final, {"topic": 2})
        self.judge.read({"topic": 2}, final)
        self.violates(DELIVERY, self.judge.read, {"topic": 1}, final)
        self.violates(DELIVERY, self.judge.read, {}, final)

    def test_wrongSequenceNumberIsReported(self) -> None:
        self.go(self.opening)
        published = self.transaction(2)
        self.go(published)
        self.violates(VALIDITY, self.judge.acknowledged, 0, published.hash, 2)

    def test_lostAcknowledgedTransactionIsReported(self) -> None:
        """Also SUCCESS for a transaction that is not final."""
        self.violates(DURABILITY, self.judge.acknowledged, 0, self.opening.hash, 0)
        self.go(self.opening)
        self.judge.acknowledged(0, self.opening.hash, 0)
        self.violates(DURABILITY, self.judge.loaded, 0, self.judge.chain[:1], 1)
        self.violates(DURABILITY, self.judge.finish, [(0, self.judge.chain[:1])], 1)

    def test_executionOfRefusedIsReported(self) -> None:
        """A transaction is executed after a client was told that it was not."""
        self.judge.refused(self.opening.hash)
        self.violates(DURABILITY, self.go, self.opening)

    def test_doubleSigningIsReported(self) -> None:
        """Repeating a vote is no violation."""
        votes = [
            self.keys.vote(0, Phase.PREPARE, 1, 0, digest) for digest in (bytes(32), b"x" * 32)
        ]
        self.judge.sent(0, votes[0])
        self.judge.sent(0, votes[0])
        self.judge.sent(0, replace(votes[1], round=1))
        self.judge.sent(0, replace(votes[1], phase=Phase.COMMIT))
        self.violates(SIGNATURE, self.judge.sent, 0, votes[1])

    def test_proposalAndOtherPrepareAreReported(self) -> None:
        """A leader's proposal is its prepare."""
        first, second = self.block(self.opening), self.block(self.opening, delay=1)
        block = ProposedBlock(header=first.header, transactions=first.transactions)
        self.judge.sent(1, self.keys.proposal(1, 0, block, ()))
        self.judge.sent(1, self.keys.vote(1, Phase.PREPARE, 1, 0, first.header.hash))
        prepare = self.keys.vote(1, Phase.PREPARE, 1, 0, second.header.hash)
        self.violates(SIGNATURE, self.judge.sent, 1, prepare)

    def test_otherBlockOnDiskIsReported(self) -> None:
        self.go(self.opening)
        other = self.head
        forged: Sequence[Header] = [self.genesis.header(), replace(other, timestamp=1)]
        self.violates(AGREEMENT, self.judge.loaded, 0, forged, 0)
