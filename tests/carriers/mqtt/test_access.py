"""
Log-ins and grants over MQTT.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import Principal
from svcbroker.broker import REFUSAL_DELAY
from svcbroker.carriers.mqtt.codec import encode
from svcbroker.carriers.mqtt.context import MqttSettings
from svcbroker.carriers.mqtt.fields import Properties, ReasonCode
from svcbroker.carriers.mqtt.packets import (
    MQTT_5,
    MQTT_311,
    Connack,
    Connect,
    Disconnect,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Will,
)
from svcbroker.carriers.mqtt.retained import UNCONFIRMED_FOR
from svcbroker.interfaces import Action, Quotas

from ...access.support import FakeAuthenticator, account, fillTurn
from .support import Client, Server

NOT_AUTHORIZED = ReasonCode.NOT_AUTHORIZED


class AccessTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.accounts = FakeAuthenticator(
            account("ann", "publish 1 a/#", "open 1 a/#", "subscribe 1 a/#"),
            account("bob", "* 1 #", "* 2 #"),
            account("each", "publish 1 c/%c", "open 1 #", "subscribe 1 c/%c"),
            account("few", "* 1 #", quotas=Quotas(subscriptions=1, sessions=1, connections=1)),
            account("slow", "* 1 #", quotas=Quotas(publishes=1)),
            account("one", "* 1 #", quotas=Quotas(inflight=1)),
        )
        self.server = Server(authenticators=[self.accounts])

    def client(
        self, name: str, clientId: str = "client", version: int = MQTT_5, **fields: Any
    ) -> Client:
        """A client that has logged in."""
        return self.server.connected(
            clientId, version, userName=name, password=name.encode(), **fields
        )

    def refused(self, version: int, **fields: Any) -> int:
        """The reason of the CONNACK that refuses a CONNECT."""
        client = self.server.client(version)
        connack = client.connect(**fields)
        self.assertTrue(client.isClosed)
        return connack.reason


class LoginTests(AccessTestCase):
    def test_wrongCredentialsAreRefused(self) -> None:
        for version, reason in ((MQTT_311, 4), (MQTT_5, 0x86)):
            # Answers to many failures are delayed.
            self.server = Server(authenticators=[self.accounts])
            for name, password in (("ann", b"x"), ("nobody", b"nobody"), ("ann", None)):
                self.assertEqual(self.refused(version, userName=name, password=password), reason)

    def test_noCredentialsAreRefused(self) -> None:
        for version, reason in ((MQTT_311, 5), (MQTT_5, 0x87)):
            self.assertEqual(self.refused(version), reason)
            self.assertEqual(self.refused(version, userName="2/"), reason)

    def test_strangersDoNotLearnWhichGroupsThereAre(self) -> None:
        answers = [
            self.server.client(version).connect(userName=f"{group}/nobody", password=b"x")
            for version in (MQTT_311, MQTT_5)
            for group in ("1", "9")
        ]
        self.assertEqual(answers[0], answers[1])
        self.assertEqual(answers[2], answers[3])
        # Nor do accounts, of groups in which nothing is granted to them.
        for group in ("2", "9"):
            userName = f"{group}/ann"
            self.assertEqual(self.refused(MQTT_5, userName=userName, password=b"ann"), 0x87)
        self.accounts.identities["root"] = account("root", "publish * #")
        self.assertEqual(self.refused(MQTT_5, userName="9/root", password=b"root"), 0x86)

    def test_theGroupIsNotPartOfTheAccountsName(self) -> None:
        client = self.server.client()
        self.assertEqual(client.connect(userName="2/bob", password=b"bob").reason, 0)
        client.publish("x", qos=1)

    def test_packetsBehindCONNECTWaitForTheLogIn(self) -> None:
        client = self.server.client()
        client.connect(userName="ann", password=b"x")
        client.send(Publish("a/b", b"x", 1, False, False, 1))
        self.assertEqual(client.take(), [])

    def test_clientsMayWaitLongForTheirLogIn(self) -> None:
        """Such as behind an address from which passwords are guessed. They have sent CONNECT."""
        client = self.server.client()
        checking: Deferred[Any] = Deferred()
        self.patch(self.accounts, "requestAvatarId", lambda credentials: checking)
        connect = Connect(clientId="c", version=MQTT_5, userName="ann", password=b"ann")
        client.send(connect)
        self.server.clock.advance(60)
        self.assertFalse(client.isClosed)
        checking.callback(self.accounts.identities["ann"])
        self.server.pump()
        client.look()
        [connack] = client.packets
        assert isinstance(connack, Connack)
        self.assertEqual(connack.reason, 0)

    def test_packetsBeforeTheLogInWaitForTheirTurn(self) -> None:
        client = self.server.client()
        fillTurn(self.server.access)
        connect = Connect(clientId="c", version=MQTT_5, userName="ann", password=b"ann")
        client.protocol.dataReceived(encode(connect, MQTT_5))
        client.look()
        self.assertEqual(client.packets, [])
        self.assertIsInstance(client.takeOne(Connack), Connack)

    def test_accountsThatGoAreDisconnected(self) -> None:
        client = self.client("ann")
        del self.accounts.identities["ann"]
        self.successResultOf(self.server.access.reload())
        self.assertEqual(client.reasonOfEnd(), NOT_AUTHORIZED)

    def test_quotasOfConnectionsAndSessions(self) -> None:
        first = self.client("few", "1", cleanStart=False, expiry=100)
        again = {"clientId": "2", "expiry": 100, "userName": "few", "password": b"few"}
        self.assertEqual(self.refused(MQTT_5, **again), 0x97)
        first.disconnect()
        self.assertEqual(self.refused(MQTT_5, **again), 0x97)
        self.client("few", "1")


class PublishTests(AccessTestCase):
    def test_refusedPublishesOfMqtt5AreAnswered(self) -> None:
        client = self.client("ann")
        client.send(Publish("b", b"x", 1, False, False, 1))
        self.assertEqual(client.takeOne(Puback).reason, NOT_AUTHORIZED)
        client.send(Publish("b", b"x", 2, False, False, 2))
        self.assertEqual(client.takeOne(Pubrec).reason, NOT_AUTHORIZED)
        client.publish("a/b", qos=1)

    def test_refusedPublishesOf311EndTheConnection(self) -> None:
        """But those with QoS 0 are dropped."""
        for qos in (1, 2):
            client = self.client("ann", version=MQTT_311)
            client.publish("b", b"x")
            client.publish("a/b", b"y", qos=1)
            client.send(Publish("b", b"x", qos, False, False, 1))
            self.assertTrue(client.isClosed)
        self.assertIsNone(self.server.ledger.topicState("b"))

    def test_refusalsTellNothingOfRetainedMessages(self) -> None:
        """Also where there is no room for another one."""
        self.server = Server(MqttSettings(maxRetainedBytes=700), authenticators=[self.accounts])
        writer = self.client("bob", "writer")
        writer.publish("b", b"x", 1, retain=True)
        client = self.client("ann")
        for topic in ("b", "c"):
            client.send(Publish(topic, b"x", 1, True, False, 1))
            self.assertEqual(client.takeOne(Puback).reason, NOT_AUTHORIZED)

    def test_droppedPublishesAreRecorded(self) -> None:
        refusals: list[tuple[Any, ...]] = []
        self.patch(Principal, "recordRefusal", lambda self, *what: refusals.append(what))
        self.client("ann", version=MQTT_311).publish("b", b"x")
        self.assertEqual(refusals, [(Action.PUBLISH, "1", "b")])

    def test_clientsMayPublishToTheirOwnTopic(self) -> None:
        client = self.client("each", "me")
        client.publish("c/me", qos=1)
        client.send(Publish("c/you", b"x", 1, False, False, 1))
        self.assertEqual(client.takeOne(Puback).reason, NOT_AUTHORIZED)

    def test_ratesOfMqtt5AreRefused(self) -> None:
        client = self.client("slow")
        client.publish("a", qos=1)
        for number in (1, 2):
            packet = Publish("a", b"x", 1, False, False, number)
            client.protocol.dataReceived(encode(packet, MQTT_5))
        # What follows a refused publish waits, so that a flood costs little.
        client.look()
        [refusal] = client.packets
        assert isinstance(refusal, Puback)
        self.assertEqual(refusal.reason, ReasonCode.QUOTA_EXCEEDED)
        client.packets.clear()
        self.server.wait(REFUSAL_DELAY)
        self.assertEqual(client.takeOne(Puback).reason, ReasonCode.QUOTA_EXCEEDED)
        self.server.wait(1)
        client.publish("a", qos=1)

    def test_ratesOf311Wait(self) -> None:
        client = self.client("slow", version=MQTT_311)
        client.publish("a", qos=1)
        client.send(Publish("a", b"x", 1, False, False, 1))
        self.assertEqual(client.take(), [])
        self.server.wait(0.5)
        self.assertEqual(client.take(), [])
        self.server.wait(0.6)
        client.takeOne(Puback)

    def burst(self, client: Client, qos: int, *others: Any) -> None:
        """Send five messages, and packets behind them, in one piece."""
        client.protocol.dataReceived(
            b"".join(
                encode(packet, client.version)
                for packet in (
                    *(Publish("a", b"%d" % n, qos, False, False, n if qos else 0) for n in (1, 2)),
                    *(
                        Publish("b", b"%d" % n, qos, False, False, n if qos else 0)
                        for n in (3, 4, 5)
                    ),
                    *others,
                )
            )
        )

    def test_ratesOfMqtt5HoldWithinABurst(self) -> None:
        self.accounts.identities["slow"] = account("slow", "* 1 #", quotas=Quotas(publishes=3))
        client = self.client("slow")
        self.burst(client, 1)
        answers = {each.packetId: each.reason for each in client.take()}
        over = ReasonCode.QUOTA_EXCEEDED
        self.assertEqual({n: answers[n] for n in (4, 5)}, {4: over, 5: over})
        self.assertLess(max(answers[n] for n in (1, 2, 3)), 0x80)

    def test_burstsOf311WaitForTheRate(self) -> None:
        """No message is lost, and what is behind them waits too."""
        for qos in (0, 1, 2):
            name = f"burst{qos}"
            identity = account(name, "* 1 #", quotas=Quotas(publishes=3))
            self.accounts.identities[name] = identity
            reader = self.client("bob", f"reader{qos}")
            reader.subscribe("#")
            client = self.client(name, name, version=MQTT_311)
            self.burst(client, qos, Disconnect())
            self.assertEqual(reader.payloads(), [b"1", b"2", b"3"])
            self.assertFalse(client.isClosed)
            self.server.wait(1)
            self.assertEqual(reader.payloads(), [b"4", b"5"])
            self.assertTrue(client.isClosed)

    def test_ratesCountWhatWaitsForTheDisk(self) -> None:
        """3.1.1 waits, MQTT 5 is refused and then waits."""
        old = self.client("slow", version=MQTT_311, cleanStart=False)
        for number in (1, 2):
            packet = Publish("a", b"x", 2, False, False, number)
            old.protocol.dataReceived(encode(packet, MQTT_311))
        self.assertEqual(old.takeOne(Pubrec), Pubrec(1))
        self.server.wait(1.1)
        self.assertEqual(old.takeOne(Pubrec), Pubrec(2))
        new = self.client("slow", "new", expiry=100)
        for number in (1, 2, 3):
            packet = Publish("a", b"x", 2, False, False, number)
            new.protocol.dataReceived(encode(packet, MQTT_5))
        self.server.pump()
        self.assertEqual({each.reason for each in new.take()}, {ReasonCode.QUOTA_EXCEEDED})
        self.assertEqual(new.transport.producerState, "paused")
        self.server.wait(2)
        self.assertEqual(new.transport.producerState, "producing")
        new.publish("a", b"x", 2)

    def test_publishesOf311WaitForThoseInFlight(self) -> None:
        client = self.client("one", version=MQTT_311)
        client.publish("a", qos=1)
        self.server.ledger.isHolding = True
        client.send(Publish("a", b"x", 1, False, False, 1))
        client.send(Publish("a", b"x", 1, False, False, 2))
        self.server.wait(1)
        self.assertEqual(client.take(), [])
        self.server.ledger.isHolding = False
        self.server.ledger.release()
        self.server.wait(1)
        self.assertEqual(len(client.take()), 2)


class RetainedQuotaTests(AccessTestCase):
    """
    An account that may set two retained messages.
    """

    def setUp(self) -> None:
        super().setUp()
        quotas = Quotas(retained=2)
        self.accounts.identities["two"] = account(
            "two", "* 1 #", "deny publish 1 no", quotas=quotas
        )

    def retain(self, client: Client, topic: str, payload: bytes = b"x") -> int:
        """The reason with which a retained message is answered."""
        client.send(Publish(topic, payload, 1, retain=True, packetId=1))
        reason: int = client.takeOne(Puback).reason
        self.server.wait(REFUSAL_DELAY)
        return reason

    def test_furtherTopicsAreRefused(self) -> None:
        """Setting a message again, messages that are not retained and others' messages are not."""
        client, bob = self.client("two"), self.client("bob", "bob")
        for topic, reason in (("a", 0), ("b", 0), ("a", 0), ("c", 0x97), ("no", 0x87), ("b", 0)):
            self.assertEqual(self.retain(client, topic), reason, topic)
        client.publish("c", qos=1)
        self.assertEqual(self.retain(bob, "c"), 0)
        self.assertEqual(self.retain(client, "c"), 0x97)

    def test_topicsThatOthersSetMakeRoom(self) -> None:
        client, bob = self.client("two"), self.client("bob", "bob")
        for topic in "ab":
            self.retain(client, topic)
        self.assertEqual(self.retain(bob, "a"), 0)
        self.assertEqual(self.retain(client, "c"), 0)
        self.assertEqual(self.retain(client, "d"), 0x97)

    def test_removedMessagesMakeRoomAfterAWhile(self) -> None:
        client = self.client("two")
        for topic in "ab":
            self.retain(client, topic)
        self.retain(client, "a", b"")
        self.assertEqual(self.retain(client, "c"), 0x97)
        self.server.wait(UNCONFIRMED_FOR)
        self.assertEqual(self.retain(client, "c"), 0)
        self.assertEqual(self.retain(client, "d"), 0x97)

    def test_clockThatIsSetBackLetsThemMakeRoom(self) -> None:
        client = self.client("two")
        for topic in "ab":
            self.retain(client, topic)
        self.retain(client, "a", b"")
        self.assertEqual(self.retain(client, "c"), 0x97)
        self.server.clock.rightNow -= 1_000_000
        self.assertEqual(self.retain(client, "c"), 0)

    def test_countsSurviveARestart(self) -> None:
        client = self.client("two")
        for topic in "ab":
            self.retain(client, topic)
        self.server.wait(1)
        self.server.crash()
        self.server = Server(
            None, self.server.file, self.server.ledgers, self.server.clock, [self.accounts]
        )
        client = self.client("two")
        self.server.wait(UNCONFIRMED_FOR)
        self.assertEqual(self.retain(client, "c"), 0x97)
        self.assertEqual(self.retain(client, "b"), 0)

    def test_willsCountToo(self) -> None:
        self.client("two", will=Will("w", b"x", retain=True)).lose()
        client = self.client("two")
        self.assertEqual(self.retain(client, "a"), 0)
        self.assertEqual(self.retain(client, "b"), 0x97)


