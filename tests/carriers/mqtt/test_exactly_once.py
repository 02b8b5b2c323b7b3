"""
Publishes with QoS 2 through crashes at every point.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.mqtt.codec import encode
from svcbroker.carriers.mqtt.fields import NO_PROPERTIES, Properties, publishReason
from svcbroker.carriers.mqtt.kept import QOS_2
from svcbroker.carriers.mqtt.mqttsession import Incoming
from svcbroker.carriers.mqtt.packets import (
    MQTT_5,
    MQTT_311,
    Connack,
    Connect,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    TopicSubscription,
)
from svcbroker.errors import LedgerUnavailable, Overloaded, TopicNotFound, TransactionTimeout
from svcbroker.interfaces import submit
from svcbroker.model import OpenTopic, PublishEvent
from svcbroker.testing._fixtures import ScriptedLedger, memoryLedger
from tests.authors import Author, tellChain

from .support import Client, MetadataFile, Server
from .test_authorship import properties

VERSIONS = (MQTT_311, MQTT_5)
MESSAGES = ((7, b"first"), (7, b"another with the same packet id"), (8, b"last"))
CONTENTS = [content for _, content in MESSAGES]
EXPIRY = 10_000
SEEDS = 400


class SlowFile(MetadataFile):
    """
    A disk that takes its time.

    @ivar writing: the write that is under way, if there is one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.writing: tuple[dict[tuple[str, str], bytes | None], Deferred[None]] | None = None

    def write(self, changes: dict[tuple[str, str], bytes | None]) -> Any:
        self.writing = (changes, Deferred())
        return self.writing[1]

    def finish(self) -> None:
        """Finish the write that is under way."""
        assert self.writing is not None
        (changes, done), self.writing = self.writing, None
        super().write(changes)
        done.callback(None)

    def crash(self, *, isWritten: bool) -> SlowFile:
        """The disk as the next process finds it. That of this one does nothing any more."""
        following = SlowFile()
        following.kept, following.numbers = self.kept, self.numbers
        if self.writing is not None and isWritten:
            super().write(self.writing[0])
        return following


class SteadySession:
    """
    A client that keeps its half of the session.

    @ivar hasSession: whether it has connected.
    """

    hasSession = False

    def __init__(self, version: int, name: str = "steady", window: int | None = None) -> None:
        self.version = version
        self._name = name
        self._window = window

    def connect(self, server: Server) -> None:
        """Connect to a broker."""
        self.client = server.client(self.version)
        properties = NO_PROPERTIES
        if self.version == MQTT_5:
            properties = Properties(sessionExpiryInterval=EXPIRY, receiveMaximum=self._window)
        self.write(Connect(self._name, False, version=self.version, properties=properties))

    def write(self, packet: Any) -> None:
        """Send a packet, without time passing."""
        self.client.protocol.dataReceived(encode(packet, self.version))

    def connected(self, packet: Connack) -> bool:
        """Handle a CONNACK; whether it is the first."""
        assert (packet.reason, packet.sessionPresent) == (0, self.hasSession), packet
        isFirst, self.hasSession = not self.hasSession, True
        return isFirst


class SteadyClient(SteadySession):
    """
    A client that publishes L{MESSAGES} one after the other, and sends again what was not answered.
    """

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.waiting = list(MESSAGES)
        self.sent: Publish | None = None
        self.released: int | None = None

    @property
    def isDone(self) -> bool:
        """Whether all are complete."""
        return not self.waiting and self.sent is None and self.released is None

    def read(self) -> None:
        """Answer what has arrived."""
        self.client.look()
        packets, self.client.packets = self.client.packets, []
        for packet in packets:
            self.received(packet)

    def received(self, packet: Any) -> None:
        """Answer a packet."""
        if isinstance(packet, Connack):
            self.connected(packet)
            if self.sent is not None:
                self.write(self.sent)
            if self.released is not None:
                self.write(Pubrel(self.released))
            self.publish()
        elif isinstance(packet, Pubrec):
            assert packet.reason == 0, packet
            if self.sent is not None:
                self.sent, self.released = None, packet.packetId
            self.write(Pubrel(packet.packetId))
        elif isinstance(packet, Pubcomp):
            self.released = None
            self.publish()

    def publish(self) -> None:
        """Publish the next message."""
        if self.waiting and self.sent is None and self.released is None:
            packetId, content = self.waiting.pop(0)
            packet = Publish("t", content, 2, packetId=packetId)
            self.sent = Publish("t", content, 2, dup=True, packetId=packetId)
            self.write(packet)


