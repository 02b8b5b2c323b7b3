"""
The ledger when its application cannot go on.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from svcbroker.errors import LedgerUnavailable, TransactionTimeout
from svcbroker.ledgers.cometbft import _cometledger
from svcbroker.ledgers.cometbft._cometledger import FIRST_RECOVERY, LAST_RECOVERY, STOP_TIMEOUT
from svcbroker.ledgers.cometbft._outbox import RETRY
from svcbroker.ledgers.cometbft._rpc import EngineError
from svcbroker.model import Receipt
from svcbroker.testing._fixtures import RecordingObserver

from .fakenode import Gone
from .joining import Harness
from .test_ledger import LedgerTestCase


class RecoveryTests(LedgerTestCase):
    """
    An application that cannot go on.
    """

    def setUp(self) -> None:
        super().setUp()
        self.start()
        self.opened()
        self.observer = RecordingObserver()
        self.ledger.addObserver(self.observer)

    def fail_(self, *, isStored: bool = False) -> Deferred[Receipt]:
        """A block is decided and cannot be stored."""
        self.breakStore(isStored=isStored)
        answer = self.publish(b"kept")
        with self.assertRaises(Gone):
            self.node.decide()
        self.assertNoResult(answer)
        self.assertIn("the disk is full", self.reason())
        self.assertFalse(self.node.ports[-1].isOpen)
        return answer

    def test_failedBlockIsReplayed(self) -> None:
        """It is opened again, and the engine plays the block to it."""
        answer = self.fail_()
        self.clock.advance(FIRST_RECOVERY)
        self.assertTrue(self.node.ports[-1].isOpen)
        self.assertEqual(self.reason(), "the engine is away")
        self.assertEqual(self.node.connect(), [2])
        self.done(answer)
        self.assertEqual([block.height for block in self.observer.blocks], [2])

    def test_storedBlockIsReported(self) -> None:
        """A block that is stored although nobody heard of it is told of."""
        answer = self.fail_(isStored=True)
        self.clock.advance(FIRST_RECOVERY)
        self.done(answer)
        self.assertEqual(self.node.connect(), [])
        self.node.decide()
        self.assertEqual([block.height for block in self.observer.blocks], [2, 3])

    def test_snapshotIsReportedInTurns(self) -> None:
        """All blocks that come with a snapshot are reported, and the reactor has its turn between
        them. Meanwhile nothing is broadcast that may be in one of them."""
        answer = self.publish(b"in the snapshot")
        other = Harness(self.root / "other")
        other.application.open()
        self.node.consensus.connect(other.application)
        for _ in range(20):
            self.node.consensus.run(other.application)
        self.node.consensus.run(other.application, *self.node.pool)
        other.application.close()
        self.patch(_cometledger, "SLICE", -1.0)
        begun = Deferred.fromCoroutine(self.ledger._application.begin(other.path))
        self.successResultOf(begun)
        self.assertEqual([block.height for block in self.observer.blocks], [2])
        self.assertEqual(self.successResultOf(self.ledger.readBlock(22)).height, 22)
        self.assertNoResult(answer)
        held = self.failureResultOf(self.ledger._broadcast(self.node.pool[0]), EngineError)
        self.assertTrue(held.value.isInDoubt)
        self.clock.advance(0)
        self.done(answer)
        self.node.decide()
        self.assertEqual([block.height for block in self.observer.blocks], list(range(2, 24)))

    def test_unreadableBlockFailsTheApplication(self) -> None:
        """A block of a snapshot that cannot be read has the application opened again, and go on
        with that block."""
        other = Harness(self.root / "other")
        other.application.open()
        self.node.consensus.connect(other.application)
        for _ in range(3):
            self.node.consensus.run(other.application)
        other.application.close()
        self.patch(_cometledger, "SLICE", -1.0)
        begun = Deferred.fromCoroutine(self.ledger._application.begin(other.path))
        self.successResultOf(begun)
        store: Any = self.ledger._application.store
        self.patch(store, "block", lambda height: None)
        self.clock.advance(0)
        self.assertIn("has no block 3", self.reason())
        self.clock.advance(FIRST_RECOVERY)
        self.assertEqual([block.height for block in self.observer.blocks], [2, 3, 4])

    def test_recoveryDelaysGrow(self) -> None:
        """Each time that it fails it takes longer, within bounds, until a block is stored."""
        self.fail_()
        delay = FIRST_RECOVERY
        for _ in range(8):
            ports = len(self.node.ports)
            self.clock.advance(delay - 0.1)
            self.assertEqual(len(self.node.ports), ports)
            self.clock.advance(0.2)
            self.assertEqual(len(self.node.ports), ports + 1)
            self.breakStore()
            with self.assertRaises(Gone):
                self.node.connect()
            delay = min(2 * delay, LAST_RECOVERY)
        self.assertEqual(delay, LAST_RECOVERY)
        self.clock.advance(delay)
        self.node.connect()
        self.breakStore()
        with self.assertRaises(Gone):
            self.node.decide()
        self.clock.advance(FIRST_RECOVERY)
        self.assertEqual(self.node.connect(), [3])

    def test_unopenableChainIsRetried(self) -> None:
        """A chain that cannot be opened now is tried again."""
        answer = self.fail_()
        path = self.directory / "ledger.sqlite"
        hidden = path.with_suffix(".away")

        def hide() -> None:
            path.rename(hidden)
            path.write_bytes(b"junk" * 1000)

        # Not before the application has closed it.
        self.patch(
            self.ledger._application, "open", self.hiding(self.ledger._application.open, hide)
        )
        self.clock.advance(FIRST_RECOVERY)
        self.assertIn("has failed", self.reason())
        self.assertRaises(LedgerUnavailable, self.ledger.topicState, "t")
        path.unlink()
        hidden.rename(path)
        self.clock.advance(2 * FIRST_RECOVERY)
        self.assertEqual(self.node.connect(), [2])
        self.done(answer)

    def hiding(self, open_: Any, hide: Any) -> Any:
        """Something that is done before the first opening."""
        left = [hide]

        def opens() -> None:
            if left:
                left.pop()()
            open_()

        return opens

    def test_unexpectedErrorIsLogged(self) -> None:
        """A bug is in the log with its traceback, and recovered from in the same way."""
        machine: Any = self.ledger._application.machine

        def broken(*args: object, **options: object) -> None:
            raise ZeroDivisionError("a bug")

        machine.check = broken
        answer = self.publish()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.clock.advance(FIRST_RECOVERY)
        self.node.connect()
        self.clock.pump([RETRY] * 3)
        self.node.decide()  # without transactions, after the quiet
        self.node.decide()
        self.done(answer)

    def test_stoppedLedgerIsNotReopened(self) -> None:
        """A ledger that is stopped is not opened again."""
        answer = self.fail_()
        stopped = self.ledger.stop()
        ports = len(self.node.ports)
        self.clock.advance(STOP_TIMEOUT)
        self.successResultOf(stopped)
        self.failureResultOf(answer, TransactionTimeout)
        self.clock.advance(LAST_RECOVERY)
        self.assertEqual(len(self.node.ports), ports)
        self.assertEqual(self.clock.getDelayedCalls(), [])