class WillTests(AccessTestCase):
    WILL = Will("a/will", b"gone")

    def test_willsAreCheckedWhenTheyAreAccepted(self) -> None:
        for version, reason in ((MQTT_311, 5), (MQTT_5, 0x87)):
            fields = {"userName": "ann", "password": b"ann", "will": Will("b", b"x")}
            self.assertEqual(self.refused(version, **fields), reason)

    def test_willsForReservedTopicsAreRefused(self) -> None:
        broker = self.server.broker
        broker.limits = evolve(broker.limits, reservedTopics=frozenset({"a/audit"}))
        fields = {"userName": "ann", "password": b"ann", "will": Will("a/audit", b"x")}
        self.assertEqual(self.refused(MQTT_5, **fields), 0x87)

    def test_willsAreCheckedWhenTheyArePublished(self) -> None:
        reader = self.client("bob", "reader")
        reader.subscribe("#")
        for identity, payloads in (
            (account("ann", "publish 1 a/#", "open 1 #"), [b"gone"]),
            (account("ann", "subscribe 1 a/#"), []),
        ):
            client = self.client("ann", will=self.WILL)
            self.accounts.identities["ann"] = identity
            self.successResultOf(self.server.access.reload())
            client.lose()
            self.assertEqual(reader.payloads(), payloads)

    def test_willsKeepTheirAccountThroughARestart(self) -> None:
        for accounts, isPublished in (
            (FakeAuthenticator(account("bob", "* 1 #")), False),
            (self.accounts, True),
        ):
            self.client("ann", will=self.WILL)
            self.server.crash()
            self.server = Server(
                None, self.server.file, self.server.ledgers, self.server.clock, [accounts]
            )
            state = self.server.ledger.topicState("a/will")
            self.assertIs(state is not None, isPublished)
            self.server.crash()
            self.server = Server(
                None, self.server.file, self.server.ledgers, self.server.clock, [self.accounts]
            )


