"""
Brokers that reach each other over memory: real sites, and the agent of the real network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.test.iosim import FakeTransport, IOPump, connect
from twisted.web.client import URI, Agent
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from svcbroker.access import Access
from svcbroker.broker import Broker, ISubscriptionDirectory, Limits
from svcbroker.carriers.http import BrokerSite, HttpSettings, makeSite
from svcbroker.carriers.peers import Peers
from svcbroker.errors import NoSuchCall
from svcbroker.interfaces import IAuthenticator
from svcbroker.net.http import HttpClient
from svcbroker.testing.doubles import memoryLedger
from svcbroker.version import VersionRecord
from tests.broker.support import FailingWebhooks
from tests.carriers.http.support import Connection, requestBytes


@define
class Member:
    """
    A broker of the network.
    """

    broker: Broker
    peers: Peers
    site: BrokerSite

    def ask(self, query: str) -> Connection:
        """Begin to ask an admin query as a client does."""
        connection = Connection(self.site)
        connection.send(requestBytes("GET", f"/svcbroker/admin/{query}"))
        return connection


@implementer(IStreamClientEndpoint)
class _Endpoint:
    def __init__(self, network: Network, host: str, port: int) -> None:
        self._network = network
        self._address = (host, port)

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """See C{IStreamClientEndpoint}."""
        self._network.called.append(self._address[0])
        site = self._network.sites.get(self._address)
        if site is None:
            return fail(ConnectionRefusedError())
        here = IPv4Address("TCP", "10.0.0.99", 31337)
        there = IPv4Address("TCP", *self._address)
        client: Any = protocolFactory.buildProtocol(there)
        server: Any = site.buildProtocol(here)
        clientEnd = FakeTransport(client, isServer=False, hostAddress=here, peerAddress=there)
        serverEnd = FakeTransport(server, isServer=True, hostAddress=there, peerAddress=here)
        self._network.pumps.append(connect(server, serverEnd, client, clientEnd))
        return succeed(client)


@implementer(IAgentEndpointFactory)
class Network:
    """
    @ivar sites: who listens, by host and port.
    @ivar called: the host of each connection, in order. Nothing is pooled: each is a question.
    """

    def __init__(self) -> None:
        self.clock = Clock()
        self.sites: dict[tuple[str, int], BrokerSite] = {}
        self.pumps: list[IOPump] = []
        self.called: list[str] = []

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """See C{IAgentEndpointFactory}."""
        return _Endpoint(self, uri.host.decode("ascii"), uri.port)

    def settle(self) -> None:
        """Carry everything to where it goes, until nothing moves."""
        while any(pump.pump() for pump in list(self.pumps)):
            pass

    def add(
        self,
        host: str,
        address: str,
        urls: Mapping[str, str],
        subscriptions: ISubscriptionDirectory,
        accounts: Sequence[IAuthenticator] = (),
        credentials: Mapping[str, bytes] | None = None,
    ) -> Member:
        """
        A broker at port 80 of a host.

        @param address: what it calls itself.
        @param urls: its peers, by their names.
        @param accounts: know its accounts.
        @param credentials: what it shows to its peers, by their names.
        """
        agent: Any = Agent.usingEndpointFactory(self.clock, self)
        peers = Peers(urls, HttpClient(agent, self.clock), credentials)
        broker = Broker(
            {"1": memoryLedger(self.clock, "1", 1000)},
            self.clock,
            Limits(),
            nodeAddress=address,
            version=VersionRecord(version="1"),
            subscriptions=subscriptions,
            webhooks=FailingWebhooks(NoSuchCall()),
            peers=peers.all,
        )
        site = makeSite(broker, HttpSettings(), Access(accounts, self.clock, self.clock.seconds))
        self.sites[(host, 80)] = site
        return Member(broker, peers, site)
