"""
The ledger beside an engine that is none.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import STORE_NAME
from svcbroker.errors import LedgerUnavailable, Overloaded, TransactionTimeout
from svcbroker.interfaces import LedgerContext, submit
from svcbroker.ledgers._views import TransactionMaker
from svcbroker.ledgers.cometbft._abciapplication import TIMED_BLOCKS
from svcbroker.ledgers.cometbft._batch import (
    ATTESTATION_NAME,
    BatchMaker,
    attest,
    encodeAttestation,
)
from svcbroker.ledgers.cometbft._cometledger import (
    STALL_TIMEOUT,
    START_TIMEOUT,
    STOP_TIMEOUT,
    CometLedger,
)
from svcbroker.ledgers.cometbft._cometsettings import CometSettings
from svcbroker.ledgers.cometbft._home import publicKey
from svcbroker.ledgers.cometbft._networkwatch import EnginePorts
from svcbroker.ledgers.cometbft._outbox import RESEND, RETRY
from svcbroker.ledgers.cometbft.abci import messages
from svcbroker.model import Authorship, EraseEvents, Execution, OpenTopic, PublishEvent, Receipt
from svcbroker.proofs.cometbft import addressOf
from svcbroker.storage import StorageFailed
from svcbroker.testing._fixtures import RecordingObserver

from .fakeconsensus import initChain
from .fakenode import FakeNode, Gone
from .members import GENESIS, KEYS, SEEDS, START, changeTo, identityOf

INTERVAL = 0.01
SEED = b"k" * 32


class LedgerTestCase(SynchronousTestCase):
    """
    A ledger, and its engine.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(START / 1000)
        self.clockError = 0.0
        self.root = Path(self.mktemp())
        self.root.mkdir(parents=True)
        self.directory = self.root / "ledger"
        self.node = FakeNode(self.clock)
        self.attest(0)
        self.ledger = self.make()

    def attest(self, validator: int) -> None:
        """Write a validator's attestation of the broker."""
        self.directory.mkdir(exist_ok=True)
        attestation = attest(SEEDS[validator], GENESIS.chain, publicKey(SEED))
        (self.directory / ATTESTATION_NAME).write_bytes(encodeAttestation(attestation))

    def make(self, **changes: Any) -> CometLedger:
        """A ledger in the directory, beside the engine."""
        context = LedgerContext(
            group="1",
            directory=self.directory,
            reactor=self.clock,
            now=lambda: self.clock.seconds() + self.clockError,
            entropy=lambda size: SEED if size == len(SEED) else os.urandom(size),
            runInThread=maybeDeferred,
            maxContent=1024,
        )
        values: dict[str, Any] = {"home": self.root, "interval": INTERVAL} | changes
        node: Any = self.node
        parts = EnginePorts(
            socket=self.root / "abci.sock",
            rpc=node,
            engine=node,
            home=self.root,
            listen=node.listen,
            knock=lambda host, port: Deferred(),
        )
        return CometLedger(context, CometSettings(**values), parts)

    def start(self) -> None:
        """The ledger and its engine start."""
        started = self.ledger.start()
        self.node.connect()
        self.successResultOf(started)

    def publish(self, content: bytes = b"x") -> Deferred[Receipt]:
        """Publish; it is on its way, where there is one."""
        answer = submit(self.ledger, PublishEvent(topic="t", content=content))
        self.clock.advance(INTERVAL)
        return answer

    def opened(self) -> None:
        """The chain has a topic."""
        answer = submit(self.ledger, OpenTopic(topic="t"))
        self.clock.advance(INTERVAL)
        self.node.decide()
        self.successResultOf(answer)

    def done(self, answer: Deferred[Receipt]) -> Receipt:
        """A receipt that was given."""
        receipt = self.successResultOf(answer)
        self.assertIs(receipt.execution, Execution.DONE)
        return receipt

    def reason(self) -> str:
        """The reason why the ledger is not ready."""
        health = self.successResultOf(self.ledger.getHealth())
        self.assertFalse(health.isReady)
        return health.reason

    def breakStore(self, *, isStored: bool = False) -> None:
        """The next block is not stored, or the disk fails after that."""
        store: Any = self.ledger._application.store
        append = store.append

        def broken(rows: object) -> None:
            if isStored:
                append(rows)
            raise StorageFailed("the disk is full")

        store.append = broken