class CrashTests(SynchronousTestCase):
    """
    A broker that crashes once and again, with a client that publishes to it.
    """

    def start(self) -> None:
        """Start a broker."""
        self.ledger = ScriptedLedger(self.chain)
        self.ledger.isHolding = True
        self.server = Server(None, self.file, {"1": self.ledger}, self.clock)

    def step(self, client: SteadyClient) -> None:
        """
        The next thing that can happen: a call of the reactor, a write to the disk or a block that
        is complete, or time that passes.
        """
        clock: Any = self.clock
        due = [call for call in clock.getDelayedCalls() if call.getTime() <= clock.seconds()]
        if due:
            run, arguments, keywords = due[0].func, due[0].args, due[0].kw
            due[0].cancel()
            run(*arguments, **keywords)
        elif self.file.writing is not None:
            self.file.finish()
        elif self.ledger.held:
            self.ledger.release()
        else:
            self.clock.advance(0.025)
        client.read()

    def publish(self, version: int, crashes: Sequence[int], *, areLost: bool) -> bool:
        """
        Publish, with a crash after some numbers of steps each.

        @param areLost: whether what was on its way to the disk or into a block when the broker
            crashed is lost. Otherwise it gets there, a little later.
        @return: whether the client was not done at the last crash.
        """
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.chain = memoryLedger(self.clock)
        self.file = SlowFile()
        self.start()
        client = SteadyClient(version)
        client.connect(self.server)
        while not client.hasSession:
            self.step(client)
        for steps in crashes:
            for _ in range(steps):
                self.step(client)
            wasCut = not client.isDone
            late = () if areLost else self.ledger.held
            self.server.crash()
            self.file = self.file.crash(isWritten=not areLost)
            self.start()
            client.connect(self.server)
            for request in late:
                self.chain.submitMany((request,))
        for _ in range(200):
            self.step(client)
        self.assertTrue(client.isDone)
        return wasCut

    def contents(self) -> list[bytes]:
        """The events of the log."""
        height = self.successResultOf(self.chain.getStatistics()).height
        blocks = [self.successResultOf(self.chain.readBlock(n)) for n in range(1, height + 1)]
        return [event.content for block in blocks for event in block.events]

    def test_crashAtAnyPointLeavesOneEventOfEach(self) -> None:
        """And no message is taken for an earlier one with its packet identifier."""
        for version in VERSIONS:
            for areLost in (True, False):
                steps = 0
                while self.publish(version, [steps], areLost=areLost):
                    self.assertEqual(self.contents(), CONTENTS, (version, areLost, steps))
                    steps += 1
                self.assertGreater(steps, 20)

    def test_crashDuringRecoveryLeavesOneEventOfEach(self) -> None:
        for areLost in (True, False):
            for first in range(0, 30, 2):
                second = 0
                while self.publish(MQTT_5, [first, second], areLost=areLost):
                    self.assertEqual(self.contents(), CONTENTS, (areLost, first, second))
                    second += 1


class SteadySubscriber(SteadySession):
    """
    A client that receives with QoS 2.

    @ivar contents: of the messages that are no repetitions.
    """

    def __init__(self, version: int, name: str, topicFilter: str, window: int) -> None:
        super().__init__(version, name, window)
        self.contents: list[bytes] = []
        self._topicFilter = topicFilter
        self._unreleased: set[int] = set()

    def read(self) -> bool:
        """Answer the next packet that has arrived; whether there was one."""
        self.client.look()
        if not self.client.packets:
            return False
        packet: Any = self.client.packets.pop(0)
        if isinstance(packet, Connack):
            if self.connected(packet):
                self.write(Subscribe(1, (TopicSubscription(self._topicFilter, 2),)))
        elif isinstance(packet, Publish):
            if packet.packetId not in self._unreleased:
                self._unreleased.add(packet.packetId)
                self.contents.append(packet.payload)
            self.write(Pubrec(packet.packetId))
        elif isinstance(packet, Pubrel):
            self._unreleased.discard(packet.packetId)
            self.write(Pubcomp(packet.packetId))
        return True


