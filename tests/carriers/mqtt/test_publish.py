"""
PUBLISH from clients: into the log, acknowledged when final.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.mqtt.context import MqttSettings
from svcbroker.carriers.mqtt.fields import Properties, ReasonCode
from svcbroker.carriers.mqtt.packets import (
    MQTT_5,
    MQTT_311,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from svcbroker.errors import LedgerUnavailable, Overloaded
from svcbroker.interfaces import submit
from svcbroker.model import CloseTopic, OpenTopic

from .support import Server

VERSIONS = (MQTT_311, MQTT_5)


class PublishTests(SynchronousTestCase):
    """
    The three levels of service.
    """

    def test_pubackFollowsFinality(self) -> None:
        """PUBACK comes when the event is final, and not before."""
        for version in VERSIONS:
            server = Server()
            client = server.connected(version=version)
            server.ledger.isHolding = True
            client.send(Publish("t", b"x", 1, packetId=7), Publish("t", b"y", 1, packetId=8))
            self.assertEqual(client.take(), [])
            server.ledger.release()
            self.assertEqual(client.take(), [Puback(7), Puback(8)])

    def test_publishesOfOneTurnAreOneSubmission(self) -> None:
        """Of all connections, where the reactor makes calls after its reads."""
        clock: Any = Clock()
        ends: list[Any] = []
        isHeld = False

        def endTurn() -> None:
            calls, ends[:] = list(ends), []
            for call in calls:
                call()

        clock.callAfterReads = lambda call: (
            ends.append(call) if isHeld else clock.callLater(0, call)
        )
        server = Server(clock=clock)
        clients = [
            server.connected(f"client {number}", version)
            for number, version in enumerate((MQTT_5, MQTT_5, MQTT_311))
        ]
        isHeld = True
        submitted: list[int] = []
        submitMany = server.ledger.submitMany

        def note(requests: Sequence[Any]) -> Any:
            submitted.append(len(requests))
            return submitMany(requests)

        self.patch(server.ledger, "submitMany", note)
        for number, client in enumerate(clients):
            client.send(Publish("t", b"%d" % number, 1 + number % 2, packetId=7))
        self.assertEqual(submitted, [])
        isHeld = False
        endTurn()
        # Each version opens the topic.
        self.assertEqual(submitted, [5])
        found = [client.take() for client in clients]
        self.assertEqual(found, [[Puback(7)], [Pubrec(7)], [Puback(7)]])
        self.assertEqual(server.published(), [b"0", b"1", b"2"])

    def test_pubrecFollowsFinality(self) -> None:
        """PUBREC comes when the event is final; it is not published again before PUBREL."""
        for version in VERSIONS:
            server = Server()
            client = server.connected(version=version)
            server.ledger.isHolding = True
            first = Publish("t", b"x", 2, packetId=7)
            again = Publish("t", b"x", 2, dup=True, packetId=7)
            client.send(first, again)
            self.assertEqual(client.take(), [])
            server.ledger.isHolding = False
            server.ledger.release()
            self.assertEqual(client.take(), [Pubrec(7)])
            client.send(again)
            self.assertEqual(client.take(), [Pubrec(7)])
            client.send(Pubrel(7))
            self.assertEqual(client.take(), [Pubcomp(7)])
            self.assertEqual(server.published(), [b"x"])
            client.send(first)
            self.assertEqual(client.take(), [Pubrec(7)])
            self.assertEqual(server.published(), [b"x", b"x"])

    def test_connectionCountsWhatIsPublished(self) -> None:
        """Of all levels of service, refused messages included."""
        server = Server()
        client = server.connected()
        [before] = server.carrier.clients()
        client.send(
            Publish("t", b"x"),
            Publish("$never", b"x", 1, packetId=7),
            Publish("t", b"y", 2, packetId=8),
        )
        [after] = server.carrier.clients()
        self.assertEqual((before.sent, after.sent), (0, 3))

    def test_packetIdIsFreeAfterPuback(self) -> None:
        """After PUBACK a packet identifier means a new message, DUP or not."""
        server = Server()
        client = server.connected()
        client.publish("t", b"a", 1, packetId=3)
        client.send(Publish("t", b"a", 1, dup=True, packetId=3))
        self.assertEqual(client.take(), [Puback(3)])
        self.assertEqual(server.published(), [b"a", b"a"])

    def test_blockIsAcknowledgedInOneWrite(self) -> None:
        """Acknowledgements of one block leave in one write."""
        server = Server()
        client = server.connected()
        client.publish("t")
        server.ledger.isHolding = True
        client.send(*(Publish("t", b"x", 1, packetId=n) for n in range(1, 101)))
        writes = client.transport.writes
        writes.clear()
        server.ledger.release()
        server.pump()
        self.assertEqual(len(writes), 1)
        self.assertEqual(len(writes[0]), 400)

    def test_publishOrderIsLogOrder(self) -> None:
        """What one client publishes stands in the log in its order, from the first one on."""
        server = Server()
        client = server.connected()
        server.ledger.isHolding = True
        client.send(*(Publish("new", b"%d" % n, n % 3, packetId=n + 1) for n in range(9)))
        server.ledger.release()
        self.assertIsInstance(server.ledger.submitted[0], OpenTopic)
        reader = server.connected("r")
        reader.subscribe(
            "new", properties=Properties(userProperties=(("svc-offset", "OFFSET_FIRST"),))
        )
        self.assertEqual(reader.payloads(), [b"%d" % n for n in range(9)])


class TopicTests(SynchronousTestCase):
    """
    Topics that are not open, or not possible.
    """

    def test_firstPublishOpensTopic(self) -> None:
        """The first publish opens its topic, later ones do not."""
        server = Server()
        client = server.connected()
        client.publish("t", qos=1)
        client.publish("t", qos=1)
        opened = [isinstance(each, OpenTopic) for each in server.ledger.submitted]
        self.assertEqual(opened, [True, False, False])
        self.assertEqual(server.published(), [b"hello", b"hello"])

    def test_closedTopicIsOpenedAgain(self) -> None:
        """A topic that somebody has closed is opened again."""
        server = Server()
        client = server.connected()
        client.publish("t", qos=1)
        submit(server.ledger, CloseTopic(topic="t"))
        client.publish("t", b"again", qos=1)
        self.assertEqual(server.published(), [b"hello", b"again"])

    def test_topicClosedMeanwhileIsOpenedAgain(self) -> None:
        """A topic that is closed while a publish waits is opened again for it."""
        server = Server()
        client = server.connected()
        client.publish("t", qos=1)
        server.ledger.isHolding = True
        submit(server.ledger, CloseTopic(topic="t"))
        client.send(Publish("t", b"again", 1, packetId=1))
        server.ledger.isHolding = False
        server.ledger.release()
        self.assertEqual(client.take(), [Puback(1)])
        self.assertEqual(server.published(), [b"hello", b"again", b"again"])

    def test_topicsAreNotOpenedIfForbidden(self) -> None:
        """Where the operator does not want it, nothing is opened."""
        server = Server(MqttSettings(openTopics=False))
        client = server.connected()
        client.send(Publish("t", b"x", 1, packetId=1), Publish("t", b"x", 2, packetId=2))
        puback, pubrec = client.take()
        self.assertEqual(puback.reason, ReasonCode.TOPIC_NAME_INVALID)
        self.assertEqual(puback.properties.reasonString, "topic does not exist")
        self.assertEqual(pubrec.reason, ReasonCode.TOPIC_NAME_INVALID)
        self.assertEqual(server.ledger.submitted, [])
        old = server.connected("old", MQTT_311)
        old.send(Publish("t", b"x", 1, packetId=1))
        self.assertTrue(old.isClosed)
        submit(server.ledger, OpenTopic(topic="t"))
        client.publish("t", qos=1)
        submit(server.ledger, CloseTopic(topic="t"))
        client.send(Publish("t", b"x", 1, packetId=1))
        self.assertEqual(client.takeOne(Puback).reason, ReasonCode.TOPIC_NAME_INVALID)


class RefusalTests(SynchronousTestCase):
    """
    What the ledger refuses.
    """

    def test_ledgerErrorsAreTold(self) -> None:
        """A MQTT 5 client is told, a 3.1.1 client is disconnected."""
        for error, reason in (
            (Overloaded(), ReasonCode.QUOTA_EXCEEDED),
            (LedgerUnavailable(), ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR),
        ):
            server = Server()
            new, old = server.connected("a"), server.connected("b", MQTT_311)
            server.ledger.error = error
            new.send(Publish("t", b"x", 1, packetId=1), Publish("t", b"x", 2, packetId=2))
            self.assertEqual([each.reason for each in new.take()], [reason, reason])
            old.send(Publish("t", b"x", 1, packetId=1))
            self.assertTrue(old.isClosed)
            server.ledger.error = None
            new.publish("t", b"x", 2, packetId=2)
            self.assertEqual(server.published(), [b"x"])

    def test_refusalsDoNotOvertakeAcknowledgements(self) -> None:
        """Those of messages in earlier reads."""
        server = Server(MqttSettings(maxContent=1))
        client = server.connected()
        client.publish("t", b"x")
        server.ledger.isHolding = True
        for number, content in enumerate((b"x", b"xx", b"x"), 1):
            client.send(Publish("t", content, 1, packetId=number))
        self.assertEqual(client.take(), [])
        server.ledger.release()
        refused = ReasonCode.QUOTA_EXCEEDED
        answers = [(each.packetId, each.reason) for each in client.take()]
        self.assertEqual(answers, [(1, 0), (2, refused), (3, 0)])

    def test_unexpectedErrorIsLogged(self) -> None:
        """What nobody thought of is logged, and the client is told of an error."""
        server = Server()
        client = server.connected()
        client.publish("t")
        server.ledger.error = ZeroDivisionError()
        client.send(Publish("t", b"x", 1, packetId=1))
        self.assertEqual(client.takeOne(Puback).reason, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_reasonStringIsOnlySentIfWanted(self) -> None:
        """Who does not want reason strings gets none; who cannot take them neither."""
        server = Server(MqttSettings(openTopics=False))
        for properties in (
            Properties(requestProblemInformation=0),
            Properties(maximumPacketSize=20),
        ):
            client = server.connected(properties=properties)
            client.packets.clear()
            client.send(Publish("t", b"x", 1, packetId=1))
            self.assertEqual(client.take(), [Puback(1, ReasonCode.TOPIC_NAME_INVALID)])


class FlowTests(SynchronousTestCase):
    """
    How much may be on its way.
    """

    def test_exceedingReceiveMaximumEndsConnection(self) -> None:
        """A MQTT 5 client must not exceed Receive Maximum."""
        for qos in (1, 2):
            server = Server(MqttSettings(receiveMaximum=2))
            client = server.connected()
            server.ledger.isHolding = True
            client.send(*(Publish("t", b"x", qos, packetId=n) for n in (1, 2)))
            self.assertFalse(client.isClosed)
            client.send(Publish("t", b"x", qos, packetId=3))
            self.assertEqual(client.reasonOfEnd(), ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)

    def test_qos2CountsUntilPubcomp(self) -> None:
        """A publish with QoS 2 counts until its PUBCOMP."""
        server = Server(MqttSettings(receiveMaximum=2))
        client = server.connected()
        client.send(*(Publish("t", b"x", 2, packetId=n) for n in (1, 2)))
        client.send(Pubrel(1))
        client.send(Publish("t", b"x", 2, packetId=3))
        self.assertFalse(client.isClosed)
        client.send(Publish("t", b"x", 1, packetId=4))
        self.assertEqual(client.reasonOfEnd(), ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)

    def test_busyClientIsPaused(self) -> None:
        """A client with too much on its way is not read from until there is less."""
        for version, qos in ((MQTT_311, 1), (MQTT_311, 2), (MQTT_311, 0), (MQTT_5, 0)):
            server = Server(MqttSettings(receiveMaximum=4))
            client = server.connected(version=version)
            client.publish("t")
            server.ledger.isHolding = True
            client.send(*(Publish("t", b"x", qos, packetId=n * (qos > 0)) for n in range(1, 7)))
            self.assertEqual(client.transport.producerState, "paused")
            server.ledger.release()
            server.pump()
            self.assertEqual(client.transport.producerState, "producing")
            self.assertFalse(client.isClosed)

    def test_lostConnectionsPublishesArrive(self) -> None:
        """What is on its way when the connection breaks gets there."""
        server = Server()
        client = server.connected(expiry=100)
        server.ledger.isHolding = True
        client.send(Publish("t", b"x", 2, packetId=7), Publish("t", b"y", 1, packetId=8))
        client.lose()
        server.ledger.isHolding = False
        server.ledger.release()
        client = server.connected(cleanStart=False, expiry=100)
        client.send(Publish("t", b"x", 2, dup=True, packetId=7))
        self.assertEqual(client.take(), [Pubrec(7)])
        self.assertEqual(server.published(), [b"x", b"y"])
