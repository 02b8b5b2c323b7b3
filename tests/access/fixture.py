"""
A broker with accounts and all of its carriers, in memory, whose clients' bytes can be looked at.
"""

from __future__ import annotations

import binascii
import itertools
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from attrs import define, field
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock

from svcbroker.access import Access
from svcbroker.access._logins import LoginLimits
from svcbroker.broker import Broker, IWebhooks, Limits, MetadataStore
from svcbroker.broker.subscriptions import KeptPositions, Subscriptions
from svcbroker.carriers.http.feature import makeSite
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.carriers.mqtt.carrier import MqttCarrier, MqttFactory
from svcbroker.carriers.mqtt.context import MqttSettings, makeContext
from svcbroker.carriers.mqtt.fields import NO_PROPERTIES
from svcbroker.carriers.mqtt.packets import Connect
from svcbroker.carriers.stomp.carrier import StompFactory
from svcbroker.carriers.webhook.delivery import DeliveryContext
from svcbroker.carriers.webhook.signing import WebhookKeys
from svcbroker.carriers.webhook.webhookservice import Webhooks
from svcbroker.interfaces import Identity, submit
from svcbroker.model import CloseTopic, InterfaceType, OpenTopic, PublishEvent
from svcbroker.net.turns import Slots
from svcbroker.operations import Incidents
from svcbroker.testing._fixtures import memoryLedger
from tests.broker.support import makeCalls
from tests.carriers.http.support import BASE, Connection, requestBytes
from tests.carriers.mqtt.support import Client as MqttClient
from tests.carriers.mqtt.support import MetadataFile
from tests.carriers.stomp.support import Client as StompClient
from tests.carriers.webhook.support import SETTINGS, FakePoster, FakeResolver, Post
from tests.waiting import passTurns

from .support import FakeAuthenticator

GROUPS = ("1", "2")
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{8,}={0,2}")
_HEX = re.compile(rb"(?:[0-9a-f]{2}){6,}")


