"""
Where to listen.
"""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.internet.abstract import FileDescriptor
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import (
    IAddress,
    IListeningPort,
    ILoggingContext,
    IProtocolFactory,
    IStreamServerEndpoint,
)
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import Interface, implementer

from svcbroker.daemon.ports import (
    BACKLOG,
    KEEPALIVE,
    RECEIVED,
    GatedFactory,
    Port,
    PortPlan,
    serverEndpoint,
)
from svcbroker.net.budgets import Budgets
from svcbroker.net.listeners import InheritedEndpoint
from tests.certificates import makeCertificate


class ServerEndpointTests(SynchronousTestCase):
    """
    L{serverEndpoint}
    """

    def listened(self, text: str) -> tuple[int, int, str]:
        """Port, backlog and interface of where a description listens."""
        reactor = MemoryReactorClock()
        self.successResultOf(serverEndpoint(reactor, text).listen(Factory()))
        (port, _, backlog, interface) = reactor.tcpServers[0]
        return port, backlog, interface

    def test_backlogIsRaisedUnlessGiven(self) -> None:
        """Many clients may come at once, unless the operator has said how many."""
        root = Path(self.mktemp())
        root.mkdir()
        key, certificate = makeCertificate(root)
        for text, expected in (
            ("tcp:8080", (8080, BACKLOG, "")),
            ("tcp:8080:interface=127.0.0.1", (8080, BACKLOG, "127.0.0.1")),
            ("tcp:port=8080", (8080, BACKLOG, "")),
            ("tcp6:8080", (8080, BACKLOG, "::")),
            ("tcp:8080:127.0.0.1:7", (8080, 7, "127.0.0.1")),
            ("haproxy:tcp:8080:interface=127.0.0.1", (8080, BACKLOG, "127.0.0.1")),
            ("haproxy:tcp:8080:127.0.0.1:7", (8080, 7, "127.0.0.1")),
            (f"tls:{certificate.parent}:8443", (8443, BACKLOG, "::")),
            (f"ssl:8443:privateKey={key}:certKey={certificate}", (8443, BACKLOG, "")),
        ):
            self.assertEqual(self.listened(text), expected, text)

    def test_loopbackAndSocketsAreLocal(self) -> None:
        """Behind a proxy, or at an endpoint of another type, clients may be anywhere."""
        root = Path(self.mktemp())
        root.mkdir()
        key, certificate = makeCertificate(root)
        local = [
            *("tcp:1:interface=127.0.0.1", "tcp:1:127.9.9.9", "tcp:1:interface=localhost"),
            *("tcp6:1:interface=\\:\\:1", "tcp:1:interface=\\:\\:1", f"unix:{root}/s"),
            f"ssl:1:privateKey={key}:certKey={certificate}:interface=127.0.0.1",
            f"tls:{certificate.parent}:1:interface=\\:\\:1",
            f"mtls:1:certs={certificate.parent}:clients={certificate}:interface=127.0.0.1",
        ]
        others = [
            *("tcp:1", "tcp6:1", "tcp:1:interface=0.0.0.0", "tcp:1:interface=10.0.0.1"),
            *("tcp:1:interface=127.0.0.1.example", "haproxy:tcp:1:interface=127.0.0.1"),
            *(f"tls:{certificate.parent}:1", f"haproxy:unix:{root}/s", "haproxy:systemd:INET:0"),
        ]
        for text in local + others:
            endpoint = serverEndpoint(MemoryReactorClock(), text)
            plan = PortPlan(name="http", endpoint=endpoint, text=text)
            self.assertEqual(plan.isLocal, text in local, text)
        unknown: Any = object()
        self.assertFalse(PortPlan(name="http", endpoint=unknown, text="other:1").isLocal)

    def test_inheritedSocketIsLocalByItsAddress(self) -> None:
        for address, isLocal in (
            (IPv4Address("TCP", "127.0.0.1", 80), True),
            (IPv4Address("TCP", "0.0.0.0", 80), False),
            (IPv6Address("TCP", "::1", 80), True),
            (IPv6Address("TCP", "::", 80), False),
            (UNIXAddress("/run/s"), True),
            (None, False),
        ):
            endpoint = InheritedEndpoint(MemoryReactorClock(), 3, address=address)
            plan = PortPlan(name="http", endpoint=endpoint, text="systemd:index=0")
            self.assertEqual(plan.isLocal, isLocal, address)
            self.assertEqual(plan.inheritedSocket, 3)
        # One that is not there is refused when it is bound.
        plan = evolve(plan, endpoint=serverEndpoint(MemoryReactorClock(), "systemd:name=http"))
        self.assertEqual((plan.isLocal, plan.inheritedSocket), (True, None))

    def test_givenBacklogWins(self) -> None:
        """What the operator says counts, wherever it stands."""
        for text in ("tcp:8080:backlog=7", "tcp:backlog=7:port=8080", "tcp6:8080:backlog=7"):
            self.assertEqual(self.listened(text)[:2], (8080, 7), text)

    def test_badEndpointIsExplained(self) -> None:
        """What cannot be used is not, with the words that are about it."""
        for text, reason in (
            ("nosuch:1", "Unknown endpoint type: 'nosuch'"),
            ("tcp:no", "'no' is not a number"),
            ("tcp", "missing 1 required positional argument: 'port'"),
            ("tcp:1:nosuch=2", "got an unexpected keyword argument 'nosuch'"),
            ("ssl:1:sslmethod=Context", "sslmethod: OpenSSL has no 'Context'"),
            ("haproxy:tcp\\:1\\:interface=a", "it cannot be read to its end"),
            ("tcp:1:interface=\\", "it cannot be read to its end"),
        ):
            error = self.assertRaises(ValueError, serverEndpoint, MemoryReactorClock(), text)
            self.assertTrue(str(error).startswith(f"{reason}; an endpoint is, "), str(error))
            self.assertIn("a colon inside of a value is written \\:", str(error))
        for text in ("ssl:1:privateKey=/nosuch", "tls:/nosuch:1"):
            error = self.assertRaises(ValueError, serverEndpoint, MemoryReactorClock(), text)
            self.assertEqual(str(error), "No such file or directory: /nosuch")


