"""
Webhooks on a clock: over a memory ledger and the real subscription core, to receivers that do
what a test says.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, evolve, field, frozen
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IAddress, IHostnameResolver, IHostResolution
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svcbroker.access import Access
from svcbroker.broker import Broker, IWebhooks, Limits, MetadataStore, WebhookRequest
from svcbroker.broker.subscriptions import KeptPositions, Subscriptions
from svcbroker.carriers.webhook.delivery import DeliveryContext
from svcbroker.carriers.webhook.posting import (
    NotAcknowledged,
    Payload,
    WebhookReceiver,
    WebhookSettings,
    WebhookTarget,
)
from svcbroker.carriers.webhook.signing import WebhookKeys
from svcbroker.carriers.webhook.webhookservice import Webhooks
from svcbroker.interfaces import IAuthenticator, submit
from svcbroker.model import Edge, Event, InterfaceType, Offset, OpenTopic, PublishEvent
from svcbroker.net.endpoints import AddressPolicy
from svcbroker.net.turns import Slots
from svcbroker.testing._fixtures import memoryLedger
from tests.broker.support import MemoryMetadataFile, makeCalls

PUBLIC = "93.184.215.14"
URL = f"http://{PUBLIC}/hook"
SECRET = b"a secret of a certain length"


@implementer(IHostResolution)
@frozen
class Resolution:
    """A resolution that is under way."""

    name: str

    def cancel(self) -> None:
        """Nothing to cancel."""


@implementer(IHostnameResolver)
@define
class FakeResolver:
    """
    Knows some names.

    @ivar names: the addresses of each name. A test may change them at any time.
    @ivar asked: what was asked for, in order.
    @ivar held: the receivers that wait, while C{isHolding}.
    """

    names: dict[str, Sequence[str]] = field(factory=dict)
    asked: list[str] = field(factory=list)
    isHolding: bool = False
    held: list[Callable[[], None]] = field(factory=list)

    def resolveHostName(
        self,
        resolutionReceiver: Any,
        hostName: str,
        portNumber: int = 0,
        addressTypes: Any = None,
        transportSemantics: str = "TCP",
    ) -> IHostResolution:
        resolution: Any = Resolution(hostName)
        self.asked.append(hostName)
        resolutionReceiver.resolutionBegan(resolution)

        def answer() -> None:
            isLiteral = ":" in hostName or hostName.replace(".", "").isdigit()
            for each in [hostName] if isLiteral else self.names.get(hostName, ()):
                resolutionReceiver.addressResolved(address(each, portNumber))
            resolutionReceiver.resolutionComplete()

        if self.isHolding:
            self.held.append(answer)
        else:
            answer()
        return resolution  # type: ignore[no-any-return]


def address(host: str, port: int = 0) -> IAddress:
    """An address of either family."""
    if ":" in host:
        return IPv6Address("TCP", host, port)
    return IPv4Address("TCP", host, port)


@define(eq=False)
class Post:
    """
    One request to a receiver.

    @ivar answer: fire it to acknowledge, or to fail.
    """

    receiver: WebhookReceiver
    events: Sequence[Event]
    payload: Payload
    isCancelled: bool = False
    answer: Deferred[None] = field(init=False)

    @answer.default
    def _makeAnswer(self) -> Deferred[None]:
        def cancel(answer: Deferred[None]) -> None:
            self.isCancelled = True
            answer.errback(NotAcknowledged("given up"))

        return Deferred(cancel)

    @property
    def target(self) -> WebhookTarget:
        """Where it was sent."""
        return self.receiver.target

    @property
    def subscriptionId(self) -> str:
        """Whose events they are."""
        return self.receiver.form.subscriptionId

    @property
    def body(self) -> bytes:
        """What was sent."""
        return self.payload.body

    @property
    def contents(self) -> list[str]:
        """What was published."""
        return [event.content.decode("ascii") for event in self.events]

    @property
    def content(self) -> str:
        """What was published, of a single event."""
        [content] = self.contents
        return content


@define(eq=False)
class FakePoster:
    """
    Receivers that keep what they get.

    @ivar posts: all requests, in order.
    @ivar judge: answers a request at once, with whether it is acknowledged; C{None} leaves it
        open.
    """

    posts: list[Post] = field(factory=list)
    judge: Callable[[Post], bool | None] = lambda post: True

    def post(
        self, receiver: WebhookReceiver, events: Sequence[Event], payload: Payload
    ) -> Deferred[None]:
        post = Post(receiver, events, payload)
        self.posts.append(post)
        verdict = self.judge(post)
        if verdict is True:
            post.answer.callback(None)
        elif verdict is False:
            post.answer.errback(NotAcknowledged("no"))
        return post.answer

    @property
    def contents(self) -> list[str]:
        """What was sent, in order."""
        return [content for post in self.posts for content in post.contents]

    def fail(self, post: Post) -> None:
        """Refuse a request that has no answer yet."""
        post.answer.errback(NotAcknowledged("no"))

    @property
    def open(self) -> list[Post]:
        """The requests that have no answer yet."""
        return [post for post in self.posts if not post.answer.called]


SETTINGS = WebhookSettings(
    policy=AddressPolicy.allowing(["inside.example", "10.1.0.0/16"]),
    connections=8,
    firstDelay=1.0,
    maxDelay=60.0,
    timeout=10.0,
)


class Harness:
    """
    One group's log, and a broker's webhooks over it that can be killed and started again.
    """

    def __init__(
        self, test: SynchronousTestCase | None = None, settings: WebhookSettings = SETTINGS
    ) -> None:
        """
        @param test: has it killed at its end; otherwise who makes it does that.
        """
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.ledger = memoryLedger(self.clock)
        self.disk = MemoryMetadataFile()
        self.resolver = FakeResolver()
        self.poster = FakePoster()
        self.settings = settings
        self.authenticators: list[IAuthenticator] = []
        self._numbers = itertools.count(1)
        self.start()
        if test is not None:
            test.addCleanup(self.kill)

    def start(self) -> None:
        """Start a broker over what was kept."""
        self.metadata = MetadataStore(self.disk, self.clock, maybeDeferred)
        self.subscriptions = Subscriptions(
            {"1": self.ledger},
            self.clock,
            self.clock.seconds,
            self.entropy,
            KeptPositions(self.metadata),
        )
        self.subscriptions.start()
        self.slots = Slots(self.settings.connections, self.settings.connectionsPerHost)
        context = DeliveryContext(
            clock=self.clock,
            now=self.clock.seconds,
            random=lambda: 0.0,
            poster=self.poster,
            slots=self.slots,
            settings=self.settings,
        )
        self.access = Access(self.authenticators, self.clock, self.clock.seconds)
        self.broker = Broker(
            {"1": self.ledger},
            self.clock,
            Limits(),
            self.subscriptions,
        )
        self.webhooks = Webhooks(
            self.subscriptions,
            self.metadata,
            self.access,
            self.resolver,
            context,
            self.entropy,
            self.broker,
            WebhookKeys({"1": self.ledger}, self.metadata, self.clock.seconds),
        )
        self.calls = makeCalls(self.broker, {IWebhooks: self.webhooks})
        self.webhooks.start()

    def kill(self) -> None:
        """
        The process is gone: nothing more reaches the disk or a receiver. It is ended in order
        here, behind the harness's back, since garbage that still waits for something would wake up
        when it is collected.
        """
        self.metadata._file = MemoryMetadataFile()
        self.webhooks.stop().cancel()
        self.subscriptions.stop()
        self.broker.stop()
        self.clock.calls.clear()
        self.poster = evolve(self.poster, posts=[])

    def entropy(self, size: int) -> bytes:
        """Not so random bytes."""
        return next(self._numbers).to_bytes(size, "big")

    def settle(self, seconds: float = 0.2) -> None:
        """Let everything happen that needs no long time."""
        self.clock.pump([seconds / 40] * 40)

    def open(self, *topics: str) -> None:
        """Open topics."""
        for topic in topics:
            submit(self.ledger, OpenTopic(topic=topic))
        self.settle()

    def publish(self, *contents: str, topic: str = "a", **extensions: str) -> None:
        """Publish events."""
        for content in contents:
            submit(
                self.ledger,
                PublishEvent(
                    topic=topic,
                    content=content.encode("ascii"),
                    extensions={f"svc-{name}": text for name, text in extensions.items()},
                ),
            )
        self.settle()

    def subscribe(
        self,
        url: str = URL,
        *topics: str,
        interfaceType: InterfaceType = InterfaceType.RESTFUL,
        subscriptionId: str | None = None,
        offset: Offset = Edge.LAST,
        tag: str | None = None,
        account: str = "",
        **options: Any,
    ) -> Deferred[str]:
        """Subscribe to topic C{a}, or to others."""
        principal = self.access.find(account)
        assert principal is not None
        request = WebhookRequest(
            interfaceType=interfaceType,
            topic=topics or ("a",),
            groupId="1",
            subscriptionId=subscriptionId,
            url=url,
            offset=offset,
            tag=tag,
            **options,
        )
        answer = self.webhooks.subscribe(principal, request)
        self.settle()
        return answer