class FormatTests(LedgerTestCase):
    """
    Requests that a chain of format 2 cannot carry out.
    """

    def test_newRequestsWaitForTheFormat(self) -> None:
        """Before the agreed height a publish with a key is refused, and others are executed."""
        self.ledger = self.make(format3=5)
        self.start()
        machine: Any = self.ledger._application.machine
        self.opened()
        machine.head = replace(machine.head, version=2)
        keyed = PublishEvent(topic="t", content=b"x", idempotencyKey="k")
        error = self.failureResultOf(submit(self.ledger, keyed), LedgerUnavailable).value
        self.assertIn("format 3", str(error))
        optional = PublishEvent(topic="t", content=b"x", idempotencyKey="k", isKeyOptional=True)
        answers = [self.publish(), submit(self.ledger, optional), submit(self.ledger, optional)]
        self.node.decide()
        for answer in answers:
            self.done(answer)
        self.assertEqual(machine.head.version, 2)

    def test_statementsWaitForTheFormat(self) -> None:
        """A network of format 3 refuses statements of version 2 and erases in version 2."""
        self.ledger = self.make(format4=5)
        self.start()
        machine: Any = self.ledger._application.machine
        self.opened()
        self.assertEqual(machine.head.version, 4)
        machine.head = replace(machine.head, version=3)
        author = Authorship(key=bytes(32), signedAt=1, signature=bytes(64), statement=2)
        signed = PublishEvent(topic="t", content=b"x", author=author)
        error = self.failureResultOf(submit(self.ledger, signed), LedgerUnavailable).value
        self.assertIn("format 4", str(error))
        erasing = EraseEvents(topic="t", ranges=[(1, 1)], account="", reason="asked")
        answers = [self.publish(), submit(self.ledger, erasing)]
        self.node.decide()
        for answer in answers:
            self.done(answer)
        self.assertEqual(machine.head.version, 3)

    def test_repeatedKeyAnswersTheFirstEvent(self) -> None:
        """A key publishes once; publishing again answers the first event's id."""
        self.start()
        self.opened()
        ids = []
        for _ in range(2):
            keyed = PublishEvent(topic="t", content=b"x", idempotencyKey="k")
            answer = submit(self.ledger, keyed)
            self.clock.advance(INTERVAL)
            self.node.decide()
            ids.append(self.successResultOf(answer).eventId)
        self.assertEqual(ids[0], ids[1])
        self.assertIsNotNone(ids[0])


