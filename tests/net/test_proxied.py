"""
Tests of L{svcbroker.net.listeners}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.daemon.ports import GatedFactory
from svcbroker.net.budgets import LOGIN_TIMEOUT, Stranger, Strangers
from svcbroker.net.listeners import ProxiedFactory

PROXY = IPv4Address("TCP", "10.0.0.1", 5)
CLIENT = IPv4Address("TCP", "192.0.2.7", 7)
VERSION_2 = b"\r\n\r\n\0\r\nQUIT\n"


class Recorder(Protocol):
    """
    Keeps what it receives.

    @ivar peers: its client's addresses: when it is connected, and when it is not any more.
    """

    stranger: Stranger | None = None

    def __init__(self) -> None:
        self.received = b""
        self.peers: list[IAddress] = []

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.peers.append(self.transport.getPeer())

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        assert self.transport is not None
        self.peers.append(self.transport.getPeer())

    def dataReceived(self, data: bytes) -> None:
        self.received += data


class HeaderTests(SynchronousTestCase):
    """PROXY headers."""

    def connect(self, *data: bytes) -> tuple[Any, StringTransport]:
        """The protocol that has received some pieces of data, and its transport."""
        protocol = ProxiedFactory(Factory.forProtocol(Recorder)).buildProtocol(PROXY)
        transport = StringTransport(peerAddress=PROXY)
        protocol.makeConnection(transport)
        for each in data:
            protocol.dataReceived(each)
        return protocol, transport

    def test_headersNameTheClient(self) -> None:
        """Where there are no addresses, the connection is the proxy's own."""
        for header, peer in (
            (b"PROXY TCP4 192.0.2.7 192.0.2.8 7 8\r\n", CLIENT),
            (b"PROXY UNKNOWN\r\n", PROXY),
            (b"PROXY UNKNOWN ffff::1 ffff::2 7 8\r\n", PROXY),
            (VERSION_2 + b"\x21\x11\0\x0c\xc0\0\2\7\xc0\0\2\x08\0\7\0\x08", CLIENT),
            (VERSION_2 + b"\x20\0\0\0", PROXY),
        ):
            for end in (len(header), 16):
                pieces = header[:end], header[end:] + b"hel", b"lo"
                protocol, transport = self.connect(*filter(None, pieces))
                self.assertEqual(protocol.wrappedProtocol.received, b"hello", header)
                self.assertEqual(protocol.wrappedProtocol.peers, [peer])
                self.assertEqual(protocol.getPeer(), peer)
                self.assertFalse(transport.disconnecting)

    def test_otherHeadersAreRefused(self) -> None:
        for header in (
            b"PROXY UNKNOWNS\r\n",
            b"PROXY TCP4\r\n",
            b"GET / HTTP/1.1\r\n",
            b"PROXY X\r\n",
        ):
            _, transport = self.connect(header)
            self.assertTrue(transport.disconnecting, header)

    def test_protocolWaitsForTheHeader(self) -> None:
        """Its client has no address before. It is not told of a connection that ends before."""
        protocol, _ = self.connect(b"PROXY TCP4 192.0.2.7 ")
        inner = protocol.wrappedProtocol
        self.assertEqual(inner.peers, [])
        protocol.dataReceived(b"192.0.2.8 7 8\r\n")
        self.assertEqual(inner.peers, [CLIENT])
        protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(inner.peers, [CLIENT, CLIENT])
        protocol, _ = self.connect(b"PROXY TCP4 192.0.2.7 ")
        inner = protocol.wrappedProtocol
        protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(inner.peers, [])

    def test_connectionsWithoutHeaderEnd(self) -> None:
        """They are strangers until the deadline, or until the client hangs up."""
        clock = Clock()
        strangers = Strangers(clock)
        factory = GatedFactory("mqtt", strangers, isProxied=True)
        factory.open(Factory.forProtocol(Recorder))
        protocols = [ProxiedFactory(factory).buildProtocol(PROXY) for _ in range(2)]
        transports = [StringTransport(peerAddress=PROXY) for _ in protocols]
        for protocol, transport in zip(protocols, transports, strict=True):
            protocol.makeConnection(transport)
        self.assertEqual(len(strangers), 2)
        protocols[0].connectionLost(Failure(ConnectionDone()))
        self.assertEqual(len(strangers), 1)
        clock.advance(LOGIN_TIMEOUT)
        self.assertEqual([each.disconnected for each in transports], [False, True])
        self.assertEqual(len(strangers), 0)
