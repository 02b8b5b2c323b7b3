"""
Tests for certificates, which make blocks final: fetched, waited for, kept, and checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec.json import encode
from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.errors import LedgerUnavailable
from svcbroker.ledgers.cometbft import _certifier
from svcbroker.ledgers.cometbft._certifier import INTERVAL, RETRY, TIMEOUT, Certifier
from svcbroker.ledgers.cometbft._rpc import EngineError, Reason
from svcbroker.model import EventId
from svcbroker.proofs import (
    CERTIFIED,
    UNCERTIFIED,
    CometCertificate,
    EventProof,
    storedCertificate,
    verifyProof,
)
from svcbroker.proofs.cometbft import LightBlock, LightBlockInvalid
from tools.vectors.enginechain import EngineChain


class FakeRpc:
    """
    An engine that knows a chain's light blocks.

    @ivar asked: which heights it was asked for, request by request.
    @ivar earliest: its first block.
    @ivar error: what it says instead of an answer.
    @ivar held: where it does not answer, what it was asked.
    """

    def __init__(self, chain: EngineChain) -> None:
        self.chain = chain
        self.asked: list[Sequence[int]] = []
        self.earliest = 1
        self.error: EngineError | None = None
        self.held: list[Deferred[Any]] | None = None

    def status(self) -> Deferred[Any]:
        """See L{EngineRpc}."""
        info = SimpleNamespace(earliestBlockHeight=self.earliest)
        return succeed(SimpleNamespace(syncInfo=info))

    def lightBlock(self, height: int) -> Deferred[LightBlock]:
        """See L{EngineRpc}."""
        return self.lightBlocks([height]).addCallback(lambda blocks: blocks[0])

    def lightBlocks(self, heights: Sequence[int]) -> Deferred[Sequence[LightBlock]]:
        """See L{EngineRpc}."""
        self.asked.append(heights)
        if self.error is not None:
            return fail(self.error)
        if min(heights) < self.earliest:
            return fail(EngineError(Reason.BAD_ANSWER, "it is gone"))
        if self.held is not None:
            self.held.append(Deferred())
            return self.held[-1]
        return succeed([self.chain.lights[height - 1] for height in heights])


class CertifierTests(SynchronousTestCase):
    """
    A chain of which nothing is certified.
    """

    def setUp(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir()
        self.chain = EngineChain(directory, keeps=False)
        self.addCleanup(self.chain.close)
        self.chain.open("t")
        self.clock, self.rpc = Clock(), FakeRpc(self.chain)
        rpc: Any = self.rpc
        self.certifier = Certifier(rpc, self.clock, self.inThread)
        self.written: list[Deferred[None]] | None = None

    def inThread(self, call: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """Runs at once, unless a test holds it back."""
        if self.written is None:
            return maybeDeferred(call, *args)
        self.written.append(Deferred())
        return self.written[-1].addCallback(lambda _: call(*args))

    def begin(self) -> None:
        """Look after the chain."""
        self.certifier.begin(self.chain.genesis, self.chain.store)

    def certified(self) -> Sequence[int]:
        """The blocks that have a certificate, all of them good."""
        rows = self.chain.store.blockHeads(1, 10_000)
        for row in rows:
            if row.certificate:
                expected = CometCertificate.of(self.chain.lights[row.height])
                self.assertEqual(storedCertificate(row.certificate), expected)
        return [row.height for row in rows if row.certificate]

    def test_certificatesAreStored(self) -> None:
        """Blocks with transactions get theirs once there is a block after them."""
        self.begin()
        self.chain.publish("t", b"2")
        self.clock.advance(INTERVAL)
        self.assertEqual(self.certified(), [1])
        self.chain.decide()
        self.certifier.committed()
        self.chain.publish("t", b"4")
        self.certifier.committed()
        self.assertEqual(self.certified(), [1])
        self.clock.advance(INTERVAL)
        self.assertEqual(self.certified(), [1, 2])
        self.chain.decide()
        self.certifier.committed()
        self.clock.advance(INTERVAL)
        self.assertEqual(self.certified(), [1, 2, 4])
        self.assertEqual(self.rpc.asked, [[2], [3], [5]])

    def test_missingCertificateIsFetchedForProof(self) -> None:
        """A proof gets the certificates that are not stored yet."""
        (event,) = self.chain.publish("t", b"x")
        self.chain.decide()
        self.begin()
        proof = self.successResultOf(
            self.certifier.complete(
                lambda given: maybeDeferred(self.chain.prover.event, event, None, given)
            )
        )
        self.assertEqual(proof.format, CERTIFIED)
        self.assertEqual(self.rpc.asked, [[event.height + 1]])

    def test_laterCertificateReplacesPrunedOne(self) -> None:
        """A later certificate proves the event where the engine has pruned the block."""
        (event,) = self.chain.publish("t", b"x")
        (late,) = self.chain.publish("t", b"y")
        self.chain.decide()
        self.begin()
        self.rpc.earliest = late.height + 1

        def prove(eventId: EventId) -> Deferred[EventProof]:
            return self.certifier.complete(
                lambda given: maybeDeferred(self.chain.prover.event, eventId, None, given)
            )

        proof = self.successResultOf(prove(event))
        proved = verifyProof(encode(proof), chain=self.chain.genesis.chain)
        self.assertEqual(proof.format, UNCERTIFIED)
        self.assertEqual(proved.signed, self.chain.prover.checkpoint(late.height))
        self.assertEqual(self.rpc.asked, [[event.height + 1], [late.height + 1]])
        # The reason is that of the certificate without which there is no proof.
        self.rpc.earliest = 1000
        for eventId in (event, late):
            error = self.failureResultOf(prove(eventId), LedgerUnavailable).value
            self.assertIn(f"block {late.height} is final", error.message)

    def test_certificatesAreFetchedInBatches(self) -> None:
        """Many are fetched in few requests, across changes of the nodes."""
        for number in range(30):
            self.chain.publish("t", b"%d" % number)
            if number in (3, 20):
                self.chain.changeNodes("node 0", "node 1", f"node {number}")
        self.begin()
        self.clock.advance(INTERVAL)
        self.assertEqual(self.certified(), list(range(1, self.chain.head.height)))
        self.assertEqual(len(self.rpc.asked), 4)

    def test_emptyBlocksAreSkippedInTurns(self) -> None:
        """Between some blocks without transactions and the next ones, the reactor has its turn."""
        read, callLater = self.chain.store.blockHeads, self.clock.callLater
        turns = [0]

        def reading(first: int, last: int) -> Sequence[Any]:
            rows = read(first, last)
            turns[-1] += len(rows)
            return rows

        def callingLater(*args: Any) -> Any:
            turns.append(0)
            return callLater(*args)

        self.patch(_certifier, "_ROWS", 10)
        self.patch(self.chain.store, "blockHeads", reading)
        self.patch(self.clock, "callLater", callingLater)
        self.chain.store.certify({1: self.chain.lights[1].encode()})
        for _ in range(95):
            self.chain.decide()
        self.chain.publish("t", b"late")
        self.chain.decide()
        self.begin()
        self.clock.advance(INTERVAL)
        self.assertLessEqual(max(turns), 20)
        self.assertEqual(self.rpc.asked, [[98]])
        self.assertEqual(self.certified(), [1, 97])

    def test_restartContinues(self) -> None:
        """After a start it goes on where it was."""
        for number in range(3):
            self.chain.publish("t", b"%d" % number)
        self.chain.store.certify({2: self.chain.lights[2].encode()})
        self.begin()
        self.clock.advance(INTERVAL)
        self.assertEqual(self.rpc.asked, [[4]])

    def test_unavailableBlocksAreSkipped(self) -> None:
        """Blocks that an engine never had are not asked for."""
        for number in range(5):
            self.chain.publish("t", b"%d" % number)
        self.rpc.earliest = 5
        self.begin()
        self.clock.advance(INTERVAL)
        self.assertEqual(self.certified(), [4, 5])

    def test_prunedBlocksAreSkipped(self) -> None:
        """The blocks that are left are certified where the engine has dropped others meanwhile."""
        self.chain.publish("t", b"2")
        self.begin()
        self.clock.advance(INTERVAL)
        for number in range(3, 7):
            self.chain.publish("t", b"%d" % number)
        self.rpc.earliest = 5
        self.certifier.committed()
        self.clock.advance(INTERVAL)
        self.assertEqual(self.certified(), [1])
        self.clock.advance(RETRY)
        self.assertEqual(self.certified(), [1, 4, 5])

    def test_unreachableEngineIsRetried(self) -> None:
        """An engine that does not answer is asked again."""
        self.chain.decide()
        self.rpc.error = EngineError(Reason.UNREACHABLE, "nobody is there")
        self.begin()
        self.clock.advance(INTERVAL)
        self.assertEqual(self.certified(), [])
        self.rpc.error = None
        self.clock.advance(RETRY)
        self.assertEqual(self.certified(), [1])

    def test_invalidCertificateIsNotStored(self) -> None:
        """A certificate that does not hold is not kept, and it is said."""
        self.chain.decide()
        good = self.chain.lights[1]
        nodes = self.chain.genesis.validatorSet
        self.chain.lights[1] = self.chain.light(good.header, nodes, (0, 1))
        self.begin()
        self.clock.advance(INTERVAL)
        self.assertEqual(self.certified(), [])
        self.assertEqual(len(self.flushLoggedErrors(LightBlockInvalid)), 1)
        self.chain.lights[1] = good
        self.clock.advance(RETRY)
        self.assertEqual(self.certified(), [1])

    def test_stopWaitsForWrite(self) -> None:
        """Stopping waits for what is being written, and for nothing else."""
        self.chain.decide()
        self.successResultOf(self.certifier.stop())
        self.begin()
        self.successResultOf(self.certifier.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.begin()
        self.rpc.held = []
        self.clock.advance(INTERVAL)
        self.assertEqual(len(self.rpc.held), 1)
        self.successResultOf(self.certifier.stop())
        self.rpc.held, self.written = None, []
        self.begin()
        self.clock.advance(INTERVAL)
        stopped = self.certifier.stop()
        self.assertNoResult(stopped)
        self.written[0].callback(None)
        self.successResultOf(stopped)
        self.assertEqual(self.certified(), [1])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_newChainBeginsAtItsOwnBlocks(self) -> None:
        """Certificates written for a former chain meanwhile tell nothing of the new one."""
        self.chain.decide()
        self.begin()
        self.written = []
        self.clock.advance(INTERVAL)
        directory = Path(self.mktemp())
        directory.mkdir()
        other = EngineChain(directory, keeps=False)
        self.addCleanup(other.close)
        self.certifier.begin(other.genesis, other.store)
        self.written[0].callback(None)
        self.assertEqual(self.certifier.retained(10, 1), 0)

    def ask(self, height: int) -> Deferred[CometCertificate]:
        """Ask for the certificate of a block."""
        return Deferred.fromCoroutine(self.certifier.certificate(height))

    def test_certificateWaitsForNextBlock(self) -> None:
        """A certificate is waited for until the next block is there."""
        self.begin()
        asked = self.ask(1)
        self.clock.pump([0.1] * 5)
        self.assertNoResult(asked)
        self.chain.decide()
        self.clock.advance(0.1)
        expected = CometCertificate.of(self.chain.lights[1])
        self.assertEqual(self.successResultOf(asked), expected)

    def test_missingCertificateTimesOut(self) -> None:
        """It is not waited for long, and what is wrong is not passed on."""
        self.begin()
        asked = self.ask(1)
        self.clock.pump([0.1] * int(TIMEOUT * 10 + 1))
        self.failureResultOf(asked, LedgerUnavailable)
        self.chain.decide()
        self.rpc.error = EngineError(Reason.UNREACHABLE, "nobody is there")
        refused = self.failureResultOf(self.ask(1), LedgerUnavailable)
        self.assertIn("nobody is there", refused.value.message)
        self.rpc.error = None
        self.chain.lights[1] = self.chain.lights[2]
        self.failureResultOf(self.ask(1), LedgerUnavailable)
        self.failureResultOf(self.ask(0), LedgerUnavailable)
        self.successResultOf(self.certifier.stop())
        self.failureResultOf(self.ask(1), LedgerUnavailable)
