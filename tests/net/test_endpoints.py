"""
Tests of L{svcbroker.net.endpoints}: what is connected to, and what is read.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.interfaces import IHostnameResolver, IProtocolFactory
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import URI, BrowserLikePolicyForHTTPS
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface.verify import verifyObject

from svcbroker.net.endpoints import (
    LINGER,
    MAX_INTERIM,
    AddressPolicy,
    AddressRefused,
    BoundedEndpoints,
    FilteringResolver,
    TooMuchReceived,
    hasPermittedAddress,
    parseAddress,
)
from tests.carriers.webhook.support import PUBLIC, SETTINGS, FakeResolver, address

MAX_RECEIVED = 64 * 1024
PRIVATE = "10.9.9.9"
PUBLIC_6 = "2606:4700:4700::1111"


class Client(Protocol):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.received = b""
        self.lost: Failure | None = None

    def dataReceived(self, data: bytes) -> None:
        self.received += data

    def connectionLost(self, reason: Any = None) -> None:
        self.lost = reason


class Transport(StringTransport):
    """A transport that can be aborted."""

    isAborted = False

    def abortConnection(self) -> None:
        self.isAborted = True


class ConnectingTestCase(SynchronousTestCase):
    """
    Endpoints on a reactor of memory.
    """

    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.resolver = FakeResolver()
        self.endpoints = BoundedEndpoints(
            self.reactor,
            BrowserLikePolicyForHTTPS(),
            maxReceived=MAX_RECEIVED,
            timeout=SETTINGS.timeout,
            policy=SETTINGS.policy,
            resolver=self.resolver,
        )

    def connect(self, url: str) -> Deferred[Any]:
        """Connect as an agent does."""
        endpoint = self.endpoints.endpointForURI(URI.fromBytes(url.encode("ascii")))
        return endpoint.connect(Factory.forProtocol(Client))

    def tried(self) -> list[str]:
        """The addresses that connections were tried to, at last."""
        self.reactor.pump([0.5] * 20)
        return [client[0] for client in self.reactor.tcpClients]

    def accept(self, peer: str) -> tuple[Any, Transport]:
        """Accept the connection that was tried first, as an address."""
        factory: IProtocolFactory = self.reactor.tcpClients[0][2]
        protocol: Any = factory.buildProtocol(address(peer, 80))
        transport = Transport(peerAddress=address(peer, 80))
        protocol.makeConnection(transport)
        return protocol, transport


class EndpointTests(ConnectingTestCase):
    """
    From a URL to a connection.
    """

    def test_endpointsImplementTwistedsInterfaces(self) -> None:
        verifyObject(IAgentEndpointFactory, self.endpoints)
        verifyObject(IHostnameResolver, FilteringResolver(self.resolver, AddressPolicy()))

    def test_publicHostIsConnectedTo(self) -> None:
        self.resolver.names["a.example"] = [PUBLIC]
        connecting = self.connect("http://a.example:8081/")
        self.assertEqual(self.tried(), [PUBLIC])
        self.accept(PUBLIC)
        self.assertIsInstance(self.successResultOf(connecting), Client)

    def test_privateAddressIsRefused(self) -> None:
        """By name, or as the host itself."""
        self.resolver.names["a.example"] = [PRIVATE, "127.0.0.1", "::1", "::ffff:10.0.0.1"]
        for url in (
            "http://a.example/",
            "https://a.example/",
            "http://127.0.0.1/",
            "http://[::1]/",
        ):
            self.failureResultOf(self.connect(url), AddressRefused)
        self.assertEqual(self.tried(), [])

    def test_onlyPublicAddressesAreTried(self) -> None:
        """Of a name with addresses of both kinds."""
        self.resolver.names["a.example"] = [PRIVATE, PUBLIC, "127.0.0.1", PUBLIC_6, "fe80::1"]
        connecting = self.connect("http://a.example/")
        self.assertEqual(self.tried(), [PUBLIC, PUBLIC_6])
        connecting.addErrback(lambda _: None)
        connecting.cancel()

    @given(st.lists(st.ip_addresses().map(str), max_size=6))
    def test_anyAddressTriedIsPermitted(self, addresses: list[str]) -> None:
        """Whatever a name resolves to."""
        self.setUp()
        self.resolver.names["a.example"] = addresses
        connecting = self.connect("http://a.example/")
        for tried in self.tried():
            self.assertTrue(SETTINGS.policy.permits("a.example", tried, 443))
            self.assertIn(parseAddress(tried), [parseAddress(each) for each in addresses])
        connecting.addErrback(lambda _: None)
        connecting.cancel()

    def test_rebindingIsRefused(self) -> None:
        """A name is resolved anew for each connection, and checked then."""
        self.resolver.names["a.example"] = [PUBLIC]
        found = hasPermittedAddress(self.resolver, SETTINGS.policy, "a.example", 80)
        self.assertTrue(self.successResultOf(found))
        self.resolver.names["a.example"] = [PRIVATE]
        self.failureResultOf(self.connect("http://a.example/"), AddressRefused)
        self.assertEqual(self.tried(), [])

    def test_addressOfConnectionIsChecked(self) -> None:
        """It may be another than was resolved."""
        self.resolver.names["a.example"] = [PUBLIC]
        connecting = self.connect("http://a.example/")
        self.tried()
        _, transport = self.accept("127.0.0.1")
        self.failureResultOf(connecting, AddressRefused)
        self.assertTrue(transport.isAborted)
        self.assertEqual(transport.value(), b"")

    def test_allowedHostAndNetworkAreConnectedTo(self) -> None:
        self.resolver.names.update({"inside.example": ["127.0.0.1"], "b.example": ["10.1.2.3"]})
        for host in ("inside.example", "b.example", "10.1.0.1"):
            self.connect(f"http://{host}/").addErrback(lambda _: None)
        self.assertEqual(self.tried(), ["127.0.0.1", "10.1.2.3", "10.1.0.1"])

    def test_unknownHostIsNotCalledRefused(self) -> None:
        failure = self.failureResultOf(self.connect("http://none.example/"))
        self.assertNotIsInstance(failure.value, AddressRefused)

    def test_httpsStartsTls(self) -> None:
        self.resolver.names["a.example"] = [PUBLIC]
        self.connect("https://a.example/")
        self.tried()
        _, transport = self.accept(PUBLIC)
        self.assertTrue(transport.value().startswith(b"\x16\x03"))
        self.assertIn(b"a.example", transport.value())


class BoundTests(ConnectingTestCase):
    """
    What a receiver may answer.
    """

    def setUp(self) -> None:
        super().setUp()
        self.connecting = self.connect(f"http://{PUBLIC}/")
        self.tried()
        self.wire, self.transport = self.accept(PUBLIC)
        self.client: Client = self.successResultOf(self.connecting)

    def test_tooLongAnswerAbortsConnection(self) -> None:
        """It is not handed on."""
        self.wire.dataReceived(b"x" * MAX_RECEIVED)
        self.assertFalse(self.transport.isAborted)
        self.wire.dataReceived(b"x")
        self.assertTrue(self.transport.isAborted)
        self.assertEqual(len(self.client.received), MAX_RECEIVED)
        self.wire.dataReceived(b"x" * 10)
        self.assertEqual(len(self.client.received), MAX_RECEIVED)

    def test_boundIsForEachRequest(self) -> None:
        for _ in range(3):
            assert self.client.transport is not None
            self.client.transport.write(b"request")
            self.wire.dataReceived(b"x" * MAX_RECEIVED)
            self.client.transport.writeSequence([b"request"])
            self.wire.dataReceived(b"x" * MAX_RECEIVED)
        self.assertFalse(self.transport.isAborted)

    def test_interimResponsesAreDiscarded(self) -> None:
        """In whatever pieces they come; the answer after them is whole."""
        assert self.client.transport is not None
        interim = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
        final = b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
        for size in (1, 7, len(interim), 1000):
            self.client.received = b""
            self.client.transport.write(b"request")
            data = interim + final
            for start in range(0, len(data), size):
                self.wire.dataReceived(data[start : start + size])
            self.assertEqual(self.client.received, final)
        self.assertFalse(self.transport.isAborted)

    def test_tooManyInterimResponsesAbortConnection(self) -> None:
        """In any form that twisted.web takes for one; none reaches it."""
        assert self.client.transport is not None
        for interim in (b"HTTP/1.1 100 \r\n\r\n", b"x/9.9 +1_0_2\n\n"):
            self.transport.isAborted = False
            self.client.transport.writeSequence([b"request"])
            self.wire.dataReceived(interim * MAX_INTERIM)
            self.assertFalse(self.transport.isAborted)
            self.wire.dataReceived(interim)
            self.assertTrue(self.transport.isAborted)
        self.assertEqual(self.client.received, b"")
        self.wire.connectionLost(Failure(ConnectionAborted()))
        assert self.client.lost is not None
        self.client.lost.trap(TooMuchReceived)

    def test_privilegedPortIsRefused(self) -> None:
        """The resolver is told the port, and so is the policy."""
        self.resolver.names["a.example"] = [PUBLIC]
        for url in ("http://a.example:25/", f"http://{PUBLIC}:1023/"):
            self.failureResultOf(self.connect(url), AddressRefused)

    def test_connectionThatStaysOpenIsAborted(self) -> None:
        assert self.client.transport is not None
        self.client.transport.loseConnection()
        self.client.transport.loseConnection()
        self.assertTrue(self.transport.disconnecting)
        self.reactor.advance(LINGER)
        self.assertTrue(self.transport.isAborted)
        self.wire.connectionLost(Failure(ConnectionAborted()))
        self.assertIsNotNone(self.client.lost)

    def test_closedConnectionLeavesNoTimer(self) -> None:
        assert self.client.transport is not None
        self.client.transport.loseConnection()
        self.wire.connectionLost(Failure(ConnectionDone()))
        self.reactor.advance(LINGER)
        self.assertFalse(self.transport.isAborted)

    def test_lostConnectionThatIsClosedLeavesNoTimer(self) -> None:
        """As a client of HTTP does where a connection ends in the middle of a response."""
        assert self.client.transport is not None
        self.wire.connectionLost(Failure(ConnectionDone()))
        self.client.transport.loseConnection()
        self.assertEqual(self.reactor.getDelayedCalls(), [])
