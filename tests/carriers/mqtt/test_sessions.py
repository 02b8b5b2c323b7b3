"""
Sessions that outlive their connections, and restarts.
"""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.mqtt.context import MqttSettings
from svcbroker.carriers.mqtt.fields import Properties
from svcbroker.carriers.mqtt.packets import (
    MQTT_5,
    MQTT_311,
    Puback,
    Publish,
    Pubrel,
    Suback,
    Subscribe,
    TopicSubscription,
    Will,
)
from svcbroker.interfaces import submit
from svcbroker.model import Edge, PublishEvent
from svcbroker.net.budgets import WRITES_A_TURN

from .support import Client, Server

VERSIONS = (MQTT_311, MQTT_5)


def lasting(server: Server, clientId: str = "client", version: int = MQTT_5) -> Client:
    """A client with a session that lasts, resumed if it is there."""
    client = server.client(version)
    fields = {"expiry": 1000} if version == MQTT_5 else {}
    client.connack = client.connect(clientId, cleanStart=False, **fields)  # type: ignore[attr-defined]
    return client


def isPresent(client: Client) -> bool:
    """Whether the session was there."""
    present: bool = client.connack.sessionPresent  # type: ignore[attr-defined]
    return present


class ResumeTests(SynchronousTestCase):
    """
    A client that comes back.
    """

    def test_sessionWithoutExpiryEnds(self) -> None:
        """Without expiry a session ends with its connection."""
        server = Server()
        client = server.connected(cleanStart=False)
        client.subscribe("t", 1)
        client.lose()
        self.assertEqual(len(server.carrier.sessions), 0)
        self.assertFalse(server.client().connect(cleanStart=False).sessionPresent)
        self.assertEqual(server.file.kept, {})

    def test_clientIsReadFromAfterSeveralSubscribesInOneRead(self) -> None:
        """Each waits for the disk."""
        server = Server()
        client = lasting(server)
        client.send(*(Subscribe(n, (TopicSubscription(f"t{n}", 1),)) for n in (1, 2, 3)))
        self.assertEqual([each.packetId for each in client.take()], [1, 2, 3])
        self.assertEqual(client.transport.producerState, "producing")

    def test_sessionExpiresAcrossRestart(self) -> None:
        """A session ends when its interval is over, also through a restart."""
        server = Server()
        for isRestarted in (False, True):
            client = lasting(server)
            client.subscribe("t", 1)
            client.disconnect()
            server.wait(500)
            if isRestarted:
                server = server.restarted()
            server.wait(499)
            self.assertEqual(len(server.carrier.sessions), 1)
            server.wait(2)
            self.assertEqual(len(server.carrier.sessions), 0)
            self.assertEqual(server.file.kept.keys() & {("mqtt-session", '["1","client"]')}, set())
            client = lasting(server)
            self.assertFalse(isPresent(client))
            client.disconnect(properties=Properties(sessionExpiryInterval=0))
            self.assertEqual(len(server.carrier.sessions), 0)

    def test_sessionMayNeverExpire(self) -> None:
        """The largest interval, and 3.1.1 without Clean Session, never expire."""
        server = Server()
        server.connected("a", expiry=0xFFFFFFFF).lose()
        server.connected("b", MQTT_311, cleanStart=False).lose()
        server.wait(10**9)
        self.assertEqual(len(server.carrier.sessions), 2)

    def test_sessionsOfOneMomentEndInTurns(self) -> None:
        """Each end is a unit of work; so are wills that are due, and keep-alives that are over."""
        for end in ("expiry", "will", "keep-alive"):
            server = Server()
            work = server.budgets.work
            for number in range(20):
                will = Will(f"w/{number}", b"x", properties=Properties(willDelayInterval=100))
                client = server.connected(
                    f"c{number}",
                    expiry=1000 if end == "will" else 100,
                    keepAlive=60 if end == "keep-alive" else 0,
                    will=will if end == "will" else None,
                )
                client.subscribe("t", 1)
                if end != "keep-alive":
                    client.lose()
            waits: list[object] = []
            wait = work.wait

            def waited(*given: Any, wait: Any = wait, waits: Any = waits, **named: Any) -> None:
                waits.append(given)
                wait(*given, **named)

            self.patch(work, "wait", waited)
            # Each look at the clock takes time.
            work.seconds = count(0, WRITES_A_TURN / 2).__next__
            server.wait(300)
            self.assertGreater(len(waits), 5, end)
            # What was silent has a session until now.
            server.wait(101)
            self.assertEqual(len(server.carrier.sessions), 20 if end == "will" else 0, end)
            if end == "will":
                wills = server.carrier.sessions.wills
                self.assertEqual((len(wills._waiting), len(wills._publishing)), (0, 0))
                topics = {each.topic for each in server.ledger.submitted}
                self.assertEqual(topics, {f"w/{number}" for number in range(20)})

    def test_expiryIsCapped(self) -> None:
        """The operator can bound the interval; the client is told."""
        server = Server(MqttSettings(maxSessionExpiry=60))
        client = server.client()
        self.assertEqual(client.connect(expiry=100).properties.sessionExpiryInterval, 60)
        client.lose()
        server.wait(61)
        self.assertEqual(len(server.carrier.sessions), 0)

    def test_lowerCapHoldsForStoredSessions(self) -> None:
        """A session from before the bound ends by it, and its positions with it."""
        server = Server()
        client = server.connected(expiry=0xFFFFFFFF)
        client.subscribe("t", 1)
        client.lose()
        server.pump()
        server = server.restarted(MqttSettings(maxSessionExpiry=60))
        self.assertEqual(len(server.carrier.sessions), 1)
        server.wait(61)
        self.assertEqual(len(server.carrier.sessions), 0)
        self.assertEqual([key for key in server.file.kept if key[0] == "position"], [])

    def test_sessionsOfOneOwnerAreBounded(self) -> None:
        """Those that outlive connections, also after a restart; the error says what helps."""
        settings = MqttSettings(maxOwnSessions=2)
        server = Server(settings)
        first = server.connected("a", expiry=1000)
        server.connected("b", expiry=1000).lose()
        for _ in range(2):
            client = server.client()
            connack = client.connect("c", expiry=1000)
            self.assertEqual(connack.reason, 0x97)
            self.assertIn("has made 2 sessions", connack.properties.reasonString)
            self.assertIn("svcbroker admin subscription", connack.properties.reasonString)
            server.connected("d", expiry=0).lose()
            first.lose()
            server.connected("a", cleanStart=False, expiry=1000).lose()
            server.pump()
            server = server.restarted(settings)
        server.wait(1001)
        for name in "cd":
            server.connected(name, expiry=1000).lose()

    def test_sentMessageIsRepeatedThoughExpired(self) -> None:
        """What was sent once is sent again, expired or not."""
        server = Server()
        client = lasting(server)
        client.subscribe("t", 2)
        expiring = Properties(messageExpiryInterval=3)
        server.connected("p").publish("t", b"x", 2, properties=expiring)
        client.take()
        client.lose()
        server.wait(10)
        (message,) = lasting(server).takeMessages()
        self.assertTrue(message.dup)

    def test_unsubscribedInFlightIsCompleted(self) -> None:
        """What was sent before UNSUBSCRIBE is completed, also over the next connection."""
        server = Server()
        client = lasting(server)
        client.subscribe("t", 1)
        server.event("t", b"x")
        client.take()
        client.unsubscribe("t")
        client.lose()
        (message,) = lasting(server).takeMessages()
        self.assertEqual((message.payload, message.dup), (b"x", True))
        server.event("t", b"y")

    def test_qos2ThatIsNotSentAgainIsReleased(self) -> None:
        """
        Else the client would take the next message with its packet identifier for a repetition.
        """
        small = Properties(sessionExpiryInterval=1000, maximumPacketSize=60)
        for isReset, properties in ((True, Properties(sessionExpiryInterval=1000)), (False, small)):
            with self.subTest(isReset=isReset):
                server = Server()
                client = lasting(server)
                client.subscribe("t", 2)
                server.event("t", b"x" * 60)
                message = client.takeOne(Publish)
                client.lose()
                if isReset:
                    server.carrier.sessions.resetDurable("1", "client", Edge.LAST, None)
                    server.pump()
                    server = server.restarted()
                client = server.connected(cleanStart=False, properties=properties)
                self.assertEqual(client.takeOne(Pubrel).packetId, message.packetId)
                server.event("t", b"y")
                self.assertNotEqual(client.takeOne(Publish).packetId, message.packetId)

    def test_qos2ThatIsSentAgainWithLessIsReleased(self) -> None:
        server = Server()
        client = lasting(server)
        client.subscribe("t", 2)
        server.event("t", b"x")
        first = client.takeOne(Publish)
        client.subscribe("t", 1)
        client.lose()
        client = lasting(server)
        [released, again] = client.take()
        self.assertEqual(released.packetId, first.packetId)
        self.assertEqual((again.payload, again.qos), (b"x", 1))
        self.assertNotEqual(again.packetId, first.packetId)

    def test_sessionSurvivesRestart(self) -> None:
        """A session survives the end of the broker, with all that it is owed."""
        for version in VERSIONS:
            server = Server()
            client = lasting(server, version=version)
            client.subscribe("a", 1)
            client.subscribe("b/+", 2)
            for topic, content in (("a", b"1"), ("b/1", b"2"), ("c", b"no"), ("a", b"3")):
                server.event(topic, content)
            first, second, _ = client.take()
            assert isinstance(first, Publish) and isinstance(second, Publish)
            client.send(Puback(first.packetId))
            server.wait(1)
            server = server.restarted()
            server.event("b/2", b"4")
            client = lasting(server, version=version)
            self.assertTrue(isPresent(client))
            messages = client.takeMessages()
            self.assertEqual(sorted(each.payload for each in messages), [b"2", b"3", b"4"])
            # Exactly once needs the identifier.
            (again,) = [each for each in messages if each.payload == b"2"]
            self.assertEqual((again.dup, again.packetId), (True, second.packetId))

    def test_packetIdsOfQos1SurviveRestart(self) -> None:
        """
        [MQTT-4.4.0-1] Unacknowledged messages come again after a crash in their order, with their
        packet identifiers and DUP; other identifiers are free.
        """
        for version in VERSIONS:
            server = Server()
            client = lasting(server, version=version)
            client.subscribe("a/#", 1)
            client.subscribe("b", 2)
            for number in range(200):
                server.event(f"a/{number % 3}", b"%d" % number)
            server.event("b", b"once")
            sent = [each for each in client.take() if isinstance(each, Publish)]
            self.assertEqual(len(sent), 201)
            client.send(*(Puback(each.packetId) for each in sent[:190] if each.qos == 1))
            server.wait(1)
            server = server.restarted()
            server.event("a/0", b"new")
            client = lasting(server, version=version)
            first = [each for each in client.take() if isinstance(each, Publish)]
            fields = [(each.packetId, each.payload, each.dup) for each in first if each.qos == 1]
            expected = [(each.packetId, each.payload, True) for each in sent[190:200]]
            self.assertEqual(fields, [*expected, (fields[-1][0], b"new", False)])
            self.assertEqual(len({each.packetId for each in first}), 12)
            self.assertEqual([each.dup for each in first if each.qos == 2], [True])
            # Acknowledged now: nothing comes again, whether or not a page was removed.
            client.send(*(Puback(each.packetId) for each in first if each.qos == 1))
            server.wait(1)
            server = server.restarted()
            again = lasting(server, version=version).takeMessages()
            self.assertEqual([each.payload for each in again], [b"once"])

    def test_packetIdsCostWhatIsSent(self) -> None:
        """
        Packet identifiers are stored once a write, for messages that are unacknowledged then; an
        acknowledgement stores nothing, and the end of the connection removes what is left.
        """
        server = Server()
        client = lasting(server)
        kind = "mqtt-packet-ids"
        client.subscribe("t", 1)
        server.event("t", b"acknowledged")
        self.assertEqual(client.payloads(), [b"acknowledged"])
        server.wait(1)
        writes = self.patchWrites(server)
        for _ in range(150):
            submit(server.ledger, PublishEvent(topic="t", content=b"x"))
        server.pump()
        messages = [each for each in client.take() if isinstance(each, Publish)]
        server.wait(1)
        pages = [key for changes in writes for key in changes if key[0] == kind]
        self.assertEqual([name for _, name in pages], [f'["1","client",{n}]' for n in range(3)])
        writes.clear()
        client.send(*(Puback(each.packetId) for each in messages[:-1]))
        server.wait(1)
        self.assertEqual([key for changes in writes for key in changes if key[0] == kind], [])
        client.lose()
        server.wait(1)
        self.assertEqual(
            [name for each, name in server.file.kept if each == kind], ['["1","client",2]']
        )

    def test_grantedSubscriptionMissesNothing(self) -> None:
        """A subscription that was granted misses nothing, whatever happens then."""
        server = Server()
        client = lasting(server)
        client.subscribe("t", 1)
        server = server.restarted()
        server.event("t", b"x")
        self.assertEqual(lasting(server).payloads(), [b"x"])

    def test_qos0SubscriptionCatchesUp(self) -> None:
        """A session with QoS 0 gets what came meanwhile too: the log has it anyway."""
        server = Server()
        client = lasting(server)
        client.subscribe("t", 0)
        server.event("t", b"1")
        self.assertEqual(client.payloads(), [b"1"])
        client.lose()
        server.event("t", b"2")
        self.assertEqual(lasting(server).payloads(), [b"2"])

    def test_sessionOfRemovedGroupIsSkipped(self) -> None:
        """A session of a group that is no longer served does no harm."""
        server = Server()
        server.connected("a", userName="2/x", expiry=100).lose()
        server.wait(1)
        del server.ledgers["2"]
        server = server.restarted()
        self.assertEqual(len(server.carrier.sessions), 0)

    def test_sessionOfOlderFormKeepsItsSubscriptions(self) -> None:
        """Sessions once held all their subscriptions in one entry; they are read and continued."""
        server = Server()
        client = lasting(server)
        client.subscribe("t/#", 1)
        client.disconnect()
        server.wait(1)
        kept = server.file.kept
        [name] = [each for kind, each in kept if kind == "mqtt-subscription"]
        session = json.loads(kept["mqtt-session", '["1","client"]'])
        session["subscriptions"] = [json.loads(kept.pop(("mqtt-subscription", name)))]
        kept["mqtt-session", '["1","client"]'] = json.dumps(session).encode()
        server = server.restarted()
        server.wait(1)
        self.assertIn(("mqtt-subscription", name), server.file.kept)
        self.assertEqual(
            json.loads(server.file.kept["mqtt-session", '["1","client"]'])["subscriptions"], []
        )
        server.event("t/1", b"later")
        server = server.restarted()
        client = lasting(server)
        self.assertTrue(isPresent(client))
        self.assertEqual([each.payload for each in client.takeMessages()], [b"later"])

    def test_changeCostsWhatItChanges(self) -> None:
        """A change of one subscription writes that one; a change of none writes nothing."""
        server = Server()
        client = lasting(server)
        for number in range(20):
            client.subscribe(f"t/{number}", 1)
        writes = self.patchWrites(server)
        client.subscribe("t/7", 0)
        client.unsubscribe("t/8")
        client.unsubscribe("nothing")
        server.wait(1)
        written = [key for changes in writes for key in changes if key[0].startswith("mqtt")]
        self.assertEqual(
            sorted(written),
            [("mqtt-subscription", f'["1","client","t/{number}"]') for number in (7, 8)],
        )
        client.lose()
        server = server.restarted()
        session = server.carrier.sessions.find("1", "client")
        assert session is not None
        self.assertEqual(len(session.subscriptions), 19)

    def patchWrites(self, server: Server) -> list[dict[tuple[str, str], bytes | None]]:
        """What is written to the disk from now on."""
        writes: list[dict[tuple[str, str], bytes | None]] = []
        write = server.file.write

        def record(changes: dict[tuple[str, str], bytes | None]) -> None:
            writes.append(dict(changes))
            write(changes)

        self.patch(server.file, "write", record)
        return writes

    def test_endedSessionLeavesNothing(self) -> None:
        """An ended session leaves nothing on the disk."""
        server = Server()
        client = lasting(server)
        client.subscribe("t", 2)
        client.subscribe("$share/g/t", 2)
        server.event("t", b"x")
        client.publish("t", b"y", 2)
        client.take()
        client.disconnect(properties=Properties(sessionExpiryInterval=0))
        server.wait(1)
        self.assertEqual(server.file.kept, {})