class SubscribeTests(AccessTestCase):
    def test_subscriptionsThatAreNotGrantedAreRefused(self) -> None:
        for version, reason in ((MQTT_311, 0x80), (MQTT_5, 0x87)):
            client = self.client("ann", version=version)
            for filter in ("b", "b/#", "b/+/c", "$share/s/b"):
                self.assertEqual(client.subscribe(filter).reasons, (reason,), filter)
            self.assertEqual(client.subscribe("+/b").reasons, (0,))

    def test_patternsDeliverWhatIsGranted(self) -> None:
        client = self.client("ann")
        client.subscribe("#")
        self.server.event("a/b", b"1")
        self.server.event("b", b"2")
        self.assertEqual(client.payloads(), [b"1"])

    def test_retainedMessagesAreFiltered(self) -> None:
        writer = self.client("bob", "writer")
        writer.publish("a/b", b"1", 1, retain=True)
        writer.publish("b", b"2", 1, retain=True)
        client = self.client("ann")
        client.subscribe("#")
        self.assertEqual(client.payloads(), [b"1"])

    def test_clientIdsReachNoTopicsOfTheBroker(self) -> None:
        self.accounts.identities["own"] = account("own", "* 1 %c/#")
        for version, reason in ((MQTT_311, 0x80), (MQTT_5, 0x87)):
            client = self.client("own", "mine", version=version)
            for filter in ("$svc/audit", "$svc/#", "+/audit"):
                expected = 0 if filter == "+/audit" else reason
                self.assertEqual(client.subscribe(filter).reasons, (expected,))
            self.assertEqual(
                self.refused(version, clientId="$svc", userName="own", password=b"own"),
                5 if version == MQTT_311 else NOT_AUTHORIZED,
            )

    def test_sharedSubscriptionsBelongToAnAccount(self) -> None:
        ann, bob = self.client("ann", "1"), self.client("bob", "2")
        ann.subscribe("$share/s/#")
        bob.subscribe("$share/s/#")
        for number in range(4):
            self.server.event("a/b", b"%d" % number)
        self.server.event("b", b"b")
        self.assertEqual(ann.payloads(), [b"0", b"1", b"2", b"3"])
        self.assertEqual(bob.payloads(), [b"0", b"1", b"2", b"3", b"b"])

    def test_sharedSubscriptionsDependOnTheClient(self) -> None:
        one, two = self.client("each", "1"), self.client("each", "2")
        for client in (one, two):
            client.subscribe("$share/s/#", 1)
        for number in range(6):
            self.server.event(f"c/{number % 2 + 1}", b"%d" % (number % 2 + 1))
        self.assertEqual(set(one.payloads()), {b"1"})
        self.assertEqual(set(two.payloads()), set())

    def test_sharedMessagesOfAClientThatLeavesGoToThoseWhoMayReadThem(self) -> None:
        one, two = self.client("each", "1"), self.client("each", "2")
        for client in (one, two):
            client.subscribe("$share/s/#", 1)
        self.server.event("c/1", b"1")
        one.lose()
        self.assertEqual(two.payloads(), [])

    def test_messagesThatWaitAreDroppedWhenGrantsGo(self) -> None:
        """As are those that were sent and whose subscription has ended."""
        client = self.client(
            "bob", properties=Properties(receiveMaximum=1, sessionExpiryInterval=100)
        )
        client.subscribe("a", 1)
        client.subscribe("b", 1)
        for topic in ("a", "b"):
            self.server.event(topic, topic.encode())
        [first] = client.take()
        self.accounts.identities["bob"] = account("bob", "subscribe 1 c")
        self.successResultOf(self.server.access.reload())
        client.send(Puback(first.packetId))
        self.assertEqual(client.take(), [])

    def test_messagesOfEndedSubscriptionsAreNotSentAgainWhenGrantsGo(self) -> None:
        client = self.client("bob", expiry=100)
        client.subscribe("a", 1)
        self.server.event("a", b"x")
        self.assertEqual(client.takeOne(Publish).payload, b"x")
        client.unsubscribe("a")
        client.lose()
        self.accounts.identities["bob"] = account("bob", "subscribe 1 c")
        self.successResultOf(self.server.access.reload())
        again = self.client("bob", cleanStart=False, expiry=100)
        self.assertEqual(again.payloads(), [])

    def test_packetIdsOfWhatIsGrantedNoMoreAreNotUsedAgain(self) -> None:
        """
        Before PUBREL, the client would take the next message for a repetition. It comes where the
        subscription has ended; otherwise the message may be granted again.
        """
        for isEnded in (False, True):
            self.accounts.identities["bob"] = account("bob", "* 1 #")
            client = self.client("bob", expiry=100)
            client.subscribe("a", 2)
            self.server.event("a", b"x")
            sent = client.takeOne(Publish)
            if isEnded:
                client.unsubscribe("a")
            client.lose()
            self.accounts.identities["bob"] = account("bob", "subscribe 1 c")
            self.successResultOf(self.server.access.reload())
            again = self.client("bob", cleanStart=False, expiry=100)
            self.assertEqual(again.take(), [Pubrel(sent.packetId)] if isEnded else [])
            again.subscribe("c", 2)
            self.server.event("c", b"y")
            self.assertNotEqual(again.takeOne(Publish).packetId, sent.packetId)
            again.disconnect(properties=Properties(sessionExpiryInterval=0))

    def test_sessionsResumeWithoutWhatIsGrantedNoMore(self) -> None:
        self.accounts.identities["two"] = account("two", "subscribe 1 a", "subscribe 1 b")
        for filter in ("a", "$share/s/a"):
            client = self.client("two", filter, expiry=100)
            for each in (filter, "b"):
                self.assertEqual(client.subscribe(each, 1).reasons, (1,))
            client.disconnect()
        self.accounts.identities["two"] = account("two", "subscribe 1 b")
        self.successResultOf(self.server.access.reload())
        self.server.event("a", b"1")
        self.server.event("b", b"2")
        for filter in ("a", "$share/s/a"):
            again = self.client("two", filter, cleanStart=False, expiry=100)
            self.assertEqual(again.payloads(), [b"2"])
            self.assertEqual(again.subscribe(filter, 1).reasons, (NOT_AUTHORIZED,))
            again.disconnect()

    def test_newGrantsCountForOpenSubscriptions(self) -> None:
        client = self.client("ann")
        client.subscribe("#")
        self.accounts.identities["ann"] = account("ann", "subscribe 1 b")
        self.successResultOf(self.server.access.reload())
        self.server.event("a/b", b"1")
        self.server.event("b", b"2")
        self.assertEqual(client.payloads(), [b"2"])

    def test_quotasOfSubscriptions(self) -> None:
        client = self.client("few")
        self.assertEqual(client.subscribe("a").reasons, (0,))
        self.assertEqual(client.subscribe("b").reasons, (ReasonCode.QUOTA_EXCEEDED,))


