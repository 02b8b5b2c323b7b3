"""
Tests of how long a ledger waits for its chain to begin.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.errors import LedgerUnavailable
from svcbroker.interfaces import LedgerContext
from svcbroker.ledgers.cometbft._cometledger import START_TIMEOUT, CometLedger
from svcbroker.ledgers.cometbft._cometsettings import CometSettings
from svcbroker.ledgers.cometbft._networkwatch import EnginePorts, ForeignEngine
from svcbroker.ledgers.cometbft._rpc import EngineRpc
from svcbroker.ledgers.cometbft._snapshots import SnapshotServer
from svcbroker.ledgers.cometbft.abci import messages
from svcbroker.ledgers.cometbft.abci.messages import ApplyResult, OfferResult
from svcbroker.net.http import HttpClient

from .chains import GENESIS, makeChain
from .fakeengine import FakeEngine


class Port:
    """A port where no engine connects."""

    def stopListening(self) -> Deferred[None]:
        """See C{IListeningPort}."""
        return succeed(None)


class StartTimeoutTests(SynchronousTestCase):
    """
    L{CometLedger.start}, where a chain comes from other nodes.
    """

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.clock = Clock()
        context = LedgerContext(
            group="1",
            directory=self.directory / "ledger",
            reactor=self.clock,
            now=self.clock.seconds,
            entropy=bytes,
            runInThread=maybeDeferred,
            maxContent=1024,
        )
        parts = EnginePorts(
            socket=self.directory / "socket",
            rpc=EngineRpc(HttpClient(FakeEngine().agent, self.clock), "http://engine"),
            engine=ForeignEngine(self.directory / "socket"),
            home=self.directory,
            listen=lambda factory: cast(Any, Port()),
            knock=lambda host, port: Deferred(),
        )
        self.ledger = CometLedger(context, CometSettings(home=self.directory), parts)
        self.started = self.ledger.start()

    def ask(self, call: Any, request: Any) -> Any:
        return self.successResultOf(Deferred.fromCoroutine(call(request))).result

    def test_startTimesOutWithoutProgress(self) -> None:
        """A start to which nothing comes is given up."""
        self.clock.advance(START_TIMEOUT - 1)
        self.assertNoResult(self.started)
        self.clock.advance(1)
        self.failureResultOf(self.started, LedgerUnavailable)

    def test_progressExtendsStart(self) -> None:
        """As long as anything comes it goes on, and ends when the chain is whole."""
        path = self.directory / "chain"
        makeChain(path, 60)
        source = SnapshotServer(path, GENESIS, 20, maybeDeferred)
        (snapshot, *_) = self.successResultOf(Deferred.fromCoroutine(source.list(60)))
        piece = self.successResultOf(Deferred.fromCoroutine(source.load(40, 1, 0, 60)))
        application = self.ledger._application
        for _ in range(3):
            self.clock.advance(START_TIMEOUT - 1)
            offer = messages.OfferSnapshotRequest(snapshot=snapshot, appHash=snapshot.hash)
            self.assertIs(self.ask(application.offerSnapshot, offer), OfferResult.ACCEPT)
            self.clock.advance(1)
            self.assertNoResult(self.started)
        apply = messages.ApplySnapshotChunkRequest(index=0, chunk=piece, sender="peer")
        self.assertIs(self.ask(application.applySnapshotChunk, apply), ApplyResult.ACCEPT)
        self.successResultOf(self.started)
        (topic,) = self.successResultOf(self.ledger.listTopics(0, 9)).items
        self.assertEqual(topic.name, "topic")
        self.successResultOf(self.ledger.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stalledSnapshotTimesOut(self) -> None:
        """A start that came no further for as long as an engine may take is given up."""
        offer = messages.OfferSnapshotRequest()
        self.ask(self.ledger._application.offerSnapshot, offer)
        self.clock.advance(START_TIMEOUT)
        self.assertNoResult(self.started)
        self.clock.advance(START_TIMEOUT)
        self.failureResultOf(self.started, LedgerUnavailable)