class StartTests(LedgerTestCase):
    """
    From nothing, or from where it was.
    """

    def test_startWaitsForGenesis(self) -> None:
        """A ledger has started when the engine has begun the chain."""
        started = self.ledger.start()
        self.assertNoResult(started)
        self.assertTrue(self.node.isWanted)
        self.assertIn("not begun", self.reason())
        self.assertRaises(LedgerUnavailable, self.ledger.topicState, "t")
        self.failureResultOf(self.publish(), LedgerUnavailable)
        self.node.connect()
        self.successResultOf(started)
        self.opened()
        answer = self.publish()
        self.assertNoResult(answer)
        self.node.decide()
        receipt = self.done(answer)
        assert receipt.eventId is not None
        event = self.successResultOf(self.ledger.getEvent(receipt.eventId))
        self.assertEqual(event.content, b"x")

    def test_outdatedSettingsAreToldAtStart(self) -> None:
        self.ledger = self.make(outdated=("batch is no setting",))
        with capturedLogs() as events:
            self.ledger.start()
        self.assertEqual(
            [formatEvent(each) for each in events if each["log_level"] is LogLevel.warn],
            ["group 1: batch is no setting"],
        )

    def test_startTimesOutWithoutEngine(self) -> None:
        """A start to which no engine comes is given up, and nothing is left."""
        started = self.ledger.start()
        self.clock.advance(START_TIMEOUT - 1)
        self.assertNoResult(started)
        self.clock.advance(1)
        error = self.failureResultOf(started, LedgerUnavailable).value
        self.assertIn("abci.sock", str(error))
        self.assertFalse(self.node.isWanted or self.node.ports[-1].isOpen)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_unsupportedGenesisFailsStart(self) -> None:
        """Nor where the engine's genesis cannot be ours."""
        started = self.ledger.start()
        self.node.consensus.genesis = initChain(initialHeight=7)
        with self.assertRaises(Gone):
            self.node.connect()
        self.assertIn("the engine's genesis must begin", self.reason())
        self.clock.pump([1] * int(START_TIMEOUT))
        error = self.failureResultOf(started, LedgerUnavailable).value
        self.assertIn("the engine's genesis must begin", str(error))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertFalse(self.node.ports[-1].isOpen)

    def test_existingChainIsReadAtOnce(self) -> None:
        """A chain that is there is read at once, without its engine, which may come later."""
        self.start()
        self.opened()
        self.successResultOf(self.ledger.stop())
        self.ledger = self.make()
        self.successResultOf(self.ledger.start())
        self.assertIsNotNone(self.ledger.topicState("t"))
        self.assertEqual(self.successResultOf(self.ledger.getStatistics()).height, 1)
        self.assertEqual(self.reason(), "the engine is away")
        self.failureResultOf(self.ledger.listNodes(0, 9), LedgerUnavailable)
        answer = self.publish()
        self.clock.advance(3 * RETRY)
        self.assertNoResult(answer)
        self.node.connect()
        self.clock.advance(RETRY)
        self.node.decide()  # without transactions, after the quiet
        self.node.decide()
        self.done(answer)

    def test_damagedChainFailsStart(self) -> None:
        """A chain that cannot be read is told of at the start, and nothing is left open."""
        (self.directory / "ledger.sqlite").write_bytes(b"junk" * 1000)
        started = self.ledger.start()
        self.failureResultOf(started, LedgerUnavailable)
        self.assertEqual(self.node.ports, [])
        self.assertFalse(self.node.isWanted)

    def test_unattestedBrokerOnlyReads(self) -> None:
        """Without an attestation the ledger can be read, and says what is missing."""
        (self.directory / ATTESTATION_NAME).unlink()
        self.start()
        self.node.decide()
        self.assertIn("no validator attests", self.reason())
        error = self.failureResultOf(self.publish(), LedgerUnavailable).value
        self.assertIn("no validator attests", str(error))
        self.assertIsNone(self.ledger.topicState("t"))


