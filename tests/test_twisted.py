"""
Private attributes of Twisted that svcbroker uses: each is what the installed version has, and each
is used in one module only.
"""

from __future__ import annotations

import ast
from inspect import signature
from socket import socketpair
from typing import Any

from twisted.internet.endpoints import TCP4ClientEndpoint, _parse
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Protocol
from twisted.internet.ssl import CertificateOptions
from twisted.internet.tcp import Connection
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase
from twisted.web._newclient import Request as ClientRequest
from twisted.web.client import HTTPConnectionPool
from twisted.web.http import HTTPChannel
from twisted.web.http_headers import Headers
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from svcbroker.net.tls import TLSConnection
from svcbroker.net.transports import unsentOf

from .test_imports import modules

USERS = {
    "_command": "svcbroker.carriers.http.connection",
    "_send100Continue": "svcbroker.carriers.http.connection",
    "_buffer": "svcbroker.carriers.http.connection",
    "_busyReceiving": "svcbroker.carriers.http.connection",
    "_adapterCache": "svcbroker.carriers.http.connection",
    "_tlsShutdownFinished": "svcbroker.net.tls",
    "_dataBuffer": "svcbroker.carriers.http.connection",
    "_newConnection": "svcbroker.net.http",
    "_parser": "svcbroker.net.http",
    "_putConnection": "svcbroker.net.http",
    "_networkProducer": "svcbroker.carriers.http.connection",
    "_protocolUpgradeForWebsockets": "svcbroker.carriers.http.connection",
    "_tempDataBuffer": "svcbroker.net.transports",
    "_tempDataLen": "svcbroker.net.transports",
    "dataBuffer": "svcbroker.net.transports",
}
"""Each attribute, and the module that may use it."""

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Slow(Resource):
    """Answers no request."""

    isLeaf = True

    def render_GET(self, request: object) -> int:
        return NOT_DONE_YET


class ChannelTests(SynchronousTestCase):
    """
    C{HTTPChannel}.
    """

    def setUp(self) -> None:
        self.transport = StringTransport()
        site = Site(Slow(), reactor=MemoryReactorClock())
        self.channel: Any = site.buildProtocol(None)
        # Twisted's own channel, not its wrapper that negotiates HTTP/2.
        self.channel = getattr(self.channel, "_channel", self.channel)
        self.channel.makeConnection(self.transport)

    def test_bufferHoldsUnparsedBytes(self) -> None:
        self.assertEqual(self.channel._buffer, b"")
        self.channel.dataReceived(b"GET / HT")
        self.assertEqual(self.channel._buffer, b"GET / HT")
        self.assertEqual(self.channel.clearLineBuffer(), b"GET / HT")
        self.assertEqual(self.channel._buffer, b"")

    def test_dataBufferHoldsBytesBehindARequest(self) -> None:
        """While that is being answered."""
        self.channel.dataReceived(REQUEST)
        self.assertEqual((len(self.channel.requests), self.channel._dataBuffer), (1, []))
        self.channel.dataReceived(b"GET /second")
        self.assertEqual(self.channel._dataBuffer, [b"GET /second"])

    def test_busyReceivingTellsOfCallsFromWithin(self) -> None:
        seen: list[bool] = []
        self.patch(
            self.channel, "lineReceived", lambda line: seen.append(self.channel._busyReceiving)
        )
        self.channel.dataReceived(b"GET / HTTP/1.1\r\n")
        self.assertEqual((seen, self.channel._busyReceiving), ([True], False))

    def test_networkProducerStopsReading(self) -> None:
        producer = self.channel._networkProducer
        self.assertTrue(IPushProducer.providedBy(producer))
        producer.pauseProducing()
        self.assertEqual(self.transport.producerState, "paused")
        producer.resumeProducing()
        self.assertEqual(self.transport.producerState, "producing")

    def test_requestLineIsKnownBeforeTheBody(self) -> None:
        self.channel.dataReceived(b"POST /a?b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n")
        self.assertEqual((self.channel._command, self.channel._path), (b"POST", b"/a?b"))
        self.assertEqual(self.channel._version, b"HTTP/1.1")

    def test_continueIsSentAtOnce(self) -> None:
        self.channel._send100Continue()
        self.assertEqual(self.transport.value(), b"HTTP/1.1 100 Continue\r\n\r\n")

    def test_whatIsNoRequestIsRefused(self) -> None:
        refused: list[None] = []
        self.patch(self.channel, "_respondToBadRequestAndDisconnect", lambda: refused.append(None))
        self.channel.dataReceived(b"no request\r\n")
        self.assertEqual((refused, self.transport.value()), ([None], b""))

    def test_componentsAreInACache(self) -> None:
        """What Klein adapts a request to."""
        request = Request(self.channel)
        request.setComponent(IPushProducer, self)
        self.assertEqual(list(request._adapterCache.values()), [self])

    def test_upgradeTakesAProtocol(self) -> None:
        upgrade = HTTPChannel._protocolUpgradeForWebsockets
        self.assertEqual(list(signature(upgrade).parameters), ["self", "protocol"])


