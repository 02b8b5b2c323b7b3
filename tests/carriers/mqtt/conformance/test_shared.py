"""
Shared subscriptions: section 4.8.2 of MQTT 5.
"""

from __future__ import annotations

from .client import Closed, MqttClient
from .packets import PUBACK, PUBLISH, PUBREC, PUBREL, SUBACK, V5, Packet, ack, subscribe
from .support import MqttTestCase


class SharedTests(MqttTestCase):
    """
    Version 5; in 3.1.1 they are no part of the specification.
    """

    version = V5

    def share(self, name: str = "a", group: str = "g") -> str:
        """A shared filter. The group is of this test alone."""
        return f"$share/{group}-{self.id_()}/{self.topic(name)}"

    def members(self, count: int, qos: int = 1, name: str = "a") -> list[MqttClient]:
        """Clients with the same shared subscription."""
        clients = [self.client() for _ in range(count)]
        for client in clients:
            self.assertEqual(client.subscribe(self.share(name), qos=qos).codes, (qos,))
        return clients

    def publish(self, *texts: object, qos: int = 1, name: str = "a") -> None:
        """Publish these."""
        publisher = self.client()
        for text in texts:
            publisher.publish(self.topic(name), str(text).encode(), qos)
        publisher.ping()

    @staticmethod
    def gathered(clients: list[MqttClient]) -> list[list[Packet]]:
        """What has come to each, acknowledged."""
        got = []
        for client in clients:
            packets = client.settle()
            for packet in packets:
                client.complete(packet)
            got.append(packets)
        return got

    def test_membersShareTheMessages(self) -> None:
        """Section 4.8.2: each message goes to one member, and all of them share the work."""
        clients = self.members(3)
        self.publish(*range(30))
        got = self.gathered(clients)
        numbers = [int(each.payload) for packets in got for each in packets]
        self.assertEqual(sorted(numbers), list(range(30)))
        self.assertTrue(all(got), [len(each) for each in got])

    def test_memberGetsMessagesInOrder(self) -> None:
        """[MQTT5-4.6.0-6] Each member gets its part in order."""
        clients = self.members(2)
        self.publish(*range(40))
        for packets in self.gathered(clients):
            numbers = [int(each.payload) for each in packets]
            self.assertEqual(numbers, sorted(numbers))

    def test_soleMemberGetsAll(self) -> None:
        """Section 4.8.2: one member gets all."""
        (client,) = self.members(1)
        self.publish(*range(10))
        numbers = [int(each.payload) for each in client.messages(10)]
        self.assertEqual(numbers, list(range(10)))
        self.assertNothing(client)

    def test_shareFilterMayHaveWildcards(self) -> None:
        """Section 4.8.2: what stands behind the share name is a filter like any other."""
        clients = self.members(2, name="+/x/#")
        for name in ("a/x", "b/x/y", "c/x/y/z"):
            self.publish(name, name=name)
        self.publish("no", name="a/y")
        texts = [each.payload for packets in self.gathered(clients) for each in packets]
        self.assertEqual(sorted(texts), [b"a/x", b"b/x/y", b"c/x/y/z"])

    def test_everyGroupGetsEveryMessage(self) -> None:
        """Section 4.8.2: each group gets each message, and so does an ordinary subscription."""
        one, two, plain = (self.client() for _ in range(3))
        one.subscribe(self.share(group="one"))
        two.subscribe(self.share(group="two"))
        plain.subscribe(self.topic("a"))
        self.publish(1, 2, 3)
        for client in (one, two, plain):
            self.assertEqual([each.payload for each in client.messages(3)], [b"1", b"2", b"3"])
            self.assertNothing(client)

    def test_shareIsNameAndFilter(self) -> None:
        """Section 4.8.2: a share name with another filter is another shared subscription."""
        one, two = self.client(), self.client()
        one.subscribe(self.share("a"))
        two.subscribe(self.share("+"))
        self.publish(1)
        for client in (one, two):
            self.assertEqual(client.message().payload, b"1")

    def test_memberMayAlsoSubscribeItself(self) -> None:
        """Section 4.8.2: a client may be a member, and have the same filter for itself."""
        client = self.client()
        client.subscribe(self.share(), self.topic("a"), qos=0)
        self.publish(1)
        self.assertEqual([each.payload for each in client.settle()], [b"1", b"1"])

    def test_memberHasItsOwnQos(self) -> None:
        """[MQTT5-4.8.2-3] Each member has the QoS that it was granted."""
        low, high = self.client(), self.client()
        low.subscribe((self.share(), 0))
        high.subscribe((self.share(), 2))
        self.publish(*range(20), qos=2)
        got = self.gathered([low, high])
        self.assertEqual([{each.qos for each in packets} for packets in got], [{0}, {2}])
        self.assertEqual(sum(map(len, got)), 20)

    def test_othersGetMessagesOfLeavingClient(self) -> None:
        """Section 4.8.2: when a member leaves, the others get all."""
        stays, leaves, crashes = self.members(3)
        leaves.unsubscribe(self.share())
        crashes.leave()
        self.publish(*range(10))
        self.assertEqual([int(each.payload) for each in stays.messages(10)], list(range(10)))
        self.assertNothing(leaves)

    def test_unacknowledgedGoesToOthers(self) -> None:
        """Section 4.8.2: QoS 1 of a member whose session ends goes to another one."""
        self.notForeign("a SHOULD; mosquitto 2.0.11 drops it")
        leaves, stays = self.members(2)
        self.publish(*range(10))
        ours = stays.settle()
        for each in ours:
            stays.complete(each)
        self.assertLess(len(ours), 10)
        leaves.close()
        later = stays.messages(10 - len(ours))
        numbers = sorted(int(each.payload) for each in (*ours, *later))
        self.assertEqual(numbers, list(range(10)))

    def test_refusedIsNotOfferedToOthers(self) -> None:
        """[MQTT5-4.8.2-6] What a member refuses is not given to another."""
        clients = self.members(2)
        self.publish(*range(4))
        refused = 0
        for client in clients:
            for packet in client.settle():
                client.send(ack(PUBACK, packet.packetId, 0x80))
                refused += 1
        self.assertEqual(refused, 4)
        for client in clients:
            self.assertNothing(client)

    def test_returningMemberCompletesQos2(self) -> None:
        """[MQTT5-4.8.2-4] QoS 2 that a member has begun is completed when it returns."""
        client = self.persistent("s")
        client.subscribe(self.share(), qos=2)
        self.publish(1, qos=2)
        packet = client.expect(PUBLISH)
        client.close()
        (other,) = self.members(1, qos=2)
        client = self.persistent("s")
        again = client.expect(PUBLISH)
        self.assertEqual((again.packetId, again.dup), (packet.packetId, True))
        client.complete(again)
        self.assertNothing(other)

    def test_begunQos2GoesToNoOtherMember(self) -> None:
        """[MQTT5-4.8.2-5] QoS 2 of a member whose session ends goes to nobody else."""
        (client,) = self.members(1, qos=2)
        self.publish(1, qos=2)
        packet = client.expect(PUBLISH)
        client.send(ack(PUBREC, packet.packetId))
        client.expect(PUBREL)
        (other,) = self.members(1, qos=2)
        client.close()
        self.assertNothing(other)

    def test_soleAbsentMemberLosesNothing(self) -> None:
        """Section 4.8.2: a group whose only member is away has not lost what comes meanwhile."""
        client = self.persistent("s")
        client.subscribe(self.share(), qos=1)
        client.leave()
        self.publish(*range(5))
        client = self.persistent("s")
        self.assertTrue(client.connack.sessionPresent)
        self.assertEqual([int(each.payload) for each in client.messages(5)], list(range(5)))
        self.assertNothing(client)

    def test_absentMemberSharesTheMessages(self) -> None:
        """Section 4.8.2: of two members, one away: each message comes to one of them."""
        client = self.persistent("s")
        client.subscribe(self.share(), qos=1)
        client.leave()
        (stays,) = self.members(1)
        self.publish(*range(10))
        got = self.gathered([stays, self.persistent("s")])
        numbers = [int(each.payload) for packets in got for each in packets]
        self.assertEqual(sorted(numbers), list(range(10)))

    def test_memberHasItsOwnIdentifier(self) -> None:
        """[MQTT5-3.3.4-3] A shared subscription has its member's identifier."""
        clients = [self.client(), self.client()]
        for number, client in enumerate(clients, 1):
            client.subscribe(self.share(), qos=0, properties_=[("subscriptionId", number)])
        self.publish(*range(6))
        got = self.gathered(clients)
        for number, packets in enumerate(got, 1):
            self.assertEqual({each.get("subscriptionId") for each in packets} - {number}, set())

    def test_unsubscribeNeedsTheWholeFilter(self) -> None:
        """Section 3.10: it is ended by the whole filter, and by nothing else."""
        (client,) = self.members(1)
        answer = client.unsubscribe(self.topic("a"), self.share(), self.share())
        self.assertEqual(answer.codes, (0x11, 0, 0x11))
        self.publish(1)
        self.assertNothing(client)

    def test_invalidShareNameIsRefused(self) -> None:
        """[MQTT5-4.8.2-1] [MQTT5-4.8.2-2] Share names that there are not."""
        for pattern in ("$share/g+/a", "$share/#/a"):
            self.refuses(pattern, 0)
        self.notForeign("mosquitto 2.0.11 grants what is empty")
        for pattern in ("$share/", "$share/g", "$share/g/", "$share//a"):
            self.refuses(pattern, 0)

    def test_noLocalShareIsRefused(self) -> None:
        """[MQTT5-3.8.3-4] No Local and shared do not go together."""
        self.notForeign("mosquitto 2.0.11 does not mind")
        self.refuses(self.share(), 0x04)

    def refuses(self, pattern: str, options: int) -> None:
        """A subscription is refused, alone or with its connection."""
        client = self.client()
        client.send(subscribe(V5, 1, [(pattern, options)]))
        try:
            answer = client.receive()
        except Closed:
            return
        if answer.kind == SUBACK and not options:
            self.assertIn(answer.code, (0x8F, 0x80), pattern)
            return
        isOurs = bool(options) and not self.broker.isForeign
        self.assertIn(answer.code, (0x82,) if isOurs else (0x81, 0x82, 0x8F), pattern)
        self.assertRaises(Closed, client.receive)
