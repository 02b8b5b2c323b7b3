"""
Tests for the contents of a proposed block, and for what becomes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.ledgers.cometbft._abciapplication import ChainApplication
from svcbroker.ledgers.cometbft._batch import ChainMachine, readBatch
from svcbroker.ledgers.cometbft._outbox import PROPOSED, Outbox
from svcbroker.ledgers.cometbft._rpc import Broadcast
from svcbroker.ledgers.cometbft.abci.messages import PrepareProposalRequest
from svcbroker.ledgers.replicated import BlockRefused, Code
from svcbroker.model import Execution, OpenTopic, PublishEvent, Receipt
from svcbroker.proofs.cometbft import Hex

from .members import GENESIS, START, Broker

INTERVAL = 0.01


def nothing(*told: object) -> None:
    """Nobody listens."""


class ProposingTestCase(SynchronousTestCase):
    """
    This broker, another one, and the proposals of this one's node.
    """

    def makeOutbox(self) -> Outbox:
        """An outbox of the broker."""
        return Outbox(
            clock=self.clock,
            broadcast=self.broadcast,
            maxBytes=10**6,
            batchBytes=10**5,
            batchCount=10,
            window=3,
            interval=INTERVAL,
            areUsed=lambda given: False,
            renumber=self.broker.transactions.renumber,
        )

    def setUp(self) -> None:
        self.clock = Clock()
        self.broker, self.other = Broker(), Broker(1, sponsor=2)
        self.handed: list[bytes] = []
        self.outbox = self.makeOutbox()
        self.outbox.begin(self.broker.batches, 0)
        self.machine = ChainMachine(GENESIS.state(), GENESIS.header())

    def broadcast(self, data: bytes) -> Deferred[Broadcast]:
        """The engine takes everything."""
        self.handed.append(data)
        accepted: Deferred[Broadcast] = Deferred()
        accepted.callback(Broadcast(code=Code.OK, log="", hash=Hex(bytes(32))))
        return accepted

    def add(self, content: bytes = b"x") -> Deferred[Receipt]:
        """Publish here."""
        return self.outbox.add([self.broker.make(PublishEvent(topic="t", content=content))]).only()

    def foreign(self) -> bytes:
        """The other broker's next batch."""
        return self.other.batch(PublishEvent(topic="t", content=b"y"))

    def commit(self, *batches: bytes) -> None:
        """A block of these batches is final."""
        read = [readBatch(data, GENESIS.chain) for data in batches]
        self.outbox.committed(
            [
                Receipt(execution=Execution.DONE, transactionHash=one.hash, height=1, eventId=None)
                for batch in read
                for one in batch.transactions
            ]
        )

    def proposed(self, *offered: bytes) -> Sequence[bytes]:
        """The proposal when it is this node's turn."""
        application = ChainApplication(
            Path(self.mktemp()),
            self.inThread,
            self.inThread,
            nothing,
            nothing,
            own=self.outbox.propose,
        )
        application.machine, application.store = self.machine, cast(Any, object())
        request = PrepareProposalRequest(txs=offered, maxTxBytes=10**6)
        return list(application.prepareProposal(request).txs)

    def inThread(self, *call: Any) -> Deferred[Any]:
        """Nothing is done in threads here."""
        raise AssertionError(call)

    def contents(self, data: bytes) -> list[bytes]:
        """The contents that a batch publishes."""
        return [one.content for one in readBatch(data, GENESIS.chain).transactions]


class GatherTests(ProposingTestCase):
    """
    Tests for the contents of proposals.
    """

    def test_ownBatchesComeLast(self) -> None:
        """This broker's own come last, in order, each once."""
        self.add(b"1")
        self.clock.advance(INTERVAL)
        self.add(b"2")
        data = self.foreign()
        proposal = self.proposed(self.handed[0], data)
        self.assertEqual(proposal[:2], [data, self.handed[0]])
        self.assertEqual([self.contents(own) for own in proposal[1:]], [[b"1"], [b"2"]])

    def test_emptyOutboxProposesNothing(self) -> None:
        """An empty outbox proposes nothing."""
        self.assertEqual(self.proposed(), [])

    def test_proposalRespectsBounds(self) -> None:
        """The window and the bounds of a batch hold here as well."""
        for _ in range(45):
            self.add()
        counts = [len(self.contents(data)) for data in self.proposed()]
        self.assertEqual(counts, [10, 10, 10])