class WriteTests(LedgerTestCase):
    """
    Tests for transactions that are submitted.
    """

    def setUp(self) -> None:
        super().setUp()
        self.start()
        self.opened()

    def test_observersSeeEveryBlock(self) -> None:
        """Observers are told of each block, when its receipts are given."""
        observer = RecordingObserver()
        self.ledger.addObserver(observer)
        answers = [self.publish(b"%d" % number) for number in range(3)]
        self.node.decide()
        self.node.decide()
        for answer in answers:
            self.done(answer)
        self.assertEqual([block.height for block in observer.blocks], [2, 3])
        contents = [event.content for event in observer.blocks[0].events]
        self.assertEqual(contents, [b"0", b"1", b"2"])

    def test_fullOutboxRefusesAtOnce(self) -> None:
        """Too much at once is refused at once."""
        self.successResultOf(self.ledger.stop())
        self.ledger = self.make(mempool=1024)
        self.successResultOf(self.ledger.start())
        self.publish(b"x" * 1000).addErrback(lambda _: None)
        self.failureResultOf(self.publish(b"x" * 1000), Overloaded)

    def test_restartSkipsUsedNonces(self) -> None:
        """A broker that starts again uses no number twice, though the chain knows not all."""
        lost = self.publish(b"lost")
        lost.addErrback(lambda _: None)
        (old,) = self.node.pool
        stopped = self.ledger.stop()
        self.clock.advance(STOP_TIMEOUT)
        self.successResultOf(stopped)
        self.ledger = self.make()
        self.clock.advance(1)
        self.successResultOf(self.ledger.start())
        self.node.connect()
        answer = self.publish(b"new")
        # What was lost by one engine another one had.
        self.node.pool.insert(0, old)
        self.node.decide()
        self.done(answer)
        block = self.successResultOf(self.ledger.readBlock(2))
        self.assertEqual([event.content for event in block.events], [b"lost", b"new"])

    def test_noncesOfAWrongClockAreSkipped(self) -> None:
        """The data of a broker that ran an hour ahead was lost, and its clock put right."""
        for clockError in (3600.0, 0.0):
            self.successResultOf(self.ledger.stop())
            for path in self.directory.glob(f"{STORE_NAME}*"):
                path.unlink()
            self.clockError = clockError
            self.ledger = self.make()
            self.start()
            for _ in range(2):
                answer = self.publish()
                self.node.decide()
                self.done(answer)

    def test_firstBatchAfterACrashIsNotDropped(self) -> None:
        """
        The clock was set back meanwhile, and another engine had the batch of before, with the same
        nonces: the first batch was not executed, and never is.
        """
        self.opened()
        lost = self.publish(b"lost")
        lost.addErrback(lambda _: None)
        (old,) = self.node.pool
        stopped = self.ledger.stop()
        self.clock.advance(STOP_TIMEOUT)
        self.successResultOf(stopped)
        self.clockError = -60.0
        self.ledger = self.make()
        self.start()
        answers = [self.publish(b"1"), self.publish(b"2")]
        self.node.pool.insert(0, old)
        self.node.decide()
        self.clock.pump([RESEND, 0])
        # After a pause, a block without transactions is first.
        self.node.decide()
        self.node.decide()
        _, height = (self.done(answer).height for answer in answers)
        events = self.successResultOf(self.ledger.readBlock(height)).events
        self.assertEqual([event.content for event in events], [b"1", b"2"])

    def test_copyOfKeyIsNamed(self) -> None:
        """Another broker with the same key was started an hour later."""
        batches = BatchMaker(GENESIS.chain, identityOf(SEED))
        copied = TransactionMaker(GENESIS.chain, batches.sender, self.clock.seconds, bytes)
        copied.resume(int((self.clock.seconds() + 3600) * 1_000_000))
        self.node.pool.append(batches.make(copied.makeMany([OpenTopic(topic="u")]), 0))
        with capturedLogs() as events:
            self.node.decide()
        [event] = [each for each in events if each["log_level"] is LogLevel.warn]
        self.assertIn("does another broker use a copy of the key?", formatEvent(event))
        answer = self.publish()
        self.node.decide()
        self.done(answer)

    def test_stalledOutboxIsNotReady(self) -> None:
        """The ledger says when nothing becomes final."""
        self.publish()
        self.clock.advance(STALL_TIMEOUT - 1)
        self.assertIn("does not answer", self.reason())
        self.clock.advance(2)
        self.assertIn("have waited for more than 5 seconds", self.reason())

    def restartLater(self, seconds: float) -> None:
        """The broker starts again, by its clock so much later."""
        self.successResultOf(self.ledger.stop())
        self.clock.advance(seconds)
        self.ledger = self.make()
        self.successResultOf(self.ledger.start())
        self.node.connect()

    def test_clockAheadIsNamed(self) -> None:
        """Once blocks tell the time, a broker says that its clock is ahead, and refuses at once."""
        self.restartLater(3 * 86400)
        answer = self.publish()
        self.clock.advance(STALL_TIMEOUT + 1)
        self.assertIn("have waited", self.reason())
        self.assertIn("the last block is 3.0 days old: is the clock right?", self.reason())
        # Others publish, and do not propose what this broker does.
        self.node.pool.clear()
        node: Any = self.node
        for _ in range(TIMED_BLOCKS):
            node._ask(messages.ProcessProposalRequest(time=START * 10**6))
            node.consensus.run(node)
        self.assertIn("clock was 3.0 days ahead of the network's time", self.reason())
        error = self.failureResultOf(self.publish(), LedgerUnavailable).value
        self.assertIn("set the clock", str(error))
        self.assertNoResult(answer)
        self.clock.advance(RESEND)
        # An engine has taken it, and may have handed it on: others execute it in days.
        error = self.failureResultOf(answer, TransactionTimeout).value
        self.assertIn("set the clock of this broker's machine, and restart", str(error))

    def test_pauseIsNoClockFault(self) -> None:
        """A network that has paused for days tells an old time at first."""
        self.restartLater(3 * 86400)
        for _ in range(3 * TIMED_BLOCKS):
            answer = self.publish()
            self.node.decide()
            self.node.consensus.later = 3 * 86400 * 1000
            self.node.decide()
            self.done(answer)
            self.assertIn("does not answer", self.reason())

    def test_restartedEngineGetsBatchesAgain(self) -> None:
        """Batches that an engine lost are handed in when it is there again, and executed once."""
        answers = [self.publish(b"1"), self.publish(b"2")]
        self.node.end()
        self.assertEqual(self.reason(), "the engine is away")
        answers.append(self.publish(b"3"))
        self.clock.advance(RETRY * 5)
        self.node.connect()
        self.clock.pump([RETRY] * 3)
        self.node.decide()  # without transactions, after the quiet
        self.node.decide()
        for answer in answers:
            self.done(answer)
        block = self.successResultOf(self.ledger.readBlock(3))
        self.assertEqual([event.content for event in block.events], [b"1", b"2", b"3"])

    def test_brokenEngineRefusesAtOnce(self) -> None:
        """Publishes do not wait for an engine that does not come back by itself."""
        self.node.end()
        self.node.broken = "the engine has ended 3 times: its data is damaged"
        error = self.failureResultOf(self.publish(), LedgerUnavailable).value
        self.assertIn("its data is damaged", str(error))
        self.assertEqual(self.reason(), self.node.broken)