class ConnectionTests(SynchronousTestCase):
    """
    C{tcp.Connection}.
    """

    def makeConnection(self) -> Any:
        """A connection without a peer."""
        one, other = socketpair()
        self.addCleanup(other.close)
        self.addCleanup(one.close)
        return Connection(one, Protocol(), MemoryReactorClock())

    def test_unsentBytesAreInTwoBuffers(self) -> None:
        connection = self.makeConnection()
        self.assertEqual((connection.dataBuffer, connection._tempDataBuffer), (b"", []))
        connection.connected = True
        connection.startWriting = lambda: None
        connection.write(b"unsent")
        self.assertEqual((connection.dataBuffer, connection._tempDataBuffer), (b"", [b"unsent"]))
        self.assertEqual((unsentOf(connection), connection._tempDataLen), (6, 6))
        connection.writeSomeData = lambda data: 2
        connection.doWrite()
        self.assertEqual((connection.dataBuffer, connection._tempDataBuffer), (b"unsent", []))
        self.assertEqual(unsentOf(connection), 4)

    def test_stateIsInFlags(self) -> None:
        connection = self.makeConnection()
        self.assertEqual(
            (connection.connected, connection.disconnecting, connection.TLS), (0, False, False)
        )


class ClientTests(SynchronousTestCase):
    """
    C{HTTPConnectionPool} and its connections.
    """

    def test_answeredConnectionIsPutBack(self) -> None:
        """When it is, the parser of the answer is still there."""
        put: list[Any] = []

        class Pool(HTTPConnectionPool):
            def _putConnection(self, key: Any, connection: Any) -> None:
                parser = connection._parser
                said = parser.connHeaders.getRawHeaders(b"Connection")
                put.append((key, said, parser.response.version))

        reactor = MemoryReactorClock()
        pool: Any = Pool(reactor)
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", 1)
        connecting = pool._newConnection("key", endpoint)
        protocol: Any = reactor.tcpClients[0][2].buildProtocol(None)
        protocol.makeConnection(StringTransport())
        connection = self.successResultOf(connecting)
        headers = Headers({b"Host": [b"a"]})
        asking = connection.request(ClientRequest(b"GET", b"/", headers, None, persistent=True))
        protocol.dataReceived(b"HTTP/1.0 204 No Content\r\nConnection: x\r\n\r\n")
        self.assertEqual(self.successResultOf(asking).code, 204)
        self.assertEqual(put, [("key", [b"x"], (b"HTTP", 1, 0))])


class TLSTests(SynchronousTestCase):
    """
    C{BufferingTLSTransport}.
    """

    def test_endsWithAReason(self) -> None:
        base = TLSConnection.__base__
        assert base is not None
        finished: Any = base._tlsShutdownFinished  # type: ignore[attr-defined]
        self.assertEqual(list(signature(finished).parameters), ["self", "reason"])


class EndpointTests(SynchronousTestCase):
    """
    Descriptions of endpoints, and what is trusted on TLS.
    """

    def test_descriptionsAreParsed(self) -> None:
        """L{svcbroker.daemon.ports} makes some types of endpoints itself."""
        self.assertEqual(_parse("ssl:1:a\\:b=c:d=e"), (["ssl", "1"], {"a:b": "c", "d": "e"}))

    def test_trustRootIsAddedToContexts(self) -> None:
        """L{svcbroker.net.pem} has a trust root of its own."""
        contexts: list[Any] = []

        class Root:
            _addCACertsToContext = contexts.append

        options: Any = CertificateOptions(verify=True, caCerts=[None])  # type: ignore[list-item]
        options.trustRoot = Root
        self.assertEqual(contexts, [options.getContext()])


class UseTests(SynchronousTestCase):
    """
    Who uses them.
    """

    def test_eachAttributeHasOneUser(self) -> None:
        """An attribute that a class of ours sets itself is its own."""
        found: dict[str, set[str]] = {name: set() for name in USERS}
        for module, path in modules():
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
            own = {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}
            for name in {node.attr for node in attributes} & USERS.keys() - own:
                found[name].add(module)
        self.assertEqual(found, {name: {module} for name, module in USERS.items()})
