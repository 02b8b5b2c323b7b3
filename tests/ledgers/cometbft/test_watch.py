"""
Whether the engine and a quorum of the validators are there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from attrs import define, field
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, TimeoutError, succeed
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from svcbroker.ledgers.cometbft._networkwatch import (
    GRACE,
    LOOK,
    MAX_TRIES,
    SILENCE,
    NetworkWatch,
    knock,
)
from svcbroker.ledgers.cometbft._rpc import EngineError, EngineRpc
from svcbroker.model import Health
from svcbroker.net.http import HttpClient

from .test_admin import BLOCK_TIME, AdminCase

reactor: Any = _reactor


@define
class FakeParts:
    """
    An engine whose answers a test has recorded, and peers that a test takes away.

    @ivar names: the public keys of the validators, by the names of their engines.
    @ivar ids: the persistent peers.
    @ivar gone: those that do not answer.
    @ivar asked: those that were asked, in order.
    @ivar reason: why the engine does not run.
    """

    rpc: EngineRpc
    validators: Mapping[str, bytes]
    ids: Collection[str]
    gone: set[str] = field(factory=set)
    asked: list[str] = field(factory=list)
    reason: str = ""

    @property
    def engine(self) -> FakeParts:
        """It is its own engine."""
        return self

    def names(self) -> Mapping[str, bytes]:
        """See L{EngineParts}."""
        return self.validators

    def peers(self) -> Collection[str]:
        """See L{EngineParts}."""
        return self.ids

    def probe(self, node: str) -> Deferred[None]:
        """See L{EngineParts}."""
        self.asked.append(node)
        return Deferred() if node in self.gone else succeed(None)


class WatchTests(AdminCase):
    """
    L{NetworkWatch} beside an engine that answers what was recorded. A test says which peers answer.
    """

    def setUp(self) -> None:
        super().setUp()
        self.clock = Clock()
        # The newest block is an hour old.
        self.clock.advance(BLOCK_TIME + 3600)
        rpc = EngineRpc(HttpClient(self.engine.agent, self.clock), "http://127.0.0.1:1", timeout=10)
        ids = {self.peerId(index) for index in (1, 2, 3)}
        parts: Any = FakeParts(rpc, self.names, ids)
        self.parts: FakeParts = parts
        self.watch = NetworkWatch(parts, self.clock, self.clock.seconds)
        self.watch.start()
        self.addCleanup(self.checkEnd)

    def checkEnd(self) -> None:
        """Nothing is left when it has stopped."""
        self.watch.stop()
        self.settle()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def settle(self) -> None:
        """The engine answers what it was asked."""
        for _ in range(5):
            self.engine.agent.flush()

    def wait(self, seconds: float) -> None:
        """Time passes."""
        for _ in range(int(seconds / 0.25)):
            self.clock.advance(0.25)
            self.settle()

    def told(self) -> Health:
        """Whether the network makes progress."""
        asked = self.watch.health()
        self.settle()
        return self.successResultOf(asked)

    def silence(self, *indexes: int) -> None:
        """Peers are connected, and do not answer any more."""
        self.parts.gone.update(self.peerId(index) for index in indexes)

    def test_allThereIsReady(self) -> None:
        """A node whose peers answer is ready, and what it has is as new as the last look."""
        self.wait(5 * LOOK)
        self.assertEqual(self.told(), Health(isReady=True))
        self.assertEqual(self.watch.refusal, "")
        self.assertLessEqual(self.watch.age, LOOK)

    def test_silentQuorumIsNoticed(self) -> None:
        """
        Two of four are silent on an idle network: within three seconds the node is alone. Publishes
        are refused once that has lasted.
        """
        self.wait(5 * LOOK)
        self.silence(1, 2)
        self.wait(3)
        self.assertRegex(self.told().reason, "^alone since 20.* UTC: 2 of 4 validators are active")
        self.assertEqual(self.watch.refusal, "")
        self.wait(GRACE)
        self.assertRegex(self.watch.refusal, "^alone since")
        self.wait(10)
        self.assertGreater(self.watch.age, 10)
        self.parts.gone.clear()
        self.wait(LOOK)
        self.assertEqual((self.told(), self.watch.refusal), (Health(isReady=True), ""))

    def test_silentMinorityIsTolerated(self) -> None:
        """One of four may be silent."""
        self.wait(5 * LOOK)
        self.silence(1)
        self.wait(10)
        self.assertEqual((self.told(), self.watch.refusal), (Health(isReady=True), ""))
        listed = self.watch.picture()
        self.settle()
        peers = self.successResultOf(listed).network.peers
        self.assertNotIn(self.peerId(1), {peer.nodeInfo.id for peer in peers})

    def test_blocksAreSignsOfLife(self) -> None:
        """While blocks are decided nobody is asked, and nobody is missed."""
        self.wait(5 * LOOK)
        self.silence(1, 2, 3)
        self.parts.asked.clear()
        for _ in range(20):
            self.watch.decided()
            self.wait(0.5)
        self.assertEqual(self.parts.asked, [])
        self.assertEqual((self.told(), self.watch.refusal), (Health(isReady=True), ""))
        self.wait(3)
        self.assertIn("alone since", self.told().reason)

    def test_peersThatNeverAnswerAreNotMissed(self) -> None:
        """Peers that cannot be dialled are not asked for long, and their connections count."""
        self.silence(1, 2, 3)
        self.wait(30)
        self.assertEqual((self.told(), self.watch.refusal), (Health(isReady=True), ""))
        self.assertEqual(len(self.parts.asked), 3 * MAX_TRIES)

    def test_startHasTime(self) -> None:
        """At the start publishes are taken while a quorum is looked for."""
        for index in (1, 2):
            self.disconnect(index)
        self.wait(GRACE)
        self.assertRegex(self.told().reason, "^2 of 4 validators")
        self.assertEqual(self.watch.refusal, "")
        self.wait(2 * LOOK)
        self.assertIn("alone since", self.watch.refusal)

    def test_suspendedEngineIsNoticed(self) -> None:
        """An engine that does not answer is waited for once, and then told of at once."""
        self.wait(5 * LOOK)
        self.engine.isSilent = True
        self.wait(SILENCE)
        asked = self.watch.health()
        self.wait(LOOK)
        error = self.failureResultOf(asked, EngineError).value
        self.assertIn("no answer for", str(error))
        self.failureResultOf(self.watch.health(), EngineError)
        self.assertEqual(self.watch.refusal, "")
        self.wait(GRACE)
        self.assertIn("has not answered", self.watch.refusal)
        self.engine.isSilent = False
        self.wait(12)
        self.assertEqual((self.told(), self.watch.refusal), (Health(isReady=True), ""))

    def test_busyEngineIsReady(self) -> None:
        """An engine that decides blocks may take its time to answer."""
        self.wait(5 * LOOK)
        self.engine.isSilent = True
        for _ in range(10):
            self.watch.decided()
            self.wait(0.5)
        asked = self.watch.health()
        self.watch.decided()
        self.assertTrue(self.successResultOf(asked).isReady)
        self.assertEqual(self.watch.refusal, "")

    def test_startedEngineHasTime(self) -> None:
        """An engine that does not run is not asked; when it runs again, publishes wait at first."""
        self.wait(5 * LOOK)
        self.parts.reason = "the engine is stopped"
        self.wait(LOOK)
        self.engine.calls.clear()
        self.wait(5)
        self.assertEqual((self.engine.calls, self.watch.refusal), ([], ""))
        self.parts.reason = ""
        for index in (1, 2):
            self.disconnect(index)
        self.wait(GRACE)
        self.assertEqual(self.watch.refusal, "")
        self.wait(2 * LOOK)
        self.assertIn("alone since", self.watch.refusal)


class Server(Protocol):
    """An engine's port: it says something at once, or nothing, or hangs up."""

    does = ""

    def connectionMade(self) -> None:
        assert self.transport is not None
        if self.does == "speak":
            self.transport.write(b"\x22\x0a")
        elif self.does == "hang up":
            self.transport.loseConnection()


class KnockTests(TestCase):
    """
    L{knock} over loopback.
    """

    def knock(self, does: str) -> Deferred[None]:
        """Knock at a server."""
        factory: Any = Factory.forProtocol(type("", (Server,), {"does": does}))
        port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        return knock(TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port))

    async def test_engineThatSpeaksIsHeard(self) -> None:
        """The first bytes are a sign of life."""
        await self.knock("speak")

    async def test_engineThatHangsUpIsNotHeard(self) -> None:
        """A closed connection is none."""
        with self.assertRaises(ConnectionDone):
            await self.knock("hang up")

    async def test_silentEngineIsLeft(self) -> None:
        """A connection that says nothing is given up when the caller does."""
        asked = self.knock("")
        asked.addTimeout(0.2, reactor)
        with self.assertRaises(TimeoutError):
            await asked
