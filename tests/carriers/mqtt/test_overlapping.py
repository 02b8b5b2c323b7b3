"""
Subscriptions of one session that match the same events.
"""

from __future__ import annotations

import json
import tracemalloc
from itertools import product
from random import Random

from attrs import define, field
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.mqtt import subscription
from svcbroker.carriers.mqtt.fields import Properties
from svcbroker.carriers.mqtt.packets import (
    MQTT_311,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from svcbroker.interfaces import submit
from svcbroker.model import PublishEvent, filterMatches

from .support import Client, Server

OFFSET = Properties(userProperties=(("svc-offset", "OFFSET_LAST"),))


def identified(number: int) -> Properties:
    """The properties of a SUBSCRIBE with an identifier."""
    return Properties(subscriptionIdentifiers=(number,))


def session(server: Server, window: int = 1000) -> Client:
    """A client with a session that is kept, resumed if it is there."""
    terms = Properties(sessionExpiryInterval=1000, receiveMaximum=window)
    return server.connected(cleanStart=False, properties=terms)


class OneMessageTests(SynchronousTestCase):
    """
    An event that several subscriptions match is one message.
    """

    def test_allIdentifiersAndHighestQosAreSent(self) -> None:
        """[MQTT5-3.3.4-2] [MQTT5-3.3.4-4] Also where a batch has events of different matches."""
        server = Server()
        client = server.connected()
        client.subscribe("a/#", 1, identified(7))
        client.subscribe("a/+", 2, identified(200))
        client.subscribe("a/b", 0)
        for topic in ("a/b", "a/b/c", "a/c"):
            client.publish(topic, topic.encode(), 2)
        sent = [
            (each.topic, each.qos, each.properties.subscriptionIdentifiers)
            for each in client.takeMessages()
        ]
        expected = [("a/b", 2, (7, 200)), ("a/b/c", 1, (7,)), ("a/c", 2, (7, 200))]
        self.assertEqual(sent, expected)
        for topic, _, _ in expected:
            submit(server.ledger, PublishEvent(topic=topic, content=b"x"))
        sent = [
            (each.topic, each.qos, each.properties.subscriptionIdentifiers)
            for each in client.takeMessages()
        ]
        self.assertEqual(sent, expected)

    def test_rememberedMatchesAreBounded(self) -> None:
        """A session may have a thousand filters that match each of a thousand topics."""
        self.patch(subscription, "REMEMBERED_MATCHES", 1000)
        server = Server()
        client = server.connected()
        for levels in product("a+", repeat=6):
            client.subscribe("/".join([*levels, "+"]))
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        for number in range(100):
            server.event(f"a/a/a/a/a/a/{number}", b"x")
            self.assertEqual(len(client.takeMessages()), 1)
        traces = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.Filter(True, subscription.__file__)]
        )
        self.assertLess(sum(each.size for each in traces.traces), 30_000)

    def test_highestQosIsSentIn311(self) -> None:
        """[MQTT-3.3.5-1]"""
        server = Server()
        client = server.connected(version=MQTT_311)
        client.subscribe("a", 0)
        client.subscribe("+", 1)
        client.publish("a", b"x", 2)
        self.assertEqual([each.qos for each in client.takeMessages()], [1])

    def test_ownOffsetHasItsOwnMessage(self) -> None:
        """Subscriptions with an offset or a tag have positions, and messages, of their own."""
        server = Server()
        server.event("a", b"old")
        client = server.connected()
        client.subscribe("a", 1, identified(1))
        client.subscribe("#", 1, identified(2))
        first = Properties(
            subscriptionIdentifiers=(3,), userProperties=(("svc-offset", "OFFSET_FIRST"),)
        )
        client.subscribe("+", 1, first)
        server.event("a", b"new")
        got = [
            (each.payload, each.properties.subscriptionIdentifiers)
            for each in client.takeMessages()
        ]
        self.assertEqual(sorted(got), [(b"new", (1, 2)), (b"new", (3,)), (b"old", (3,))])

    def test_retainedComesForEachSubscription(self) -> None:
        """Retained messages are sent at each SUBSCRIBE, with its identifier."""
        server = Server()
        client = server.connected()
        client.publish("a", b"kept", 1, retain=True)
        for number, topicFilter in enumerate(("a", "+", "a"), 1):
            client.subscribe(topicFilter, 1, identified(number))
            (message,) = client.takeMessages()
            self.assertEqual(message.properties.subscriptionIdentifiers, (number,))
            self.assertTrue(message.retain)

    def test_noLocalHoldsForItsSubscription(self) -> None:
        """[MQTT5-3.8.3-3] A client's own message comes if a subscription without it matches."""
        server = Server()
        client = server.connected()
        client.subscribe("a/#", 1, identified(1), noLocal=True)
        client.publish("a/b", b"hidden", 1)
        self.assertEqual(client.takeMessages(), [])
        client.subscribe("a/b", 0, identified(2))
        client.publish("a/b", b"own", 1)
        server.event("a/b", b"foreign")
        got = [
            (each.payload, each.qos, each.properties.subscriptionIdentifiers)
            for each in client.takeMessages()
        ]
        self.assertEqual(got, [(b"own", 0, (2,)), (b"foreign", 1, (1, 2))])


