"""
Tests for the validity of blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import InvalidBlock, Transaction, proposeBlock
from svcbroker.ledgers.pbft._producer import MAX_DRIFT, ROUNDS_RESERVED
from svcbroker.ledgers.pbft._protocol import ProposedBlock
from svcbroker.storage import StorageFailed
from tests.ledgers.pbft.rig import LedgerRig
from tests.ledgers.pbft.sets import NOW


class ApplicationTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.start(interval="3600", block="1024")

    def start(self, **settings: str) -> None:
        """A chain at height 1, with four waiting events."""
        self.rig = LedgerRig(self, settings).start().open()
        self.rig.publish(4, content=b"x" * 300)
        producer = self.rig.ledger._producer
        self.application, self.pool = producer._application, producer._pool
        self.waiting = list(self.pool.transactions())

    def block(
        self, transactions: Sequence[Transaction], *, seconds: float = 0, view: int = 0
    ) -> ProposedBlock:
        """A block that another replica might propose."""
        candidate = proposeBlock(
            self.rig.ledger._state,
            self.application.head,
            view,
            int((NOW + seconds) * 1000),
            transactions,
        )
        return ProposedBlock(header=candidate.header, transactions=transactions)

    def refused(self, block: ProposedBlock, words: str) -> None:
        """Check that a block is refused."""
        error = self.assertRaises(InvalidBlock, self.application.check, block)
        self.assertIn(words, str(error))

    def test_firstWaitingTransactionsAreValid(self) -> None:
        """As many as fit, or fewer, in any view."""
        for count, view in ((1, 0), (2, 0), (2, 3)):
            block = self.block(self.waiting[:count], view=view)
            candidate = self.application.check(block)
            assert candidate is not None
            self.assertEqual(candidate.header, block.header)
            self.assertIs(self.application.check(block), candidate)

    def test_otherTransactionsAreRefused(self) -> None:
        """Omitted, reordered, repeated or invented ones."""
        a, b, c, _ = self.waiting
        made = Transaction.create(a.kind, a.sender, 99, a.timestamp, a.topic, b"made up")
        for wrong in ([b], [b, a], [a, a], [a, c], [made], [a, made]):
            self.refused(self.block(wrong), "not the first that wait")

    def test_contentsOfThePoolAreStored(self) -> None:
        """The contents stored are those that match the transactions' hashes."""
        false = replace(self.waiting[0], content=b"something else")
        candidate = self.application.check(self.block([false]))
        assert candidate is not None
        self.assertEqual(candidate.transactions, self.waiting[:1])
        self.assertIn(self.waiting[0].content, candidate.body)

    def test_oversizedBlockIsRefused(self) -> None:
        self.refused(self.block(self.waiting[:3]), "too large")

    def test_emptyBlockIsRefusedUnlessWanted(self) -> None:
        self.refused(self.block([]), "empty")
        self.start(interval="3600", empty="7200")
        self.assertIsNotNone(self.application.check(self.block([])))

    def test_headerMustMatchExecution(self) -> None:
        good = self.block(self.waiting[:1])
        for change in (
            {"stateRoot": bytes(32)},
            {"receiptRoot": bytes(32)},
            {"transactionRoot": bytes(32)},
            {"validators": bytes(32)},
            {"chain": bytes(32)},
            {"proposer": (good.header.proposer + 1) % 4},
            {"height": 3},
            {"transactionCount": 2},
            {"transactionTotal": 7},
        ):
            bad = replace(good, header=replace(good.header, **change))
            self.refused(bad, "not follow from")

    def test_timeMustBeInRange(self) -> None:
        """
        Not before the parent's time, and not far ahead of now. If the clock was set back, the
        parent's time counts as now.
        """
        late = MAX_DRIFT / 1000
        self.assertIsNotNone(self.application.check(self.block(self.waiting[:1], seconds=late)))
        self.refused(self.block(self.waiting[:1], seconds=late + 1), "too far ahead")
        self.rig.now = lambda: 1000.0
        self.assertIsNotNone(self.application.check(self.block(self.waiting[:1])))
        good = self.block(self.waiting[:1])
        before = replace(good.header, timestamp=self.application.head.timestamp - 1)
        self.refused(replace(good, header=before), "before its parent's")

    def test_otherParentCannotBeChecked(self) -> None:
        """A block on top of another than the last stored one cannot be checked."""
        good = self.block(self.waiting[:1])
        orphan = replace(good, header=replace(good.header, parent=bytes(32)))
        self.assertIsNone(self.application.check(orphan))

    def test_nothingIsProposedWhileStoring(self) -> None:
        """Nor is any new block checked."""
        known = self.application.propose(0)
        assert known is not None
        block = self.block(self.waiting[:1], seconds=1)
        self.application.isStoring = True
        self.assertIsNone(self.application.propose(0))
        self.assertIsNone(self.application.check(block))
        own = ProposedBlock.of(known)
        self.assertIs(self.application.check(own), known)
        self.assertFalse(self.application.reserve(2, ROUNDS_RESERVED))

    def test_roundsAreReservedBeforeUse(self) -> None:
        """
        Rounds are reserved on disk in advance. If that fails, or for a height that is not the next
        one, they are not used.
        """
        for round in range(ROUNDS_RESERVED):
            self.assertTrue(self.application.reserve(2, round))
        self.assertEqual(self.rig.store.reservation(), (1, ROUNDS_RESERVED))
        self.assertTrue(self.application.reserve(2, ROUNDS_RESERVED))
        self.assertEqual(self.rig.store.reservation(), (2, 2 * ROUNDS_RESERVED))
        self.assertTrue(self.application.reserve(2, 2 * ROUNDS_RESERVED - 1))
        self.assertFalse(self.application.reserve(3, 2 * ROUNDS_RESERVED))

        def fail(height: int, round: int) -> None:
            raise StorageFailed("full")

        patch = self.patch(self.rig.store, "reserve", fail)
        self.assertFalse(self.application.reserve(2, 2 * ROUNDS_RESERVED))
        patch.restore()
        self.assertTrue(self.application.reserve(2, 2 * ROUNDS_RESERVED))
