"""
Tests for L{svcbroker.net.listeners}: sockets that systemd has opened.
"""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from pathlib import Path
from typing import Any

from attrs import define
from twisted.internet import reactor
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.error import CannotListenError, ConnectionDone
from twisted.internet.interfaces import IAddress, IStreamServerEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase
from zope.interface.verify import verifyObject

from svcbroker.daemon.ports import GatedFactory
from svcbroker.net.budgets import LOGIN_TIMEOUT, Stranger, Strangers
from svcbroker.net.listeners import InheritedEndpoint, ProxiedFactory, inheritedEndpoint


@define
class FakeSockets:
    """The sockets that systemd has passed, by their names."""

    sockets: dict[str, socket.socket]

    def inheritedDescriptors(self) -> list[int]:
        return list(self.inheritedNamedDescriptors().values())

    def inheritedNamedDescriptors(self) -> dict[str, int]:
        return {name: each.fileno() for name, each in self.sockets.items()}


class Greeter(Protocol):
    """Says hello and hangs up."""

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(b"hello")
        self.transport.loseConnection()


class InheritedEndpointTests(TestCase):
    """
    L{InheritedEndpoint} and L{inheritedEndpoint}
    """

    def listening(self, family: int, address: Any) -> socket.socket:
        """A socket as systemd passes it."""
        made = socket.socket(family, socket.SOCK_STREAM)
        made.bind(address)
        made.listen()
        return made

    def endpoint(self, made: socket.socket, **named: str) -> InheritedEndpoint:
        """The endpoint of a socket whose name is http."""
        endpoint = inheritedEndpoint(reactor, **named, sockets=FakeSockets({"http": made}))
        if not endpoint.reason:
            # The endpoint closes it.
            made.detach()
        return endpoint

    async def greeted(self, made: socket.socket, **named: str) -> InheritedEndpoint:
        """
        Have a client greeted on a socket, and another one wait for the next daemon. The endpoint
        that was used.
        """
        # systemd keeps the socket.
        endpoint = self.endpoint(made.dup(), **named)
        self.assertTrue(verifyObject(IStreamServerEndpoint, endpoint))
        greeter: Any = Factory.forProtocol(Greeter)
        with socket.socket(made.family) as client, socket.socket(made.family) as next, made:
            client.connect(made.getsockname())
            port = await endpoint.listen(greeter)
            self.assertEqual(port.getHost(), endpoint.address)
            self.assertEqual(await deferToThread(client.recv, 10), b"hello")
            stopped: Any = port.stopListening()
            await stopped
            next.connect(made.getsockname())
            accepted, _ = made.accept()
            accepted.close()
        return endpoint

    async def test_tcpSocketServesByNameAndIndex(self) -> None:
        for named in ({"name": "http"}, {"index": "0"}, {"domain": "INET", "index": "0"}):
            made = self.listening(socket.AF_INET, ("127.0.0.1", 0))
            expected = IPv4Address("TCP", "127.0.0.1", made.getsockname()[1])
            self.assertEqual((await self.greeted(made, **named)).address, expected)

    async def test_ipv6SocketServes(self) -> None:
        made = self.listening(socket.AF_INET6, ("::1", 0))
        expected = IPv6Address("TCP", *made.getsockname())
        self.assertEqual((await self.greeted(made, name="http")).address, expected)

    async def test_unixSocketKeepsItsFileAndMode(self) -> None:
        """The next daemon is reached by the same file."""
        with tempfile.TemporaryDirectory() as root:
            path = Path(root, "socket")
            made = self.listening(socket.AF_UNIX, str(path))
            path.chmod(0o660)
            endpoint = await self.greeted(made, name="http")
            self.assertEqual(endpoint.address, UNIXAddress(str(path)))
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o660)

    def test_unusableSocketIsExplainedWhenListenedOn(self) -> None:
        """A check of the configuration runs without the sockets."""
        idle = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        other = self.listening(socket.AF_INET, ("127.0.0.1", 0))
        noSocket: Any = self.enterContext(open(os.devnull))
        for each in (idle, datagrams, other):
            self.addCleanup(each.close)
        for made, arguments, reason in (
            (other, {"name": "mqtt"}, "systemd has not passed this socket, but http"),
            (other, {"index": "1"}, "systemd has not passed this socket, but http"),
            (other, {"domain": "INET6", "index": "0"}, "the socket of systemd is of INET, not"),
            (idle, {"name": "http"}, "the socket of systemd does not listen for streams"),
            (datagrams, {"name": "http"}, "the socket of systemd does not listen for streams"),
            (noSocket, {"name": "http"}, "systemd has passed no socket: Socket operation on"),
        ):
            endpoint = self.endpoint(made, **arguments)
            self.assertIsNone(endpoint.address)
            error = self.failureResultOf(endpoint.listen(Factory()), CannotListenError).value
            self.assertTrue(error.socketError.startswith(reason), error.socketError)
        without = inheritedEndpoint(reactor, name="http", sockets=FakeSockets({}))
        self.assertEqual(without.reason, "systemd has not passed this socket, but none")

    def test_badDescriptionIsRefused(self) -> None:
        for arguments in (
            {},
            {"name": "http", "index": "0"},
            {"domain": "UNSPEC", "name": "http"},
            {"index": "first"},
        ):
            self.assertRaises(
                ValueError, inheritedEndpoint, reactor, **arguments, sockets=FakeSockets({})
            )


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
        """Without addresses, the connection is the proxy's own."""
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
