"""
Tests of L{svcbroker.net.endpoints}: what is connected to, and what is read.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
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
    isHostName,
    isPublic,
    parseAddress,
    parseAllowed,
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
    The answers of receivers.
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


# From the registries of IANA, written down anew. Not the tables of the module under test.
SPECIAL_4 = [
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
    *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24"),
    *("192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15"),
    *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    *("255.255.255.255/32", "168.63.129.16/32", "169.254.169.254/32", "100.100.100.200/32"),
]
SPECIAL_6 = [
    *("::/128", "::1/128", "::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "100::/64"),
    *("100:0:0:1::/64", "2001::/23", "2001::/32", "2001:2::/48", "2001:3::/32", "2001:10::/28"),
    *("2001:20::/28", "2001:30::/28", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48"),
    *("3ffe::/16", "3fff::/20", "5f00::/16", "fc00::/7", "fd00:ec2::254/128", "fe80::/10"),
    *("fec0::/10", "ff00::/8", "4000::/3", "e000::/4"),
]


def inside(network: IPv4Network | IPv6Network) -> st.SearchStrategy[int]:
    """Addresses of a network, its first and last more often than others."""
    first, last = int(network.network_address), int(network.broadcast_address)
    return st.sampled_from([first, last]) | st.integers(first, last)


special4 = st.sampled_from(SPECIAL_4).flatmap(lambda each: inside(IPv4Network(each)))
special6 = st.sampled_from(SPECIAL_6).flatmap(lambda each: inside(IPv6Network(each)))
any4 = st.integers(0, 2**32 - 1)
DEFAULT = AddressPolicy()


class PublicTests(SynchronousTestCase):
    """
    The addresses that lead out.
    """

    def test_publicAddressesArePermitted(self) -> None:
        for text in (
            *("1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "93.184.215.14", "100.63.255.255"),
            *("100.128.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255", "198.17.255.255"),
            *("198.20.0.0", "223.255.255.255", "168.63.129.15", "2606:4700:4700::1111"),
            *("2001:200::1", "2001:4860:4860::8888", "2a00:1450::1", "2003::1", "2400:cb00::1"),
            *("64:ff9b::101:101", "::ffff:8.8.8.8"),
        ):
            self.assertTrue(DEFAULT.permits("name.example", text, 443), text)

    @given(special4)
    def test_specialIpv4AddressesAreRefused(self, number: int) -> None:
        """Also inside of IPv6 addresses."""
        plain = IPv4Address(number)
        for text in (
            str(plain),
            f"::ffff:{plain}",  # mapped
            str(IPv6Address(0xFFFF << 32 | number)),
            f"::{plain}",  # compatible
            f"::ffff:0:{plain}",  # translated
            f"64:ff9b::{plain}",  # NAT64
            f"64:ff9b:1::{plain}",
            str(IPv6Address(0x2002 << 112 | number << 80 | 1)),  # 6to4
            str(IPv6Address(0x20010000 << 96 | number ^ 0xFFFFFFFF)),  # Teredo's client
            str(IPv6Address(0x20010000 << 96 | number << 64)),  # Teredo's server
            str(IPv6Address(0x2A001450 << 96 | 0x00005EFE << 32 | number)),  # ISATAP
            str(IPv6Address(0x2A001450 << 96 | 0x02005EFE << 32 | number)),
            f"fe80::5efe:{plain}%eth0",
        ):
            self.assertFalse(DEFAULT.permits("name.example", text, 443), text)

    @given(special6)
    def test_specialIpv6AddressesAreRefused(self, number: int) -> None:
        """With a zone or without."""
        address = IPv6Address(number)
        self.assertFalse(isPublic(address), address)
        self.assertFalse(DEFAULT.permits("name.example", f"{address}%1", 443))

    @given(any4)
    def test_pythonsPrivateAddressesAreRefused(self, number: int) -> None:
        address = IPv4Address(number)
        if isPublic(address):
            self.assertTrue(address.is_global)
            self.assertFalse(address.is_multicast or address.is_reserved)

    @given(any4)
    def test_embeddedIpv4AddressCounts(self, number: int) -> None:
        expected = isPublic(IPv4Address(number))
        for prefix in ("::ffff:", "64:ff9b::"):
            self.assertIs(isPublic(IPv6Address(f"{prefix}{IPv4Address(number)}")), expected)

    @given(st.integers(0, 2**128 - 1))
    def test_unallocatedIpv6IsRefused(self, number: int) -> None:
        address = IPv6Address(number)
        if isPublic(address):
            self.assertTrue(address.sixtofour is None and address.teredo is None)
            self.assertTrue(number >> 125 == 1 or number >> 32 in (0xFFFF, 0x64FF9B << 64))

    @given(st.text(max_size=40))
    def test_anyTextIsJudged(self, text: str) -> None:
        """Only addresses are permitted."""
        if parseAddress(text) is None:
            self.assertFalse(DEFAULT.permits("name.example", text, 443))


class AllowedTests(SynchronousTestCase):
    """
    The targets that the operator allows.
    """

    def test_allowedNetworksArePermitted(self) -> None:
        """Also where they are inside of IPv6 addresses."""
        policy = AddressPolicy.allowing(["127.0.0.0/8", "10.1.2.3", "fd00:1::/32"])
        for text in ("127.0.0.1", "::ffff:127.1.2.3", "10.1.2.3", "64:ff9b::10.1.2.3", "fd00:1::9"):
            self.assertTrue(policy.permits("name.example", text, 443), text)
        for text in ("128.0.0.1.", "10.1.2.4", "::1", "fd00:2::1", "2002:7f00:1::", "::127.0.0.1"):
            self.assertFalse(policy.permits("name.example", text, 443), text)

    def test_mappedNetworkCanBeAllowed(self) -> None:
        policy = AddressPolicy.allowing(["::ffff:10.0.0.0/104"])
        self.assertTrue(policy.permits("h", "::ffff:10.2.3.4", 443))
        self.assertFalse(policy.permits("h", "10.2.3.4", 443))

    def test_wholeFamilyCanBeAllowed(self) -> None:
        policy = AddressPolicy.allowing(["::/0"])
        self.assertTrue(policy.permits("h", "fe80::1%eth0", 443))
        self.assertFalse(policy.permits("h", "127.0.0.1", 443))

    def test_allowedHostIsPermittedByName(self) -> None:
        """Whatever it resolves to; no other name is."""
        policy = AddressPolicy.allowing(["Receiver.internal."])
        self.assertTrue(policy.permits("receiver.INTERNAL", "127.0.0.1", 443))
        self.assertTrue(policy.permits("receiver.internal.", "::1", 443))
        self.assertFalse(policy.permits("x.receiver.internal", "127.0.0.1", 443))
        self.assertFalse(policy.permits("internal", "127.0.0.1", 443))

    @given(any4, st.integers(0, 32), any4)
    def test_networksAgreeWithPython(self, base: int, length: int, number: int) -> None:
        network = ip_network((base, length), strict=False)
        policy = AddressPolicy.allowing([str(network)])
        address = IPv4Address(number)
        self.assertIs(
            policy.permits("h", str(address), 443), isPublic(address) or address in network
        )

    def test_otherTextsCannotBeAllowed(self) -> None:
        for text in (
            "",
            " ",
            "10.0.0.1/8",
            "http://x",
            "x:80",
            "*",
            "*.x",
            "127.1",
            "a..b",
            "[::1]",
        ):
            self.assertRaises(ValueError, parseAllowed, text)


class PortTests(SynchronousTestCase):
    """
    The ports that may be connected to.
    """

    def test_privilegedPortsAreRefused(self) -> None:
        """But for those of the web."""
        for port, isPermitted in (
            *((80, True), (443, True), (1024, True), (65535, True)),
            *((22, False), (25, False), (81, False), (1023, False), (0, False)),
        ):
            self.assertIs(DEFAULT.permits("h", "93.184.215.14", port), isPermitted, port)

    def test_allowedHostsAndNetworksHaveAllPorts(self) -> None:
        """Public ones, too, are allowed so."""
        policy = AddressPolicy.allowing(["mail.example", "93.184.215.0/24", "10.0.0.1"])
        self.assertTrue(policy.permits("mail.example", "1.1.1.1", 25))
        self.assertTrue(policy.permits("h", "93.184.215.14", 25))
        self.assertTrue(policy.permits("h", "10.0.0.1", 25))
        self.assertFalse(policy.permits("h", "1.1.1.1", 25))


class HostNameTests(SynchronousTestCase):
    """
    The texts that are names.
    """

    def test_addressesAreNoHostNames(self) -> None:
        """Nor what some resolver takes for one."""
        for text in ("localhost", "a.example", "xn--bcher-kva.example", "a_b.example", "1.example"):
            self.assertTrue(isHostName(text), text)
        for text in (
            *("", ".", "a..b", "-a", "a-.b", "127.1", "0x7f.1", "2130706433", "0x7F000001"),
            *("017700000001", "127.0.0.1", "1.2.3.0x4", "a.0", "a b", "a\n", "x" * 64, "bücher"),
            *("a/b", "a@b", "a:1", "a%00", "0x", ".".join(["abc"] * 64)),
        ):
            self.assertFalse(isHostName(text), text)