class OwnTests(ProposingTestCase):
    """
    Batches that went into a proposal first.
    """

    def setUp(self) -> None:
        super().setUp()
        self.receipt = self.add(b"1")
        (self.own,) = self.proposed()

    def test_decidedProposalIsNotBroadcast(self) -> None:
        """A proposal that is decided never goes through the engine."""
        self.commit(self.own)
        self.successResultOf(self.receipt)
        self.clock.advance(100)
        self.assertEqual(self.handed, [])

    def test_lostProposalIsBroadcast(self) -> None:
        """A proposal is handed in at once where another block is decided."""
        self.commit(self.foreign())
        self.clock.advance(0)
        self.assertEqual(self.handed, [self.own])

    def test_undecidedProposalIsBroadcastLater(self) -> None:
        """A proposal is handed in after a while where no block is decided."""
        self.clock.advance(PROPOSED * 0.9)
        self.assertEqual(self.handed, [])
        self.clock.advance(PROPOSED * 0.2)
        self.assertEqual(self.handed, [self.own])

    def test_laterBatchFollowsProposal(self) -> None:
        """Later batches are handed in after it."""
        self.add(b"2")
        self.clock.advance(2 * INTERVAL)
        self.assertEqual(self.handed, [])
        self.commit()
        self.clock.advance(PROPOSED)
        self.assertEqual([self.contents(data) for data in self.handed], [[b"1"], [b"2"]])

    def test_proposalIsRepeatedUnchanged(self) -> None:
        """It is proposed again, the same, until it is in a block."""
        self.assertEqual(self.proposed(), [self.own])

    def test_closedOutboxProposesNothingNew(self) -> None:
        """After the end nothing new is proposed."""
        outbox = self.makeOutbox()
        outbox.add([self.broker.make(OpenTopic(topic="u"))])
        self.assertEqual(outbox.propose(), [])


class ReturningTests(ProposingTestCase):
    """
    Publishers that each wait for the last one.
    """

    def test_returningClientsSendAtOnce(self) -> None:
        """Clients that are all back have their batch sent at once."""
        for _ in range(3):
            self.add()
        self.clock.advance(INTERVAL)
        self.commit(*self.handed)
        self.add(b"1")
        self.add(b"2")
        self.clock.advance(INTERVAL / 2)
        self.assertEqual(len(self.handed), 1)
        self.add(b"3")
        self.clock.advance(0)
        self.assertEqual(self.contents(self.handed[1]), [b"1", b"2", b"3"])

    def test_missedBlockWaitsForReturning(self) -> None:
        """Those that missed a block wait for those that are about to come."""
        self.add(b"1")
        self.clock.advance(INTERVAL)
        self.add(b"2")
        self.commit(*self.handed)
        self.add(b"3")
        self.clock.advance(0)
        self.assertEqual(self.contents(self.handed[1]), [b"2", b"3"])

    def test_absentClientsDelayNoLonger(self) -> None:
        """Clients that do not come back are waited for no longer than the interval."""
        for _ in range(3):
            self.add()
        self.clock.advance(INTERVAL)
        self.commit(*self.handed)
        self.add(b"1")
        self.clock.advance(INTERVAL)
        self.assertEqual(self.contents(self.handed[1]), [b"1"])


class WaitingTests(ProposingTestCase):
    """
    Batches that are checked again after a block of nothing.
    """

    def execute(self) -> None:
        """A block of nothing."""
        height = self.machine.head.height + 1
        self.machine.apply(self.machine.execute([], height, START + height, b"").candidate)

    def test_followerWaitsForPredecessor(self) -> None:
        """
        A batch that follows one which waits goes on waiting, wherever the engine has put it;
        once that one is gone it does not.
        """
        first, second = self.foreign(), self.foreign()
        self.machine.check(first, START)
        self.machine.check(second, START)
        for _ in range(3):
            self.execute()
            self.machine.check(second, START, isRecheck=True)
            self.machine.check(first, START, isRecheck=True)
        self.execute()
        self.machine.check(second, START, isRecheck=True)
        self.execute()
        with self.assertRaises(BlockRefused):
            self.machine.check(second, START, isRecheck=True)
