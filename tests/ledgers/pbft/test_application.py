"""
Tests for what replicas take for a valid block.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import InvalidBlock, Transaction, proposeBlock
from svcbroker.ledgers.pbft._application import MAX_DRIFT, ROUNDS_RESERVED
from svcbroker.ledgers.pbft._messages import ProposedBlock
from svcbroker.storage import StorageFailed
from tests.ledgers.pbft.rig import LedgerRig
from tests.ledgers.pbft.sets import NOW


class ApplicationTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.start(interval="3600", block="1024")

    def start(self, **settings: str) -> None:
        """A chain at height 1, with four events that wait."""
        self.rig = LedgerRig(self, settings).start().open()
        self.rig.publish(4, content=b"x" * 300)
        producer = self.rig.ledger._producer
        self.application, self.pool = producer._application, producer._pool
        self.waiting = list(self.pool.transactions())

    def block(
        self, transactions: Sequence[Transaction], *, seconds: float = 0, view: int = 0
    ) -> ProposedBlock:
        """A block that another node might propose."""
        candidate = proposeBlock(
            self.rig.ledger._state,
            self.application.head,
            view,
            int((NOW + seconds) * 1000),
            transactions,
        )
        return ProposedBlock(header=candidate.header, transactions=transactions)

    def refused(self, block: ProposedBlock, words: str) -> None:
        """Make sure that a block is refused."""
        error = self.assertRaises(InvalidBlock, self.application.check, block)
        self.assertIn(words, str(error))

    def test_valid(self) -> None:
        """The first ones that wait, as many as fit or fewer, in any view."""
        for count, view in ((1, 0), (2, 0), (2, 3)):
            block = self.block(self.waiting[:count], view=view)
            candidate = self.application.check(block)
            assert candidate is not None
            self.assertEqual(candidate.header, block.header)
            self.assertIs(self.application.check(block), candidate)

    def test_notTheFirst(self) -> None:
        """Nothing is left out, put first, repeated or made up."""
        a, b, c, _ = self.waiting
        made = Transaction.create(a.kind, a.sender, 99, a.timestamp, a.topic, b"made up")
        for wrong in ([b], [b, a], [a, a], [a, c], [made], [a, made]):
            self.refused(self.block(wrong), "not the first that wait")

    def test_contents(self) -> None:
        """What is stored are the contents that the transactions' hashes name."""
        false = replace(self.waiting[0], content=b"something else")
        candidate = self.application.check(self.block([false]))
        assert candidate is not None
        self.assertEqual(candidate.transactions, self.waiting[:1])
        self.assertIn(self.waiting[0].content, candidate.body)

    def test_size(self) -> None:
        """It is no larger than allowed."""
        self.refused(self.block(self.waiting[:3]), "too large")

    def test_empty(self) -> None:
        """It is not empty, unless such blocks are wanted."""
        self.refused(self.block([]), "empty")
        self.start(interval="3600", empty="7200")
        self.assertIsNotNone(self.application.check(self.block([])))

    def test_header(self) -> None:
        """Its header is what follows from the rest."""
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
            bad = replace(good, header=evolve(good.header, **change))
            self.refused(bad, "not follow from")

    def test_time(self) -> None:
        """Its time is not before its parent's, and not far ahead of now; where the clock went
        back the parent's time is as good as now."""
        late = MAX_DRIFT / 1000
        self.assertIsNotNone(self.application.check(self.block(self.waiting[:1], seconds=late)))
        self.refused(self.block(self.waiting[:1], seconds=late + 1), "too far ahead")
        self.rig.now = lambda: 1000.0
        self.assertIsNotNone(self.application.check(self.block(self.waiting[:1])))
        good = self.block(self.waiting[:1])
        early = evolve(good.header, timestamp=self.application.head.timestamp - 1)
        self.refused(replace(good, header=early), "before its parent's")

    def test_otherParent(self) -> None:
        """What follows another block than the last stored one cannot be judged."""
        good = self.block(self.waiting[:1])
        orphan = replace(good, header=evolve(good.header, parent=bytes(32)))
        self.assertIsNone(self.application.check(orphan))

    def test_whileStoring(self) -> None:
        """While a block is being stored nothing is proposed, and nothing new judged."""
        known = self.application.propose(0)
        assert known is not None
        block = self.block(self.waiting[:1], seconds=1)
        self.application.isStoring = True
        self.assertIsNone(self.application.propose(0))
        self.assertIsNone(self.application.check(block))
        own = ProposedBlock(header=known.header, transactions=known.transactions)
        self.assertIs(self.application.check(own), known)
        self.assertFalse(self.application.reserve(2, ROUNDS_RESERVED))

    def test_reserve(self) -> None:
        """Rounds are set aside on disk, some at a time, before they are used; where that
        fails, or the height is not the next one, they are not used."""
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