def views(data: bytes) -> Iterator[bytes]:
    """Bytes as they are, and what is encoded in them."""
    yield data
    for text in _BASE64.findall(data):
        text = text[: len(text) // 4 * 4]
        try:
            yield b64decode(text)
        except binascii.Error:
            continue
    for text in _HEX.findall(data):
        yield bytes.fromhex(text.decode())


class CarriersFixture:
    """
    One broker. Its clock stands still but for L{pump} and L{wait}.

    @ivar accounts: the accounts; the password of each is its name.
    @ivar poster: the receivers of webhooks.
    """

    def __init__(
        self,
        *identities: Identity,
        anonymous: Identity | None = None,
        groups: Sequence[str] = GROUPS,
    ) -> None:
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.accounts = FakeAuthenticator(*identities)
        self.ledgers = {group: memoryLedger(self.clock, group) for group in groups}
        numbers = itertools.count(1)

        def entropy(size: int) -> bytes:
            return next(numbers).to_bytes(size, "big")

        self.store = MetadataStore(MetadataFile(), self.clock, maybeDeferred)
        self.subscriptions = Subscriptions(
            self.ledgers, self.clock, self.clock.seconds, entropy, KeptPositions(self.store)
        )
        self.subscriptions.start()
        self.access = Access(
            [self.accounts],
            self.clock,
            self.clock.seconds,
            anonymous=anonymous,
            # Failures slow nobody down here.
            limits=LoginLimits(failures=1_000_000),
        )
        self.poster = FakePoster()
        context = DeliveryContext(
            clock=self.clock,
            now=self.clock.seconds,
            random=lambda: 0.0,
            poster=self.poster,
            slots=Slots(SETTINGS.connections, SETTINGS.connectionsPerHost),
            settings=SETTINGS,
        )
        self.broker = Broker(
            self.ledgers,
            self.clock,
            Limits(),
            self.subscriptions,
        )
        self.webhooks = Webhooks(
            *(self.subscriptions, self.store, self.access, FakeResolver(), context, entropy),
            self.broker,
            WebhookKeys(self.ledgers, self.store, self.clock.seconds),
        )
        self.webhooks.start()
        self.stomp = StompFactory(
            self.broker,
            self.subscriptions,
            self.access,
            entropy,
            version="1",
            incidents=Incidents(lambda: "incident"),
        )
        self.carrier = MqttCarrier(
            makeContext(
                self.access,
                self.broker,
                self.ledgers,
                self.subscriptions,
                self.store,
                self.clock,
                self.clock.seconds,
                entropy,
                MqttSettings(),
            )
        )
        self.carrier.start()
        answers = {
            IWebhooks: self.webhooks,
            InterfaceType.STOMP: self.subscriptions,
            InterfaceType.MQTT: self.carrier.sessions,
        }
        self.calls = makeCalls(self.broker, answers)
        self.site = makeSite(
            self.calls, HttpSettings(), self.access, incidents=Incidents(lambda: "incident")
        )
        # What clients of MQTT ask of their server.
        self.factory = MqttFactory(self.carrier)
        self.pump()

    def pump(self) -> None:
        """Let everything happen that needs no time but that of the disk."""
        passTurns(self.clock, 20)
        self.clock.advance(0.05)
        passTurns(self.clock, 10)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)
        self.pump()

    def reload(self) -> None:
        """Have the accounts count as they are now."""
        self.access.reload()
        self.pump()

    def submit(self, group: str, *requests: OpenTopic | CloseTopic | PublishEvent) -> list[Any]:
        """Bring something into a log, past all checks; the receipts."""
        receipts: list[Any] = []
        for request in requests:
            submit(self.ledgers[group], request).addCallback(receipts.append)
        self.pump()
        return receipts

    def accountOf(self, post: Post) -> str:
        """The account that made a webhook."""
        return self.webhooks._webhooks[post.subscriptionId].record.account

    def stop(self) -> None:
        """End without any order."""
        self.webhooks.stop().cancel()
        self.subscriptions.stop()
        self.access.stop()
        for call in self.clock.getDelayedCalls():
            call.cancel()

    # Clients.

    def ask(self, name: str | None, method: str, path: str, body: bytes = b"") -> Peer:
        """Make a request of HTTP on a connection of its own."""
        headers = {"Host": "localhost"}
        if name is not None:
            headers["Authorization"] = "Basic " + b64encode(f"{name}:{name}".encode()).decode()
        connection = Connection(self.site)
        peer = Peer(name, connection.transport, isHttp=True)
        request = requestBytes(method, BASE + path, body, headers)
        peer.mentioned += request + unquote(path).encode()
        connection.send(request)
        self.pump()
        peer.look()
        connection.disconnect()
        return peer

    def call(self, name: str | None, method: str, params: Mapping[str, Any]) -> Peer:
        """Make a call of JSON-RPC."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.ask(name, "POST", "/jsonrpc", json.dumps(body).encode())


@define(eq=False)
class Peer:
    """
    A client, as it is seen from outside: what it has sent, and what it was sent.

    @ivar name: its account; C{None} without credentials.
    @ivar mentioned: what it has sent.
    @ivar clientId: the MQTT client id.
    @ivar group: the group of a client of MQTT.
    @ivar client: the client of its protocol.
    """

    name: str | None
    transport: Any
    mentioned: bytes = b""
    isHttp: bool = False
    clientId: str = ""
    group: str = "1"
    client: Any = None
    _seen: int = 0
    news: list[bytes] = field(factory=list)

    def look(self) -> bytes:
        """The bytes that it was sent since the last time; it is kept in C{news}, too."""
        if self.isHttp:
            data: bytes = self.transport.value()
            self.transport.clear()
        else:
            writes: Sequence[bytes] = self.transport.writes
            data, self._seen = b"".join(writes[self._seen :]), len(writes)
        self.news.append(data)
        return data


def stompPeer(fixture: CarriersFixture, name: str | None) -> Peer:
    """A client of STOMP that has asked for a connection."""
    client = StompClient(fixture.stomp)
    peer = Peer(name, client.transport, client=client)
    remember(peer, client, "sendBytes")
    login = {} if name is None else {"login": name, "passcode": name}
    client.send("CONNECT", {"accept-version": "1.2", **login})
    fixture.pump()
    return peer


def mqttPeer(
    fixture: CarriersFixture,
    name: str | None,
    clientId: str,
    version: int,
    group: str = "1",
    **fields: Any,
) -> Peer:
    """A client of MQTT that has asked for a connection."""
    client = MqttClient(fixture, version)  # type: ignore[arg-type]
    peer = Peer(name, client.transport, clientId=clientId, group=group, client=client)
    remember(peer, client, "sendBytes")
    if name is not None:
        fields.update(userName=f"{group}/{name}", password=name.encode())
    fields = {"properties": NO_PROPERTIES, "cleanStart": True, **fields}
    client.send(Connect(clientId=clientId, version=version, **fields))
    return peer


def remember(peer: Peer, client: Any, name: str) -> None:
    """Keep what a client sends."""
    send: Callable[[bytes], None] = getattr(client, name)

    def sendAndKeep(data: bytes) -> None:
        peer.mentioned += data
        send(data)

    setattr(client, name, sendAndKeep)