class PositionTests(SynchronousTestCase):
    """
    Subscriptions share a position in the log, and each begins and ends at its own time.
    """

    def test_joiningSubscriptionGetsNothingOlder(self) -> None:
        """A subscription begins with its SUBSCRIBE, however far behind others are."""
        server = Server()
        client = session(server, 2)
        client.subscribe("a", 1)
        for number in range(10):
            server.event("a", b"a%d" % number)
            server.event("b", b"b%d" % number)
        client.subscribe("b", 1)
        server.event("b", b"new")
        client.look()
        expected = [*(b"a%d" % number for number in range(10)), b"new"]
        self.assertEqual(client.payloads(), expected)

    def test_endedSubscriptionGetsNothingMore(self) -> None:
        """After UNSUBACK nothing of it comes, also of events that wait, and the others go on."""
        server = Server()
        client = session(server, 2)
        client.subscribe("a", 1)
        client.subscribe("b", 1)
        for number in range(10):
            server.event("ab"[number % 2], b"%d" % number)
        client.unsubscribe("a")
        self.assertEqual(client.payloads(), [b"0", b"1", b"3", b"5", b"7", b"9"])
        server.event("a", b"x")
        server.event("b", b"y")
        self.assertEqual(client.payloads(), [b"y"])
        server.wait(1)
        server = server.restarted()
        self.assertEqual(session(server).payloads(), [])

    def test_unsubscribedInFlightIsCompleted(self) -> None:
        """
        [MQTT-3.10.4-3] What was sent before UNSUBSCRIBE is completed over the next connection, and
        does not hold up the position of the others.
        """
        server = Server()
        client = session(server)
        client.subscribe("a", 1)
        client.subscribe("b", 1)
        server.event("a", b"1")
        (sent,) = client.take()
        client.unsubscribe("a")
        (core,) = server.subscriptions._live.values()
        self.assertEqual(core.request.filters, ("b",))
        server.event("b", b"2")
        client.take()
        self.assertEqual(core._unacknowledged, 1)
        client.lose()
        client = session(server)
        again, other = client.take()
        self.assertEqual((again.payload, again.packetId, again.dup), (b"1", sent.packetId, True))
        self.assertEqual((other.payload, other.dup), (b"2", True))
        client.send(Puback(again.packetId), Puback(other.packetId))
        server.wait(1)
        self.assertEqual(session(server.restarted()).take(), [])

    def test_repeatedSubscribeMissesNothing(self) -> None:
        server = Server()
        client = session(server)
        client.subscribe("a", 1)
        client.subscribe("b", 1)
        server.event("a", b"1")
        client.subscribe("a", 0)
        client.subscribe("b", 1)
        server.event("a", b"2")
        self.assertEqual(client.payloads(), [b"1", b"2"])

    def test_oldSessionsContinue(self) -> None:
        """Subscriptions that were stored with a position of their own continue with it."""
        server = Server()
        client = session(server)
        client.subscribe("a", 1, OFFSET)
        client.subscribe("+", 1, OFFSET)
        server.event("a", b"1")
        self.assertEqual(client.payloads(), [b"1", b"1"])
        client.lose()
        server.wait(1)
        for key, value in server.file.kept.items():
            if key[0] == "mqtt-subscription":
                stored = json.loads(value)
                self.assertIs(stored.pop("isJoined"), False)
                server.file.kept[key] = json.dumps(stored).encode()
        server.event("a", b"2")
        server = server.restarted()
        client = session(server)
        self.assertEqual(client.payloads(), [b"2", b"2"])
        client.unsubscribe("a", "+")
        client.subscribe("a", 1)
        client.subscribe("+", 1)
        server.event("a", b"3")
        self.assertEqual(client.payloads(), [b"3"])

    def test_positionIsForgottenWithTheLastSubscription(self) -> None:
        server = Server()
        client = session(server)
        for topicFilter in ("a", "b"):
            client.subscribe(topicFilter, 1)
        server.wait(1)
        count = lambda: sum(kind == "position" for kind, _ in server.file.kept)  # noqa: E731
        self.assertEqual(count(), 1)
        client.unsubscribe("a")
        server.wait(1)
        self.assertEqual(count(), 1)
        client.unsubscribe("b")
        server.wait(1)
        self.assertEqual(count(), 0)


