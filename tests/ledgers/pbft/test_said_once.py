"""
Publishes with idempotency keys, submitted again and again to a ledger that crashes.
"""

from __future__ import annotations

from random import Random

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.interfaces import submit
from svcbroker.model import Execution, PublishEvent, Receipt
from tests.ledgers.pbft.rig import LedgerRig

KEYS = 40
CRASHES = 150


class SaidOnceTests(SynchronousTestCase):
    """
    A client that publishes a number of events, each with a key, and knows of no answer that a crash
    has cut off.
    """

    def crash(self, rig: LedgerRig, *, isWritten: bool) -> LedgerRig:
        """The ledger that is started after a crash."""
        rig.disk.crash(isWritten=isWritten)
        rig.ledger.replicaSet.stop()
        rig.store.close()
        rig.clock.calls.clear()
        following = LedgerRig(self, directory=rig.directory, clock=rig.clock)
        following.salt = rig.salt + 1
        self.successResultOf(following.ledger.start())
        return following

    def test_eachKeyPublishesOnceThroughCrashes(self) -> None:
        """
        Whether the block of a publish was stored or not when the ledger crashed, its key has one
        event at the end, and every answer names that one.
        """
        chance = Random(7)
        rig = LedgerRig(self)
        self.successResultOf(rig.ledger.start())
        rig.open()
        answered: dict[str, set[str]] = {f"k{number}": set() for number in range(KEYS)}
        waiting: list[tuple[str, Deferred[Receipt]]] = []
        for _ in range(CRASHES):
            rig.disk.isHeld = chance.random() < 0.7
            for key in chance.sample(list(answered), 3):
                request = PublishEvent(topic="t", content=key.encode(), idempotencyKey=key)
                waiting.append((key, submit(rig.ledger, request)))
            for _ in range(chance.randint(0, 8)):
                rig.clock.advance(0.01)
                if rig.disk.waiting and chance.random() < 0.3:
                    rig.disk.step()
            for key, answer in waiting:
                if answer.called:
                    receipt = self.successResultOf(answer)
                    self.assertIn(receipt.execution, (Execution.DONE, Execution.PUBLISHED_BEFORE))
                    answered[key].add(str(receipt.eventId))
            waiting.clear()
            rig = self.crash(rig, isWritten=chance.random() < 0.5)
        self.addCleanup(rig.close)
        published: dict[str, list[str]] = {}
        for height in range(1, rig.height + 1):
            for event in self.successResultOf(rig.ledger.readBlock(height)).events:
                published.setdefault(event.content.decode(), []).append(str(event.eventId))
        self.assertEqual({len(each) for each in published.values()}, {1})
        self.assertGreater(sum(map(len, answered.values())), KEYS / 2)
        for key, ids in answered.items():
            self.assertLessEqual(ids, set(published.get(key, ())))
        self.assertEqual(len(published), KEYS)