class DeliveryTests(SynchronousTestCase):
    """
    A broker that crashes once and again, with clients that subscribe to it. What happens next is
    drawn at random: a call of the reactor, a packet to a client, the end of a write to the disk,
    or time that passes. Others want the disk too.
    """

    def begin(self, seed: int, *filters: str) -> None:
        """Start a broker, and have a client subscribe to each filter."""
        self.random = Random(seed)
        self.published: list[bytes] = []
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.chain = memoryLedger(self.clock)
        submit(self.chain, OpenTopic(topic="t"))
        self.file = SlowFile()
        self.subscribers = [
            SteadySubscriber(VERSIONS[seed % 2], str(number), each, self.random.choice((1, 3, 99)))
            for number, each in enumerate(filters)
        ]
        self.start()
        self.finish()

    def start(self) -> None:
        """Start a broker, and have the clients connect."""
        self.server = Server(None, self.file, {"1": self.chain}, self.clock)
        for each in self.subscribers:
            each.connect(self.server)

    def crash(self) -> None:
        """Crash, and start again."""
        self.server.crash()
        self.file = self.file.crash(isWritten=self.random.random() < 0.5)
        self.start()

    def lose(self) -> None:
        """Some clients lose their connections, and connect again."""
        lost = self.random.sample(self.subscribers, self.random.randint(1, len(self.subscribers)))
        for each in lost:
            each.client.lose()
            self.go(20)
        for each in lost:
            each.connect(self.server)
            self.go(20)

    def go(self, most: int) -> None:
        """Up to so many steps."""
        for _ in range(self.random.randrange(most)):
            if self.random.random() < 0.1:
                self.publish()
            if self.random.random() < 0.1:
                self.server.store.put("other", "name", self.random.randbytes(8))
                self.server.store.flush()
            chance = self.random.random()
            if chance < 0.2:
                self.clock.advance(0.025)
            elif chance < 0.5:
                self.random.choice(self.subscribers).read()
            elif chance < 0.6 and self.file.writing is not None:
                self.file.finish()
            else:
                self.server.turn()

    def publish(self) -> None:
        """Publish an event."""
        self.published.append(b"%d" % len(self.published))
        submit(self.chain, PublishEvent(topic="t", content=self.published[-1]))

    def finish(self) -> None:
        """Let everything happen."""
        isIdle = 0
        while isIdle < 10:
            isIdle += 1
            self.clock.advance(0.025)
            while self.server.turn() or any(each.read() for each in self.subscribers):
                isIdle = 0
            if self.file.writing is not None:
                self.file.finish()
                isIdle = 0

    def test_crashesLoseAndRepeatNothing(self) -> None:
        """Nor do lost connections."""
        for seed in range(SEEDS):
            self.begin(seed, "t")
            for _ in range(3):
                self.go(80)
                self.random.choice((self.crash, self.crash, self.lose))()
            self.publish()
            self.finish()
            self.assertEqual(self.subscribers[0].contents, self.published, seed)

    def test_shareGivesEachToOneMember(self) -> None:
        """Whatever connections are lost."""
        for seed in range(SEEDS // 4):
            self.begin(seed, "$share/g/t", "$share/g/t")
            for _ in range(3):
                self.go(80)
                self.lose()
            self.finish()
            received = [content for each in self.subscribers for content in each.contents]
            self.assertEqual(sorted(received, key=int), self.published, seed)


class KeyTests(SynchronousTestCase):
    """
    The keys that exchanges are given.
    """

    def setUp(self) -> None:
        self.incoming = Incoming(lambda: None, lambda: None)

    def keysOf(self, *packetIds: int, now: float = 1_700_000_000.5) -> Sequence[str]:
        return self.incoming.keysOf(packetIds, now, os.urandom)

    def test_keysOfOneTimeAreNeighbours(self) -> None:
        """An index over many keys has these on few pages, whatever came before and after."""
        first, second, third = self.keysOf(1, 2, 3)
        [later] = self.keysOf(4, now=1_700_009_000.0)
        self.assertEqual(len({first, second, third, later}), 4)
        self.assertEqual({len(each) for each in (first, second, third, later)}, {20})
        self.assertEqual({first[:6], second[:6], third[:6]}, {first[:6]})
        self.assertNotEqual(later[:6], first[:6])
        self.assertEqual(len({first[7:], second[7:], third[7:]}), 3)

    def test_repeatedPublishKeepsItsKey(self) -> None:
        first, second = self.keysOf(1, 2)
        third, again, fourth = self.keysOf(3, 1, 4, now=1_700_009_000.0)
        self.assertEqual(again, first)
        self.assertEqual(len({first, second, third, fourth}), 4)
        self.assertEqual(self.incoming.keys, {1: first, 2: second, 3: third, 4: fourth})


class ExchangeTests(SynchronousTestCase):
    """
    What becomes of the keys of exchanges.
    """

    def setUp(self) -> None:
        clock = Clock()
        clock.advance(1_700_000_000)
        self.chain = memoryLedger(clock)
        submit(self.chain, OpenTopic(topic="t"))
        self.server = Server(None, MetadataFile(), {"1": ScriptedLedger(self.chain)}, clock)
        self.client = self.connected()

    def connected(self, version: int = MQTT_5) -> Client:
        """The client, with a session that outlives its connections."""
        expiry = {"expiry": EXPIRY} if version == MQTT_5 else {}
        return self.server.connected("c", version, cleanStart=False, **expiry)

    def restart(self, version: int = MQTT_5) -> Client:
        """
        The client, at the broker that is started after a crash. What was on its way into the log
        gets there.
        """
        before = self.server
        before.crash()
        ledgers = {"1": ScriptedLedger(self.chain)}
        self.server = Server(None, before.file, ledgers, before.clock)
        for request in before.ledger.held:
            self.chain.submitMany((request,))
        return self.connected(version)

    def keys(self) -> list[str | None]:
        """The keys of what was submitted."""
        submitted = self.server.ledger.submitted
        return [each.idempotencyKey for each in submitted if isinstance(each, PublishEvent)]

    def send(self, content: bytes, client: Client | None = None) -> None:
        """Publish with the packet identifier 1, without the rest of the exchange."""
        (client or self.client).send(Publish("t", content, 2, packetId=1))

    def contents(self) -> list[bytes]:
        """The events of the log, by a subscription to all of it."""
        reader = self.server.connected("reader")
        properties = Properties(userProperties=(("svc-offset", "OFFSET_FIRST"),))
        reader.subscribe("t", 0, properties)
        return reader.payloads()

    def test_onlyQos2OfKeptSessionsHasKeys(self) -> None:
        self.client.publish("t", b"x", 0)
        self.client.publish("t", b"x", 1)
        self.server.connected("other").publish("t", b"x", 2)
        self.assertEqual(self.keys(), [None] * 3)
        self.client.publish("t", b"x", 2)
        old = self.connected(MQTT_311)
        old.publish("t", b"x", 2)
        *_, first, second = self.keys()
        assert first is not None
        assert second is not None
        self.assertNotEqual(first, second)
        self.assertEqual(self.contents(), [b"x"] * 5)

    def test_whatWaitsForTheDiskCountsAsInput(self) -> None:
        """
        While the disk does not write, all connections together keep no more than the budget of
        input has: a client above it is not read from.
        """
        held: list[tuple[Deferred[Any], Callable[..., Any], Sequence[Any]]] = []

        def hold(f: Callable[..., Any], *args: Any) -> Deferred[Any]:
            held.append((Deferred(), f, args))
            return held[-1][0]

        self.server.store._runInThread = hold
        client, budget = self.client, self.server.broker.budgets.input
        client.send(Publish("t", bytes(1000), 2, packetId=1))
        self.assertEqual((budget.used, client.transport.producerState), (1000, "producing"))
        budget.own = 1500
        client.send(Publish("t", bytes(1000), 2, packetId=2))
        self.assertEqual((budget.used, client.transport.producerState), (2000, "paused"))
        while held:
            done, f, args = held.pop(0)
            done.callback(f(*args))
            self.server.pump()
        self.assertEqual((budget.used, client.transport.producerState), (0, "producing"))

    def test_clientsOwnKeyIsKept(self) -> None:
        key = Properties(userProperties=(("svc-idempotency-key", "k"),))
        self.client.publish("t", b"x", 2, properties=key)
        self.client.publish("t", b"x", 2, properties=key)
        self.assertEqual(self.keys(), ["k", "k"])
        self.assertEqual(self.contents(), [b"x"])

    def test_signedPublishGetsNoKey(self) -> None:
        """Its author would have had to sign it."""
        chain = tellChain(self.server.ledger)
        author = Author().sign(chain, "t", b"x", {"svc-mqtt": '{"v":1}'})
        self.client.publish("t", b"x", 2, properties=properties(author, {}))
        self.assertEqual(self.keys(), [None])

    def test_completeExchangesLeaveNothingOnDisk(self) -> None:
        for _ in range(3):
            self.client.publish("t", b"x", 2)
        self.server.wait(1)
        self.assertEqual([kind for kind, _ in self.server.file.kept if kind == QOS_2], [])

    def test_endedSessionLeavesNothingOnDisk(self) -> None:
        """Also where its publish comes into the log afterwards."""
        self.server.ledger.isHolding = True
        self.send(b"x")
        self.server.connected("c").disconnect()
        self.server.ledger.release()
        self.server.wait(1)
        self.assertEqual([kind for kind, _ in self.server.file.kept if kind == QOS_2], [])
        self.assertEqual(self.contents(), [b"x"])

    def test_publishesBehindKeepTheirOrder(self) -> None:
        """Of any QoS, in the same read and in later ones, and if the connection is lost."""
        numbers = iter(range(1, 100))
        for qos in (2, 0, 1, 2, 1):
            payload = b"%d" % next(numbers)
            packet = Publish("t", payload, qos, packetId=int(payload) if qos else 0)
            self.client.protocol.dataReceived(encode(packet, MQTT_5))
        self.client.lose()
        self.assertEqual(self.contents(), [b"1", b"2", b"3", b"4", b"5"])

    def test_contentOfTheFirstAttemptCounts(self) -> None:
        """A packet identifier that is in use is acknowledged, after a crash as before it."""
        self.send(b"first")
        self.client.take()
        for client in (self.client, self.restart()):
            self.send(b"other", client)
            self.assertEqual(client.takeOne(Pubrec), Pubrec(1))
        client.send(Pubrel(1))
        self.assertEqual(client.takeOne(Pubcomp), Pubcomp(1))
        self.assertEqual(self.contents(), [b"first"])

    def test_contentOfTheFirstAttemptCountsBeforePUBREC(self) -> None:
        """Where the broker does not know whether the first attempt was published."""
        self.server.ledger.isHolding = True
        self.send(b"first")
        client = self.restart()
        self.send(b"other", client)
        self.assertEqual(client.takeOne(Pubrec), Pubrec(1))
        self.assertEqual(self.contents(), [b"first"])

    def test_refusalEndsTheExchange(self) -> None:
        """With PUBREC: the packet identifier is free for another message."""
        self.server.ledger.error = Overloaded()
        self.send(b"x")
        self.assertEqual(self.client.takeOne(Pubrec).reason, 0x97)
        self.server.ledger.error = None
        self.send(b"y")
        self.assertEqual(self.client.takeOne(Pubrec), Pubrec(1))
        client = self.restart()
        client.send(Pubrel(1))
        self.assertEqual(client.takeOne(Pubcomp), Pubcomp(1))
        self.assertEqual(self.contents(), [b"y"])

    def test_repetitionIsNotRefusedForNow(self) -> None:
        """It may be in the log; the client is disconnected, and repeats it later."""
        for error in (Overloaded(), LedgerUnavailable()):
            self.server.ledger.isHolding = True
            self.send(b"x")
            client = self.restart()
            self.server.ledger.error = error
            self.send(b"x", client)
            self.assertEqual(client.reasonOfEnd(), publishReason(error))
            self.server.ledger.error = None
            self.client = self.restart()
            self.client.publish("t", b"x", 2, packetId=1)
        self.assertEqual(self.contents(), [b"x", b"x"])

    def test_repetitionIsRefusedForGood(self) -> None:
        self.server.ledger.isHolding = True
        self.send(b"x")
        client = self.restart()
        self.server.ledger.error = TopicNotFound()
        self.send(b"x", client)
        self.assertEqual(client.takeOne(Pubrec).reason, 0x90)

    def test_unknownOutcomeIsNotAnswered(self) -> None:
        """The ledger was stopped before it knew."""
        self.server.ledger.error = TransactionTimeout()
        self.send(b"x")
        self.assertEqual(self.client.reasonOfEnd(), 0x80)
        [key] = self.server.file.kept[QOS_2, '["1","c"]'].split(b'"')[5:6]
        client = self.restart()
        self.send(b"x", client)
        self.assertEqual(self.keys(), [key.decode()])
        self.assertEqual(client.takeOne(Pubrec), Pubrec(1))

    def test_refused311KeepsItsKey(self) -> None:
        """The client sends the message again, which may be in the log."""
        self.client = self.connected(MQTT_311)
        self.server.ledger.isHolding = True
        self.send(b"x")
        for _ in range(2):
            client = self.restart(MQTT_311)
            self.server.ledger.error = Overloaded()
            self.send(b"x", client)
            self.assertTrue(client.isClosed)
            self.server.ledger.error = None
        client = self.restart(MQTT_311)
        client.publish("t", b"x", 2, packetId=1)
        self.assertEqual(self.contents(), [b"x"])

    def test_nothingBehindARefused311PublishIsPublished(self) -> None:
        """Whatever waits for the disk."""
        client = self.connected(MQTT_311)
        self.server.ledger.error = Overloaded()
        for content in (b"x", b"y"):
            packet = Publish("t", content, 2, packetId=content[0])
            client.protocol.dataReceived(encode(packet, MQTT_311))
        while not client.transport.disconnecting:
            self.server.turn()
        self.server.ledger.error = None
        self.server.pump()
        self.assertEqual(self.contents(), [])
        client = self.connected(MQTT_311)
        client.publish("t", b"x", 2, packetId=ord("x"))
        client.publish("t", b"y", 2, packetId=ord("y"))
        self.assertEqual(self.contents(), [b"x", b"y"])