class ShareTests(SynchronousTestCase):
    """
    Shared subscriptions.
    """

    def members(self, server: Server, *names: str, qos: int = 1) -> list[Client]:
        """Clients that share."""
        clients = [lasting(server, name) for name in names]
        for client in clients:
            client.subscribe("$share/g/t/#", qos)
        return clients

    def test_membersTakeTurns(self) -> None:
        """Each message goes to one member, in turn; other subscriptions are apart."""
        server = Server()
        one, two = self.members(server, "a", "b")
        other = server.connected("c")
        other.subscribe("$share/h/t/#")
        two.subscribe("t/1")
        for number in range(6):
            server.event(f"t/{number}", b"%d" % number)
        first, second = one.payloads(), two.payloads()
        self.assertEqual(len(first), 3)
        self.assertEqual(sorted(first + second), [b"0", b"1", b"1", b"2", b"3", b"4", b"5"])
        self.assertEqual(len(other.payloads()), 6)

    def test_manyMembersJoinAtOnce(self) -> None:
        """Those that come while the first one's subscription is made wait for it."""
        server = Server()
        clients = [lasting(server, str(number)) for number in range(200)]
        begun: Deferred[None] = Deferred()
        subscribe = server.subscriptions.subscribe

        def slow(*args: Any) -> Deferred[Any]:
            return begun.addCallback(lambda _: subscribe(*args))

        self.patch(server.subscriptions, "subscribe", slow)
        for client in clients:
            client.send(Subscribe(1, (TopicSubscription("$share/g/t", 1),)))
        begun.callback(None)
        server.pump()
        for client in clients:
            self.assertEqual(client.takeOne(Suback).reasons, (1,))

    def test_fullMemberIsPassedOver(self) -> None:
        """Who cannot take more is passed over; what nobody can take waits in the log."""
        server = Server(MqttSettings(sendMaximum=2))
        one, two = self.members(server, "a", "b")
        for number in range(10):
            server.event("t", b"%d" % number)
        slow = [each for each in one.take() if isinstance(each, Publish)]
        self.assertEqual(len(slow), 2)
        fast = two.payloads()
        self.assertEqual(len(fast), 8)
        self.assertEqual(
            sorted([*fast, *(each.payload for each in slow)]), [b"%d" % n for n in range(10)]
        )

    def test_messagesOfLeavingClientGoToOthers(self) -> None:
        """What a member did not acknowledge goes to another when it leaves."""
        server = Server()
        one, two = self.members(server, "a", "b")
        server.event("t", b"1")
        server.event("t", b"2")
        one.take()
        one.lose()
        self.assertEqual(sorted(two.payloads()), [b"1", b"2"])
        self.assertEqual(lasting(server, "a").take(), [])

    def test_qos2StaysWithItsSession(self) -> None:
        """What was sent with QoS 2 stays with its session."""
        server = Server()
        one, two = self.members(server, "a", "b", qos=2)
        server.event("t", b"1")
        message = one.takeOne(Publish)
        one.lose()
        self.assertEqual(two.take(), [])
        (again,) = lasting(server, "a").takeMessages()
        self.assertEqual((again.packetId, again.dup), (message.packetId, True))

    def test_qos2EndsWithItsSession(self) -> None:
        """If that session ends, nobody gets it."""
        server = Server()
        one, two = self.members(server, "a", "b", qos=2)
        server.event("t", b"1")
        one.take()
        one.disconnect(properties=Properties(sessionExpiryInterval=0))
        self.assertEqual(two.take(), [])
        two.lose()
        self.assertEqual(lasting(server, "b").take(), [])

    def test_messagesWaitForAbsentMembers(self) -> None:
        """What is published while all are absent waits, also through a restart."""
        server = Server()
        for client in self.members(server, "a", "b"):
            client.lose()
        server.event("t", b"1")
        server = server.restarted()
        server.event("t", b"2")
        self.assertEqual(lasting(server, "b").payloads(), [b"1", b"2"])
        self.assertEqual(lasting(server, "a").payloads(), [])

    def test_emptyShareBeginsAnew(self) -> None:
        """When the last session is gone, the share begins anew."""
        server = Server()
        (client,) = self.members(server, "a")
        client.unsubscribe("$share/g/t/#")
        client.take()
        server.event("t", b"missed")
        client.subscribe("$share/g/t/#", 1)
        server.event("t", b"seen")
        self.assertEqual(client.payloads(), [b"seen"])

    def test_refusedIsNotOfferedToOthers(self) -> None:
        """A member with its own granted QoS; a refusal is not offered to others."""
        server = Server()
        one, two = self.members(server, "a", "b")
        server.event("t", b"x")
        message = one.takeOne(Publish)
        one.send(Puback(message.packetId, 0x80))
        one.lose()
        self.assertEqual(two.take(), [])