class SponsorTests(LedgerTestCase):
    """
    The validator that attests the broker may leave.
    """

    def change(
        self, *members: int, generation: int = 0, since: Sequence[int] = (0, 1, 2, 3)
    ) -> None:
        """The validators change."""
        change = changeTo(*self.ordered(members), generation=generation, since=since)
        answer = self.ledger.submitChange(change)
        self.clock.advance(INTERVAL)
        self.node.decide()
        self.successResultOf(answer)

    def ordered(self, members: Sequence[int]) -> Sequence[int]:
        """In the engine's order."""
        return sorted(members, key=lambda each: addressOf(KEYS[each]))

    def test_leavingSponsorStopsPublishing(self) -> None:
        """Then nothing is accepted, and it is said what to do."""
        self.start()
        self.opened()
        self.change(1, 2, 3)
        self.node.decide()
        self.assertIn("is not a validator any more", self.reason())
        self.failureResultOf(self.publish(), LedgerUnavailable)
        self.assertIsNotNone(self.ledger.topicState("t"))
        self.successResultOf(self.ledger.stop())
        self.attest(2)
        self.ledger = self.make()
        self.successResultOf(self.ledger.start())
        self.node.connect()
        answer = self.publish()
        self.node.decide()
        self.done(answer)

    def test_newSponsorResumesPublishing(self) -> None:
        """After a change of the set, another validator can attest the broker."""
        self.attest(4)
        self.start()
        self.assertIn("is not a validator any more", self.reason())
        self.attest(1)
        self.successResultOf(self.ledger.stop())
        self.ledger = self.make()
        self.successResultOf(self.ledger.start())
        self.node.connect()
        self.opened()
        self.attest(4)
        self.change(0, 1, 2, 3, 4)
        answer = self.publish()
        self.node.decide()
        self.done(answer)
        self.change(0, 2, 3, 4, generation=1, since=self.ordered([0, 1, 2, 3, 4]))
        answer = self.publish()
        self.node.decide()
        self.done(answer)


class StopTests(LedgerTestCase):
    """
    The end.
    """

    def setUp(self) -> None:
        super().setUp()
        self.start()
        self.opened()

    def ended(self) -> None:
        """Nothing is left."""
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertFalse(self.node.isWanted or self.node.ports[-1].isOpen)
        self.assertEqual(self.reason(), "the ledger is stopped")
        self.assertRaises(LedgerUnavailable, self.ledger.topicState, "t")

    def test_idleStopIsImmediate(self) -> None:
        """A stop ends at once where nothing waits."""
        self.successResultOf(self.ledger.stop())
        self.ended()

    def test_stopDrainsOutbox(self) -> None:
        """Transactions that were accepted become final first; nothing is accepted any more."""
        answer = self.publish()
        stopped = self.ledger.stop()
        self.failureResultOf(self.publish(), LedgerUnavailable)
        self.assertEqual(self.reason(), "the ledger is stopping")
        self.assertNoResult(stopped)
        self.node.decide()
        self.done(answer)
        self.successResultOf(stopped)
        self.ended()

    def test_stopTimesOut(self) -> None:
        """A transaction that does not become final in time fails; so a stop comes to an end."""
        answer = self.publish()
        self.node.end()
        stopped = self.ledger.stop()
        self.clock.advance(STOP_TIMEOUT - 0.1)
        self.assertNoResult(stopped)
        self.clock.advance(0.2)
        self.successResultOf(stopped)
        self.failureResultOf(answer, TransactionTimeout)
        self.ended()