class SessionTests(AccessTestCase):
    def test_aSessionBelongsToItsAccount(self) -> None:
        self.client("bob", "id", expiry=100).disconnect()
        self.assertEqual(self.refused(MQTT_5, clientId="id", userName="ann", password=b"ann"), 0x85)
        self.assertEqual(self.refused(MQTT_311, clientId="id", userName="ann", password=b"ann"), 2)

    def test_anotherAccountDisconnectsNobody(self) -> None:
        client = self.client("bob", "id")
        self.refused(MQTT_5, clientId="id", userName="ann", password=b"ann")
        self.assertFalse(client.isClosed)

    def test_aSessionKeepsItsAccountThroughARestart(self) -> None:
        self.client("bob", "id", expiry=100).disconnect()
        self.server.stop()
        self.server.crash()
        self.server = Server(
            None, self.server.file, self.server.ledgers, self.server.clock, [self.accounts]
        )
        self.assertEqual(self.refused(MQTT_5, clientId="id", userName="ann", password=b"ann"), 0x85)

    def test_anAccountNamedAsAnAddressHasSessionsOfItsOwn(self) -> None:
        """Others than the operator may choose names of accounts."""
        settings = MqttSettings(maxOwnSessions=1)
        server = Server(settings)
        client = server.connected("id", expiry=100)
        address = client.transport.getPeer().host
        client.disconnect()
        server.stop()
        server.crash()
        self.accounts.identities[address] = account(address, "* 1 #")
        self.server = Server(settings, server.file, server.ledgers, server.clock, [self.accounts])
        self.client(address, "other", expiry=100)

    def test_aSessionFromBeforeThereWereAccountsIsTakenOver(self) -> None:
        server = Server()
        client = server.connected("id", expiry=100)
        client.subscribe("#", 1)
        client.subscribe("$share/s/#", 1)
        client.disconnect()
        server.stop()
        server.crash()
        self.server = Server(None, server.file, server.ledgers, server.clock, [self.accounts])
        again = self.server.client()
        connack = again.connect(
            "id",
            cleanStart=False,
            userName="ann",
            password=b"ann",
            properties=Properties(sessionExpiryInterval=100),
        )
        self.assertEqual(connack, Connack(True, 0, connack.properties))
        self.server.event("a/b", b"1")
        self.server.event("b", b"2")
        self.assertEqual(again.payloads(), [b"1", b"1"])
        self.assertEqual(self.refused(MQTT_5, clientId="id", userName="bob", password=b"bob"), 0x85)
