"""
Tests of L{svcbroker.carriers.peers}: real connections on loopback.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IListeningPort
from twisted.trial.unittest import TestCase
from twisted.web.server import Site

from svcbroker.broker import PeerError
from svcbroker.carriers.peers import makePeers

from .test_asking import OtherBroker

reactor: Any = _reactor


class CountingSite(Site):
    """Counts its connections."""

    connections = 0

    def buildProtocol(self, addr: Any) -> Any:
        self.connections += 1
        return super().buildProtocol(addr)


class ConnectingTests(TestCase):
    """
    A peer at a loopback address.
    """

    def serve(self, interface: str) -> int:
        """Serve a peer; its port."""
        self.site = CountingSite(OtherBroker())
        listening: IListeningPort = reactor.listenTCP(0, self.site, interface=interface)
        self.addCleanup(lambda: maybeDeferred(listening.stopListening))
        address: Any = listening.getHost()
        port: int = address.port
        return port

    async def test_connectionIsKeptForNextQuestion(self) -> None:
        """Question after question goes over one connection, which ends in order."""
        peers = makePeers(reactor, {"b:1": f"http://localhost:{self.serve('127.0.0.1')}"})
        for _ in range(3):
            self.assertEqual(await peers.all[0].listSubscriptions(None, 60), [])
        self.assertEqual(self.site.connections, 1)
        await peers.drain()

    async def test_hostMayBeIpv6Address(self) -> None:
        """A host may be an address of IPv6."""
        peers = makePeers(reactor, {"b:1": f"http://[::1]:{self.serve('::1')}/svcbroker"})
        self.assertEqual(await peers.all[0].listSubscriptions(None, 60), [])
        await peers.drain()

    async def test_unreachablePeerHasWords(self) -> None:
        """A host that has no address, and a port where nobody listens."""
        port = self.serve("127.0.0.1")
        hosts = ("broker_2.invalid:80", f"127.0.0.2:{port}", f"[::1]:{port}")
        peers = makePeers(reactor, {host: f"http://{host}" for host in hosts})
        for peer in peers.all:
            with self.assertRaises(PeerError) as caught:
                await peer.listSubscriptions(None, 60)
            self.assertTrue(str(caught.exception).startswith("cannot be "), str(caught.exception))
        await peers.drain()
