"""
STOMP over memory transports, and a double of the subscription core.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransportWithDisconnection
from twisted.python.failure import Failure
from zope.interface import implementer

from svcbroker.access import ANYBODY, Access, Principal
from svcbroker.carriers.stomp.carrier import ISubscriptions, StompFactory
from svcbroker.carriers.stomp.frames import StompSettings
from svcbroker.carriers.stomp.requests import PLAIN, StompDialect
from svcbroker.interfaces import Batch, IAuthenticator, ISubscriber, ISubscription
from svcbroker.model import Event, EventId, Position, SubscribeRequest
from svcbroker.operations import Incidents
from tests.broker.support import Fixture, makeFixture

UUID = "00000000-0000-4000-8000-{:012d}"


@frozen
class Received:
    """A frame that the server sent."""

    command: str
    headers: Mapping[str, str]
    body: bytes

    def __getitem__(self, name: str) -> str:
        return self.headers[name]


def readFrames(data: bytes) -> tuple[list[Received], int]:
    """
    The server's frames in some bytes, which end with a whole one, and how many line ends stand
    between them. Written apart from the codec, so that both cannot err alike.
    """
    frames = []
    beats = 0
    while data:
        if data[:1] == b"\n":
            beats += 1
            data = data[1:]
            continue
        head, _, data = data.partition(b"\n\n")
        command, *lines = head.decode("utf-8").split("\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            assert name not in headers, line
            headers[name] = (
                value.replace("\\c", ":")
                .replace("\\n", "\n")
                .replace("\\r", "\r")
                .replace("\\\\", "\\")
            )
        length = int(headers.get("content-length", 0))
        body, end, data = data[:length], data[length : length + 1], data[length + 1 :]
        assert end == b"\0", (head, end)
        frames.append(Received(command, headers, body))
    return frames, beats


def frame(command: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> bytes:
    """A frame as a client sends it. Values are escaped already."""
    lines = "".join(f"{name}:{value}\n" for name, value in (headers or {}).items())
    return f"{command}\n{lines}\n".encode() + body + b"\0"


def event(number: int, topic: str = "a", content: bytes = b"x", **extensions: str) -> Event:
    """The event of a number, in a block of its own."""
    return Event(
        topic=topic,
        content=content,
        extensions={f"svc-{name}": value for name, value in extensions.items()},
        eventId=EventId("0123abcd", number, number),
    )


@implementer(ISubscription)
class FakeSubscription:
    """
    A subscription that a test feeds. It keeps the contract: nothing is handed over unless it
    flows, and what is not taken stays in the log.

    @ivar log: what is still to be handed over.
    @ivar acknowledged: what was acknowledged.
    @ivar unreadable: topics that its client may not read any more.
    """

    def __init__(
        self, subscriptionId: str, request: SubscribeRequest, subscriber: ISubscriber
    ) -> None:
        self.subscriptionId = subscriptionId
        self.request = request
        self.subscriber = subscriber
        self.position = Position(0, 0)
        self.log: list[Batch] = []
        self.acknowledged: list[Event] = []
        self.unreadable: set[str] = set()
        self.isFlowing = False
        self.isClosed = False
        self.isForgotten = False

    def publish(self, *events: Event) -> None:
        """A batch of events enters the log; whatever may flow does."""
        self.log.append(Batch(events, 0))
        self.run()

    def run(self) -> None:
        """Hand over as long as it flows."""
        while self.log and self.isFlowing:
            self.subscriber.deliver(self.log.pop(0))

    def resume(self) -> None:
        """See L{ISubscription.resume}. What waits comes with L{run}: never from inside here."""
        assert not self.isClosed
        self.isFlowing = True

    def pause(self) -> None:
        """See L{ISubscription.pause}."""
        self.isFlowing = False

    def acknowledge(self, events: Sequence[Event]) -> None:
        """See L{ISubscription.acknowledge}."""
        assert self.request.isAcknowledged
        self.acknowledged.extend(events)

    def storePosition(self) -> None:
        """See L{ISubscription.storePosition}."""

    def isAcknowledged(self, position: Position) -> bool:
        """See L{ISubscription.isAcknowledged}."""
        return False

    def mayRead(self, event: Event) -> bool:
        """See L{ISubscription.mayRead}."""
        return event.topic not in self.unreadable

    def rewind(self) -> None:
        """See L{ISubscription.rewind}."""

    def addFilter(self, filter: str) -> Position:
        """See L{ISubscription.addFilter}. STOMP adds none."""
        raise NotImplementedError

    def removeFilter(self, filter: str) -> None:
        """See L{ISubscription.removeFilter}."""
        raise NotImplementedError

    def close(self, *, forget: bool = False) -> None:
        """See L{ISubscription.close}."""
        assert not self.isClosed
        self.isClosed = True
        self.isForgotten = forget
        self.isFlowing = False


class FakeSubscriptions:
    """
    Makes L{FakeSubscription}s.

    @ivar made: all of them.
    @ivar error: what every subscription fails with, while it is set.
    @ivar held: those that wait for L{release}, while L{isHolding}.
    """

    def __init__(self) -> None:
        self.made: list[FakeSubscription] = []
        self.error: Exception | None = None
        self.isHolding = False
        self.held: list[tuple[Deferred[ISubscription], FakeSubscription]] = []

    def subscribe(
        self, principal: Principal, request: SubscribeRequest, subscriber: ISubscriber
    ) -> Deferred[ISubscription]:
        """See C{Subscriptions.subscribe}."""
        if self.error is not None:
            return fail(self.error)
        subscriptionId = request.subscriptionId or UUID.format(len(self.made) + 1)
        made = FakeSubscription(subscriptionId, request, subscriber)
        self.made.append(made)
        if not self.isHolding:
            return succeed(made)
        pending: Deferred[ISubscription] = Deferred()
        self.held.append((pending, made))
        return pending

    def release(self) -> None:
        """Let those that wait be made."""
        held, self.held = self.held, []
        for pending, made in held:
            pending.callback(made)


class MemoryTransport(StringTransportWithDisconnection):
    """
    A transport whose client may stop to read.

    @ivar wasAborted: whether the connection was aborted.
    @ivar losesNothing: whether the connection waits for a client that does not read.
    @ivar isEnding: whether the server has closed its end.
    @ivar writes: what was written, piece by piece.
    """

    wasAborted = False
    losesNothing = False
    isEnding = False
    producer: Any

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        """See C{ITransport}."""
        self.writes.append(data)
        super().write(data)

    def loseConnection(self) -> None:
        """See C{ITransport}. With C{losesNothing}, bytes are left that nobody reads."""
        self.isEnding = True
        if not self.losesNothing:
            super().loseConnection()

    def abortConnection(self) -> None:
        """See C{ITCPTransport}."""
        self.wasAborted = True
        super().loseConnection()

    @property
    def isRead(self) -> bool:
        """Whether the server reads from the client."""
        return bool(self.producerState == "producing")


class Client:
    """A client's end of a connection."""

    def __init__(self, factory: StompFactory) -> None:
        self.transport = MemoryTransport()
        protocol = factory.buildProtocol(None)
        assert protocol is not None
        self.protocol = protocol
        self.transport.protocol = protocol
        protocol.makeConnection(self.transport)
        self.beats = 0

    @property
    def isOpen(self) -> bool:
        """Whether the server has not closed it."""
        return bool(self.transport.connected)

    def sendBytes(self, data: bytes) -> None:
        """Send bytes."""
        self.protocol.dataReceived(data)

    def send(
        self, command: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        """Send a frame."""
        self.sendBytes(frame(command, headers, body))

    def frames(self) -> list[Received]:
        """The frames that have arrived since the last time; their heart-beats are counted."""
        data = self.transport.value()
        self.transport.clear()
        frames, beats = readFrames(data)
        self.beats += beats
        return frames

    def ask(
        self, command: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Received:
        """Send a frame; the one that it is answered with at once."""
        self.send(command, headers, body)
        [answer] = self.frames()
        return answer

    def connect(self, version: str = "1.2", **headers: str) -> Client:
        """Say CONNECT."""
        answer = self.ask("CONNECT", {"accept-version": version, "host": "x", **headers})
        assert answer.command == "CONNECTED", answer
        return self

    def stopReading(self) -> None:
        """Let the transport's buffer be full."""
        if self.transport.producer is not None:
            self.transport.producer.pauseProducing()

    def goOnReading(self) -> None:
        """Let it be empty again."""
        if self.transport.producer is not None:
            self.transport.producer.resumeProducing()

    def disconnect(self) -> None:
        """Go away."""
        self.protocol.connectionLost(Failure(ConnectionDone()))


class Server:
    """
    A STOMP carrier on a broker of two groups, with topics C{a} and C{b} in the first.

    @ivar fixture: the broker.
    @ivar subscriptions: the double of the core.
    """

    def __init__(
        self,
        settings: StompSettings | None = None,
        fixture: Fixture | None = None,
        subscriptions: ISubscriptions | None = None,
        topics: Iterable[str] = ("a", "b"),
        authenticators: Sequence[IAuthenticator] = (),
        dialect: StompDialect = PLAIN,
    ) -> None:
        self.fixture = makeFixture() if fixture is None else fixture
        self.fake = FakeSubscriptions()
        clock = self.fixture.clock
        self.access = Access(authenticators, clock, clock.seconds)
        numbers = itertools.count(1)
        self.factory = StompFactory(
            self.fixture.broker,
            self.fake if subscriptions is None else subscriptions,
            self.access,
            lambda size: next(numbers).to_bytes(size, "big"),
            version="9.8.7",
            settings=settings,
            dialect=dialect,
            incidents=Incidents(lambda: "incident-id"),
        )
        for topic in topics:
            self.fixture.broker.open(ANYBODY, "1", topic)

    def client(self) -> Client:
        """A connection that has not said CONNECT."""
        return Client(self.factory)

    def waitingPublishes(self) -> int:
        """How many publishes wait for the chain."""
        return sum(map(len, self.fixture.broker._publishing._timeouts.values()))

    def connect(self, version: str = "1.2", **headers: str) -> Client:
        """A connection that has."""
        return self.client().connect(version, **headers)

    @property
    def published(self) -> list[Any]:
        """What was published, as the ledger was given it."""
        return [each for each in self.fixture.ledger.submitted if hasattr(each, "content")]
