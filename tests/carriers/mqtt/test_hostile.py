"""
Clients that mean no good, or do not know better.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import NoReturn

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.mqtt.codec import encode
from svcbroker.carriers.mqtt.fields import Properties, ReasonCode
from svcbroker.carriers.mqtt.packets import (
    MQTT_5,
    MQTT_311,
    Connack,
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrel,
    Suback,
    Subscribe,
    TopicSubscription,
    Unsubscribe,
)
from svcbroker.carriers.mqtt.subscribing import OpenedLog, Subscriber
from svcbroker.carriers.mqtt.subscription import SessionSubscription
from svcbroker.net.budgets import READS_AT_ONCE, WRITES_A_TURN
from tests import examples

from .support import Server
from .test_codec import packets


class HostileTests(SynchronousTestCase):
    """
    Nothing a client does makes a traceback, an unbounded buffer or a wedged connection.
    """

    def check(self, server: Server) -> None:
        """The broker is well, and serves others."""
        self.assertEqual(self.flushLoggedErrors(), [])
        other = server.connected("other")
        other.subscribe("well", 1)
        other.publish("well", b"yes", 1)
        self.assertEqual(other.payloads(), [b"yes"])

    @settings(
        suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=examples(60)
    )
    @given(st.lists(packets, max_size=8), st.booleans())
    def test_anyPacketsAreSurvived(self, sent: list[Packet], isInOnePiece: bool) -> None:
        """Any packets in any order, from a client that is connected."""
        server = Server()
        client = server.connected(expiry=100)
        data = [encode(packet, MQTT_5) for packet in sent]
        for piece in [b"".join(data)] if isInOnePiece else data:
            if not client.isClosed:
                client.sendBytes(piece)
        client.take()
        if not client.isClosed:
            client.send(Pingreq())
            self.assertIn(Pingresp(), client.take())
        client.lose()
        self.check(server)

    @settings(deadline=None, max_examples=examples(60))
    @given(st.binary(max_size=100), st.sampled_from([MQTT_311, MQTT_5]), st.booleans())
    def test_anyBytesAreSurvived(self, data: bytes, version: int, isConnected: bool) -> None:
        """Any bytes, before and after CONNECT."""
        server = Server()
        client = server.connected(version=version) if isConnected else server.client(version)
        client.sendBytes(data)
        client.lose()
        self.check(server)

    def test_unreadPingsAreBounded(self) -> None:
        """A client that asks and does not read is not written to without end."""
        server = Server()
        client = server.connected()
        producer = client.transport.producer
        assert producer is not None
        producer.pauseProducing()
        data = encode(Pingreq(), MQTT_5) * 40_000
        client.sendBytes(data)
        self.assertEqual(client.transport.producerState, "paused")
        producer.resumeProducing()
        server.pump()
        self.assertEqual(client.transport.producerState, "producing")

    def test_floodIsHandledInTurns(self) -> None:
        """One read of thousands of small packets, where each look at the clock takes time."""
        for packet, answer in (
            (Pingreq(), Pingresp()),
            (Pubrel(1), Pubcomp(1)),
            (Publish("t", b"x", 1, packetId=1), Puback(1)),
        ):
            server = Server()
            client = server.connected(version=MQTT_311)
            server.event("t", b"")
            looks = count(server.clock.seconds(), WRITES_A_TURN / 2)
            work = server.broker.budgets.work
            work.seconds = looks.__next__
            client.protocol.dataReceived(encode(packet, MQTT_311) * 5000)
            client.look()
            self.assertLess(len(client.packets) + work.pending, 2000)
            self.assertGreater(server.budgets.input.used, 5000)
            for _ in range(10):
                server.pump()
            self.assertEqual(client.take(), [answer] * 5000)
            self.assertEqual(server.budgets.input.used, 0)

    def test_floodWithoutPublishesWaitsWithReads(self) -> None:
        """Publishes of others come before it. What is short, or publishes, does not wait."""
        names = tuple(TopicSubscription(f"a/{number}", 0) for number in range(200))
        for packet, times, isWaiting in (
            (Pingreq(), 1000, True),
            (Pubrel(1), 1000, True),
            (Subscribe(1, names), 1, True),
            (Unsubscribe(1, tuple(each.topicFilter for each in names)), 1, True),
            (Pingreq(), 10, False),
            (Publish("t", b"x", 0), 1000, False),
        ):
            server = Server()
            client = server.connected(version=MQTT_311)
            server.event("t", b"")
            work = server.budgets.work
            work.lane().begin(isWrite=False)
            work.used[0] = 1.0
            client.protocol.dataReceived(encode(packet, MQTT_311) * times)
            self.assertEqual(any(work.queues), isWaiting, packet)
            for _ in range(10):
                server.pump()
            self.assertFalse(any(work.queues))
            client.look()
            self.assertEqual(len(client.packets), 0 if isinstance(packet, Publish) else times)

    def test_clientsThatConnectWaitWithReads(self) -> None:
        """Beside thousands that connect and leave, others publish."""
        server = Server()
        work = server.budgets.work
        work.lane().begin(isWrite=False)
        work.used[0] = 1.0
        client = server.client()
        client.protocol.dataReceived(encode(Connect("a"), MQTT_5))
        self.assertTrue(any(work.queues))
        client.look()
        self.assertEqual(client.packets, [])
        client.takeOne(Connack)

    def test_filtersOfAPacketBeginInTurns(self) -> None:
        """Their retained messages are looked for, which takes time, after SUBACK is sent."""
        server, begun = Server(), list[int]()
        client = server.connected()
        begin = Subscriber.begin

        def counted(subscriber: Subscriber, opened: OpenedLog) -> None:
            begun.append(work.clock.turns)
            begin(subscriber, opened)

        self.patch(Subscriber, "begin", counted)
        work, names = server.budgets.work, [f"a/{number}" for number in range(200)]
        work.seconds = count(server.clock.seconds(), READS_AT_ONCE / 2).__next__
        client.protocol.dataReceived(
            encode(Subscribe(1, tuple(TopicSubscription(each, 0) for each in names)), MQTT_5)
        )
        for _ in range(30):
            server.pump()
        self.assertEqual(client.take(), [Suback(1, (0,) * 200)])
        self.assertEqual(len(begun), 200)
        self.assertLess(max(Counter(begun).values()), 100)
        for each in names:
            server.event(each, b"x")
        self.assertEqual(client.payloads(), [b"x"] * 200)

    def test_aSubscriptionBeginsWithoutALookAtOthers(self) -> None:
        """A session may have thousands, and begin as many with one packet."""
        server = Server()
        client = server.connected()
        client.subscribe("a")
        reader = client.protocol._link.connection.session.subscriptions["a"].reader

        class Members(dict[str, SessionSubscription]):
            def values(self) -> NoReturn:
                raise AssertionError("all are looked at")

        reader.members = Members(reader.members)
        reader.resume()

    def test_waitingPacketsWithoutRoomAreRefused(self) -> None:
        """Of many connections whose packets wait for a turn: handled in part, or not at all."""
        data = encode(Publish("t", bytes(50), 1, packetId=1), MQTT_5) * 1000
        for isBusy in (False, True):
            server = Server()
            server.event("t", b"")
            clients = [server.connected(f"c{number}") for number in range(5)]
            looks = count(server.clock.seconds(), WRITES_A_TURN / 2)
            work, budget = server.budgets.work, server.budgets.input
            work.seconds = looks.__next__
            if isBusy:
                work.lane().begin(True)
                work.charge(work.seconds())
                work.charge(work.seconds())
            budget.total = budget.own = 3 * len(data)
            for client in clients:
                client.protocol.dataReceived(data)
            self.assertTrue(len(data) < budget.used <= budget.total, budget.used)
            for client in clients[-2:]:
                self.assertEqual(client.reasonOfEnd(), ReasonCode.QUOTA_EXCEEDED)
            for client in clients:
                client.lose()
            self.assertEqual(budget.used, 0)

    def test_reconnectsLeaveNothing(self) -> None:
        """A client that comes and goes leaves nothing behind."""
        server = Server()
        for number in range(200):
            client = server.client((MQTT_311, MQTT_5)[number % 2])
            client.connect("loop")
            client.subscribe("t/#", 2)
            client.publish("t/x", b"x", 1)
            client.lose()
        self.assertEqual(len(server.carrier.sessions), 0)
        self.assertEqual(server.carrier.connections, 0)
        self.check(server)

    def test_unreadingClientCostsBoundedMemory(self) -> None:
        """One that never reads costs bounded memory, and harms nobody else."""
        server = Server()
        slow, fast = server.connected("slow"), server.connected("fast")
        slow.subscribe("t")
        fast.subscribe("t")
        assert slow.transport.producer is not None
        slow.transport.producer.pauseProducing()
        for _ in range(100):
            server.event("t", bytes(10_000))
        self.assertEqual(len(fast.payloads()), 100)
        self.assertLessEqual(len(slow.transport.value()), 300_000)

    def test_answersDuringDiskWritesAreBounded(self) -> None:
        """What is answered while the disk is waited for is bounded, and comes in order."""
        server = Server()
        client = server.connected(expiry=100)
        client.protocol.dataReceived(
            encode(Subscribe(1, (TopicSubscription("t", 2),)), MQTT_5)
            + encode(Publish("t", b"x", 2, packetId=9), MQTT_5) * 3
            + encode(Pingreq(), MQTT_5)
        )
        self.assertEqual(client.take()[0], Suback(1, (2,)))
        client.protocol.dataReceived(
            encode(Subscribe(2, (TopicSubscription("u", 2),)), MQTT_5)
            + encode(Pingreq(), MQTT_5) * 40_000
        )
        client.look()
        self.assertEqual(client.packets, [])
        self.assertEqual(client.transport.producerState, "paused")
        server.pump()
        self.assertEqual(client.transport.producerState, "producing")
        self.assertEqual(client.take()[0], Suback(2, (2,)))

    def test_deepFiltersMatch(self) -> None:
        """Topics of 128 levels and filters of as many wildcards are nothing special."""
        server = Server()
        client = server.connected()
        topic = "/".join("a" * 128)
        client.subscribe("/".join("+" * 128), 1)
        client.publish(topic, b"x", 1, retain=True)
        self.assertEqual(client.payloads(), [b"x"])
        client.subscribe("/".join("+" * 127) + "/#", 1, Properties())
        self.assertEqual(client.payloads(), [b"x"])