FILTERS = ("a/#", "a/+", "a/1", "+/1", "b/#", "#", "c")
TOPICS = ("a/1", "a/2", "b/1", "c")


@define
class Granted:
    """
    A subscription, from SUBACK to UNSUBACK.

    @ivar owed: the events that were published meanwhile, and that it matches.
    """

    topicFilter: str
    owed: set[bytes] = field(factory=set)


class History:
    """
    A random history of a session with QoS 2, and of what it may and must receive.

    @ivar got: what it has received, by its own account of packet identifiers.
    @ivar allowed: what a subscription matched when it was published.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.server = Server()
        self.granted: dict[str, Granted] = {}
        self.got: list[bytes] = []
        self.allowed: set[bytes] = set()
        self.published = 0
        self._unreleased: set[int] = set()
        self._inbox: list[Packet] = []
        self.connect()

    def connect(self) -> None:
        """Connect again. What was not handled yet is lost."""
        self._inbox.clear()
        self.client = session(self.server, self.random.choice((1, 3, 100)))
        self.look()

    def look(self) -> None:
        """Take what has arrived."""
        self.server.pump()
        self.client.look()
        self._inbox += self.client.packets
        self.client.packets.clear()

    def handle(self, count: int) -> None:
        """Handle some packets."""
        self.look()
        handled, self._inbox = self._inbox[:count], self._inbox[count:]
        for packet in handled:
            if isinstance(packet, Publish):
                if packet.packetId not in self._unreleased:
                    self.got.append(packet.payload)
                if packet.qos == 2:
                    self._unreleased.add(packet.packetId)
                    self.client.send(Pubrec(packet.packetId))
                else:
                    self.client.send(Puback(packet.packetId))
            elif isinstance(packet, Pubrel):
                self._unreleased.discard(packet.packetId)
                self.client.send(Pubcomp(packet.packetId))
        self.look()

    def publish(self, count: int) -> None:
        """Publish some events in a block."""
        for _ in range(count):
            topic, content = self.random.choice(TOPICS), b"%d" % self.published
            self.published += 1
            for each in self.granted.values():
                if filterMatches(each.topicFilter, topic):
                    each.owed.add(content)
                    self.allowed.add(content)
            submit(self.server.ledger, PublishEvent(topic=topic, content=content))
        self.look()

    def step(self) -> None:
        """Do something."""
        chance = self.random.random()
        if chance < 0.15:
            topicFilter = self.random.choice(FILTERS)
            self.client.subscribe(topicFilter, 2)
            self.granted.setdefault(topicFilter, Granted(topicFilter))
        elif chance < 0.25:
            topicFilter = self.random.choice(FILTERS)
            self.client.unsubscribe(topicFilter)
            self.granted.pop(topicFilter, None)
        elif chance < 0.6:
            self.publish(self.random.randrange(1, 6))
        elif chance < 0.9:
            self.handle(self.random.randrange(1, 8))
        else:
            if chance < 0.95:
                self.client.lose()
            else:
                self.server = self.server.restarted()
            if self.random.random() < 0.5:
                self._inbox.clear()
                self.client = Client(self.server)
                self.publish(3)
            self.connect()

    def finish(self) -> None:
        """Receive everything."""
        self.look()
        while self._inbox:
            self.handle(100)


class RandomTests(SynchronousTestCase):
    """
    Whatever happens: exactly once.
    """

    def test_randomHistoriesAreExact(self) -> None:
        """
        Subscriptions come and go, the client reads or does not, connections end, the broker
        crashes: an event is received once at most, if it was published while a subscription
        matched it; it is received if that subscription has not ended.
        """
        for seed in range(60):
            history = History(seed)
            for topic in TOPICS:
                history.server.event(topic, b"opens the topic")
            for _ in range(60):
                history.step()
            history.finish()
            got = set(history.got)
            self.assertEqual(len(got), len(history.got), f"seed {seed}: doubled")
            self.assertEqual(got - history.allowed, set(), f"seed {seed}: not subscribed")
            for each in history.granted.values():
                self.assertEqual(each.owed - got, set(), f"seed {seed}: missed")