class INamed(Interface):
    """An interface of a carrier's factory."""

    def getName() -> str:
        """A name."""


@implementer(INamed)
class NamedFactory(Factory):
    """A carrier's factory that provides more than C{IProtocolFactory}."""

    def getName(self) -> str:
        return "carrier"


@implementer(IListeningPort)
class _ListeningPort(FileDescriptor):
    """
    A port that listens on a real socket, which the test accepts from.
    """

    def __init__(self, family: socket.AddressFamily, name: Any) -> None:
        super().__init__(MemoryReactorClock())
        self.socket = socket.socket(family)
        self.socket.bind(name)
        self.socket.listen()

    def startListening(self) -> None:
        """See C{IListeningPort}."""

    def stopListening(self) -> None:
        """See C{IListeningPort}."""

    def getHost(self) -> IAddress:
        """See C{IListeningPort}."""
        raise NotImplementedError


class PortTests(SynchronousTestCase):
    """
    L{Port}
    """

    def accepted(self, family: socket.AddressFamily, name: Any) -> socket.socket:
        """A connection that was accepted at a bound port."""
        listening = _ListeningPort(family, name)
        self.addCleanup(listening.socket.close)

        @implementer(IStreamServerEndpoint)
        class Endpoint:
            def listen(self, factory: IProtocolFactory) -> Deferred[IListeningPort]:
                return succeed(listening)

        port = Port(PortPlan(name="http", endpoint=Endpoint(), text=""), Budgets.of(Clock()))
        self.successResultOf(port.bind())
        client = socket.socket(family)
        self.addCleanup(client.close)
        client.connect(listening.socket.getsockname())
        connection, _ = listening.socket.accept()
        self.addCleanup(connection.close)
        return connection

    def test_aClientThatSaysNothingIsAskedWhetherItIsThere(self) -> None:
        """By the kernel, for connections of TCP."""
        connection = self.accepted(socket.AF_INET, ("127.0.0.1", 0))
        self.assertTrue(connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        for name, value in KEEPALIVE.items():
            if hasattr(socket, name):
                option = getattr(socket, name)
                self.assertEqual(connection.getsockopt(socket.IPPROTO_TCP, option), value)

    def test_theKernelKeepsLittleThatIsNotRead(self) -> None:
        """As much as of a socket that is told so; left to itself, more with each read."""
        connection = self.accepted(socket.AF_INET, ("127.0.0.1", 0))
        with closing(socket.socket()) as told:
            told.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED)
            kept = told.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        self.assertEqual(connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF), kept)

    def test_aSocketOfUnixHasNoKeepalive(self) -> None:
        """The kernel knows there that the other side has gone."""
        connection = self.accepted(socket.AF_UNIX, f"\0{self.id()}")
        self.assertFalse(connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))


class GatedFactoryTests(SynchronousTestCase):
    """
    L{GatedFactory}
    """

    def test_openGatePassesInterfacesOn(self) -> None:
        gate = GatedFactory("http")
        self.assertFalse(INamed.providedBy(gate))
        gate.open(NamedFactory())
        self.assertTrue(INamed.providedBy(gate))
        self.assertTrue(ILoggingContext.providedBy(gate))
        self.assertEqual((INamed(gate).getName(), gate.logPrefix()), ("carrier", "HTTP"))
        gate.close()
        self.assertFalse(INamed.providedBy(gate))
        self.assertRaises(AttributeError, getattr, gate, "getName")
