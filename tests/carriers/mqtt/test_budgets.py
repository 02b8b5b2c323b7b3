"""
Tests for what sessions and connections of MQTT keep: it counts in budgets over all of them.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker.subscriptions._logsubscription import SUBSCRIPTION_BYTES
from svcbroker.carriers.mqtt.fields import Properties, ReasonCode
from svcbroker.carriers.mqtt.mqttsession import FILTER_BYTES, SESSION_BYTES
from svcbroker.carriers.mqtt.packets import Disconnect, Publish, Will
from svcbroker.net.budgets import ENTRY_BYTES, NAME_BYTES

from .support import Client, Server

LARGE = 1 << 30


class SessionTests(SynchronousTestCase):
    """
    Sessions, their filters and their wills.
    """

    def setUp(self) -> None:
        self.server = Server()

    @property
    def used(self) -> int:
        """The bytes that are counted."""
        return self.server.budgets.subscriptions.used

    def leave(self, free: int) -> None:
        """Have so many bytes free, for all and for each owner."""
        budget = self.server.budgets.subscriptions
        budget.total = budget.used + free
        budget.own = LARGE

    def test_sessionCountsUntilItEnds(self) -> None:
        """With each of its subscriptions: also while its client is absent, and after a restart."""
        client = self.server.connected(expiry=1000)
        self.assertEqual(self.used, SESSION_BYTES)
        client.subscribe("a/b", 1)
        absent = SESSION_BYTES + FILTER_BYTES + 3
        self.assertEqual(self.used, absent + SUBSCRIPTION_BYTES + 3)
        client.subscribe("a/bc", 1)
        client.subscribe("a/bc", 0)
        client.unsubscribe("a/bc")
        self.assertEqual(self.used, absent + SUBSCRIPTION_BYTES + 3)
        client.lose()
        self.assertEqual(self.used, absent)
        self.server = self.server.restarted()
        self.assertEqual(self.used, absent)
        self.server.wait(1001)
        self.assertEqual(self.used, 0)

    def test_sessionWithoutRoomIsRefused(self) -> None:
        """A further one: those that are there go on."""
        self.server.connected("a", expiry=1000).lose()
        self.leave(SESSION_BYTES - 1)
        connack = self.server.client().connect("b")
        self.assertEqual(connack.reason, ReasonCode.QUOTA_EXCEEDED)
        self.assertIn("as much memory as they may", connack.properties.reasonString or "")
        self.server.connected("a", cleanStart=False)
        self.assertEqual(self.server.budgets.subscriptions.refused, 1)

    def test_filterWithoutRoomIsRefused(self) -> None:
        client = self.server.connected()
        self.assertEqual(client.subscribe("a").reasons, (0,))
        self.leave(FILTER_BYTES)
        suback = client.subscribe("b")
        self.assertEqual(suback.reasons, (ReasonCode.QUOTA_EXCEEDED,))
        self.assertIn("as much memory as they may", suback.properties.reasonString or "")
        self.assertEqual(client.subscribe("a", 1).reasons, (1,))
        client.unsubscribe("a")
        self.assertEqual(client.subscribe("b").reasons, (0,))

    def test_liveSubscriptionWithoutRoomIsRefused(self) -> None:
        client = self.server.connected()
        self.leave(FILTER_BYTES + SUBSCRIPTION_BYTES)
        self.assertEqual(client.subscribe("a").reasons, (ReasonCode.QUOTA_EXCEEDED,))
        self.assertEqual(self.used, SESSION_BYTES)
        self.leave(FILTER_BYTES + SUBSCRIPTION_BYTES + 2)
        self.assertEqual(client.subscribe("a").reasons, (0,))

    def test_oneOwnerHasItsShare(self) -> None:
        """Clients of one address, or of one account, find no room where they have taken theirs."""
        client = self.server.connected()
        self.server.budgets.subscriptions.own = self.used + FILTER_BYTES
        self.assertEqual(client.subscribe("a").reasons, (ReasonCode.QUOTA_EXCEEDED,))

    def test_willCountsUntilItIsPublished(self) -> None:
        """Or discarded; while it waits for its delay too, and after a restart."""
        will = Will("w", bytes(1000), properties=Properties(willDelayInterval=10))
        client = self.server.connected(expiry=1000, will=will)
        counted = self.used
        self.assertGreater(counted, SESSION_BYTES + 3000)
        client.disconnect()
        self.assertEqual(self.used, SESSION_BYTES)
        client = self.server.connected(cleanStart=False, expiry=1000, will=will)
        client.lose()
        self.assertEqual(self.used, counted)
        self.server = self.server.restarted()
        self.assertEqual(self.used, counted)
        self.server.wait(11)
        self.assertEqual(self.used, SESSION_BYTES)

    def test_willWithoutRoomIsRefused(self) -> None:
        """In three copies: as it is, and in Base64 for the disk."""
        will = Will("w", bytes(10_000))
        self.leave(3 * 10_000)
        connack = self.server.client().connect(will=will)
        self.assertEqual(connack.reason, ReasonCode.QUOTA_EXCEEDED)
        self.assertEqual(self.used, 0)
        self.leave(3 * 10_000 + ENTRY_BYTES)
        self.server.connected(will=will)
        self.assertGreater(self.used, SESSION_BYTES + 3 * 10_000)

    def test_nothingIsLeftOfEndedSession(self) -> None:
        will = Will("w", bytes(1000))
        client = self.server.connected(will=will)
        client.subscribe("a")
        client.subscribe("$share/s/b")
        client.lose()
        self.assertEqual(self.used, 0)


class NameTests(SynchronousTestCase):
    """
    The names of topics that a connection remembers.
    """

    def setUp(self) -> None:
        self.server = Server()
        self.budget = self.server.budgets.names

    def alias(self, client: Client, topic: str, alias: int = 1) -> None:
        """Publish with a topic alias."""
        client.send(Publish(topic, b"x", properties=Properties(topicAlias=alias)))

    def test_namesCountUntilConnectionEnds(self) -> None:
        client = self.server.connected()
        for topic in ("abc", "abc", "de"):
            client.publish(topic)
        self.assertEqual(self.budget.used, 2 * NAME_BYTES + 2 * 5)
        client.lose()
        self.assertEqual(self.budget.used, 0)

    def test_namesWithoutRoomAreNotRemembered(self) -> None:
        """Publishes go on, and nothing is refused."""
        self.budget.total = 0
        client = self.server.connected()
        client.publish("abc", qos=1)
        client.publish("abc", qos=1)
        self.assertEqual((self.budget.used, self.budget.refused), (0, 0))

    def test_aliasCounts(self) -> None:
        """Once, whatever it stands for in turn."""
        client = self.server.connected()
        for topic in ("abc", "de", "de"):
            self.alias(client, topic)
        self.assertEqual(self.budget.used, 3 * NAME_BYTES + 2 * 5 + 2)
        client.lose()
        self.assertEqual(self.budget.used, 0)

    def test_aliasWithoutRoomIsRefused(self) -> None:
        """The broker cannot do without it: the client does not say the topic again."""
        client = self.server.connected()
        self.budget.total = 2 * NAME_BYTES
        self.alias(client, "a" * 20)
        [packet] = client.take()
        assert isinstance(packet, Disconnect)
        self.assertEqual(packet.reason, ReasonCode.QUOTA_EXCEEDED)

    def test_brokerSetsNoAliasWithoutRoom(self) -> None:
        """It counts those that it sets for a client."""
        client = self.server.connected(properties=Properties(topicAliasMaximum=5))
        client.subscribe("#")
        self.server.event("abc", b"1")
        self.assertEqual(self.budget.used, NAME_BYTES + 5)
        self.budget.total = self.budget.used
        self.server.event("de", b"2")
        aliases = [each.properties.topicAlias for each in client.takeMessages()]
        self.assertEqual(aliases, [1, None])
