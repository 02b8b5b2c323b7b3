"""
SUBSCRIBE, MESSAGE, UNSUBSCRIBE.
"""

from __future__ import annotations

import gc
from collections.abc import Hashable
from itertools import count

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svcbroker.carriers.stomp import carrier
from svcbroker.carriers.stomp.carrier import StompSubscriber
from svcbroker.carriers.stomp.frames import StompSettings
from svcbroker.carriers.stomp.messages import MESSAGE_HEADERS
from svcbroker.errors import Overloaded, SubscriptionExists
from svcbroker.interfaces import Batch, ISubscriber
from svcbroker.model import Edge, EventId, InterfaceType, Moment, Position
from svcbroker.net.budgets import SMALL, WRITES_A_TURN, Waiter

from .support import UUID, FakeSubscription, Server, event, frame

OWN = "12345678-1234-4234-8234-123456789abc"


class SubscribeTests(SynchronousTestCase):
    """SUBSCRIBE."""

    def test_everyHeaderReachesTheBroker(self) -> None:
        """Every header reaches the broker."""
        server = Server()
        server.connect().send(
            "SUBSCRIBE",
            {
                "id": "1",
                "destination": "a,com/#,+/x,a",
                "groupId": "2",
                "eventId": "OFFSET_FIRST",
                "svc-subscriptionId": OWN,
                "svc-tag": "red",
                "ack": "client-individual",
            },
        )
        request = server.fake.made[0].request
        self.assertEqual(request.interfaceType, InterfaceType.STOMP)
        self.assertEqual(request.group, "2")
        self.assertEqual(request.filters, ("a", "com/#", "+/x"))
        self.assertEqual(request.offset, Edge.FIRST)
        self.assertEqual((request.tag, request.subscriptionId), ("red", OWN))
        self.assertTrue(request.isDurable and request.isAcknowledged and request.mustExist)
        self.assertEqual(request.remote, "192.168.1.1:54321")

    def test_absentHeadersGetDefaults(self) -> None:
        server = Server()
        server.connect().send("SUBSCRIBE", {"id": "1", "destination": "a"})
        request = server.fake.made[0].request
        self.assertEqual((request.group, request.offset), ("", Edge.LAST))
        self.assertEqual((request.tag, request.subscriptionId), (None, None))
        self.assertFalse(request.isDurable or request.isAcknowledged)

    def test_namedAcknowledgedSubscriptionsAreDurable(self) -> None:
        """A position is kept for who acknowledges and names the subscription, for nobody else."""
        for ack, named, isDurable in (
            ("auto", True, False),
            ("client", False, False),
            ("client", True, True),
        ):
            server = Server()
            more = {"svc-subscriptionId": OWN} if named else {}
            server.connect().send("SUBSCRIBE", {"id": "1", "destination": "a", "ack": ack, **more})
            self.assertEqual(server.fake.made[0].request.isDurable, isDurable)

    def test_offsetHeaderIsRead(self) -> None:
        for text, offset in (
            ("0123abcd-5-7", EventId("0123abcd", 5, 7)),
            ("17", Position(17, -1)),
            ("OFFSET_TIME:17", Moment(17)),
            ("OFFSET_TIME:1970-01-01T00:00:01Z", Moment(1000)),
            ("OFFSET_LAST", Edge.LAST),
            ("", Edge.LAST),
        ):
            server = Server()
            server.connect().send("SUBSCRIBE", {"id": "1", "destination": "a", "eventId": text})
            self.assertEqual(server.fake.made[0].request.offset, offset)

    def test_receiptComesBeforeTheFirstMessage(self) -> None:
        """The RECEIPT carries the UUID, and comes before the first message."""
        server = Server()
        client = server.connect()
        server.fake.isHolding = True
        client.send("SUBSCRIBE", {"id": "1", "destination": "a", "receipt": "r"})
        made = server.fake.made[0]
        made.publish(event(1))
        server.fake.release()
        made.run()
        receipt, message = client.frames()
        self.assertEqual(receipt.headers, {"receipt-id": "r", "subscription-id": UUID.format(1)})
        self.assertEqual(message.command, "MESSAGE")

    def test_subscribeWaitsForEarlierSends(self) -> None:
        """Its subscription is made when the events sent before it are in the log."""
        server = Server()
        server.fixture.ledger.isHolding = True
        client = server.connect()
        client.send("SEND", {"destination": "a", "receipt": "1"}, b"x")
        client.send("SUBSCRIBE", {"id": "1", "destination": "a", "receipt": "2"})
        client.send("SEND", {"destination": "a", "receipt": "3"}, b"y")
        self.assertEqual((server.fake.made, client.frames()), ([], []))
        self.assertEqual(len(server.fixture.ledger.held), 1)
        server.fixture.ledger.release()
        server.fake.made[0].publish(event(1))
        self.assertEqual(
            [each.command for each in client.frames()], ["RECEIPT", "RECEIPT", "MESSAGE"]
        )
        server.fixture.ledger.release()
        [receipt] = client.frames()
        self.assertEqual(receipt["receipt-id"], "3")

    def test_notOvertaken(self) -> None:
        """What is sent after SUBSCRIBE is published when the subscription stands."""
        server = Server()
        server.fake.isHolding = True
        client = server.connect()
        client.sendBytes(
            frame("SUBSCRIBE", {"id": "1", "destination": "a"})
            + frame("SEND", {"destination": "a"}, b"x")
        )
        self.assertEqual(server.published, [])
        self.assertFalse(client.transport.isRead)
        server.fake.release()
        self.assertEqual(len(server.published), 1)
        self.assertTrue(client.transport.isRead)

    def test_invalidSubscriptionsAreRefused(self) -> None:
        for headers, code in (
            ({"destination": "a"}, "100600"),
            ({"id": "1"}, "100103"),
            ({"id": "1", "destination": "a", "ack": "maybe"}, "100600"),
            ({"id": "1", "destination": "a", "eventId": "?"}, "100302"),
            ({"id": "1", "destination": "a", "eventId": "x" * 65}, "100301"),
            ({"id": "1", "destination": "a", "eventId": "OFFSET_TIME:noon"}, "100600"),
            ({"id": "1", "destination": "a", "prefetch-count": "-1"}, "100600"),
            ({"id": "1", "destination": "a", "svc-subscriptionId": " "}, "100503"),
            ({"id": "1", "destination": ",".join(map(str, range(101)))}, "100600"),
        ):
            answer = Server().connect().ask("SUBSCRIBE", {**headers, "receipt": "r"})
            self.assertEqual((answer.command, answer["code"]), ("ERROR", code), headers)
            self.assertEqual(answer["receipt-id"], "r")

    def test_refusedByTheBroker(self) -> None:
        server = Server()
        server.fake.error = SubscriptionExists()
        answer = server.connect().ask("SUBSCRIBE", {"id": "1", "destination": "a", "receipt": "r"})
        self.assertEqual((answer["code"], answer["receipt-id"]), ("100507", "r"))

    def test_leftClientsSubscribeNoMore(self) -> None:
        """
        Of what is left to read of a client that has gone, events are published, and a
        subscription is made only where a receipt is asked for.
        """
        server = Server()
        client = server.connect()
        self.patch(carrier, "hasEnded", lambda transport: True)
        ended = frame("SUBSCRIBE", {"id": "1", "destination": "a"}) + frame(
            "UNSUBSCRIBE", {"id": "1"}
        )
        client.sendBytes(
            ended * (SMALL // len(ended))
            + frame("SUBSCRIBE", {"id": "1", "destination": "a", "ack": "client"})
            + frame("SEND", {"destination": "a"}, b"x")
            + frame("SUBSCRIBE", {"id": "2", "destination": "a", "receipt": "r"})
            + frame("UNSUBSCRIBE", {"id": "2"})
        )
        server.fixture.clock.pump([0] * 9)
        self.assertEqual(len(server.published), 1)
        [made] = server.fake.made
        self.assertTrue(made.isClosed)
        [receipt] = client.frames()
        self.assertEqual(receipt["subscription-id"], made.subscriptionId)

    def test_usedIdIsRefused(self) -> None:
        """An id is in use until UNSUBSCRIBE."""
        client = Server().connect()
        subscribe = {"id": "1", "destination": "a"}
        client.send("SUBSCRIBE", subscribe)
        client.send("UNSUBSCRIBE", {"id": "1"})
        client.send("SUBSCRIBE", subscribe)
        self.assertEqual(client.frames(), [])
        self.assertEqual(client.ask("SUBSCRIBE", subscribe)["code"], "100507")

    def test_filterBytesAreBounded(self) -> None:
        """The destinations of a connection have a bound in bytes, which UNSUBSCRIBE gives back."""
        server = Server(StompSettings(maxFilterBytes=5))
        client = server.connect()
        client.send("SUBSCRIBE", {"id": "1", "destination": "a,bb,c"})
        client.send("UNSUBSCRIBE", {"id": "1"})
        client.send("SUBSCRIBE", {"id": "2", "destination": "aaaa"})
        self.assertEqual(client.frames(), [])
        self.assertEqual(
            client.ask("SUBSCRIBE", {"id": "3", "destination": "bb"})["code"], "200101"
        )

    def test_subscriptionsAreBounded(self) -> None:
        server = Server(StompSettings(maxSubscriptions=2))
        client = server.connect()
        for number in range(2):
            client.send("SUBSCRIBE", {"id": str(number), "destination": "a"})
        self.assertEqual(client.ask("SUBSCRIBE", {"id": "9", "destination": "a"})["code"], "200101")
        self.assertTrue(all(each.isClosed for each in server.fake.made))


class MessageTests(SynchronousTestCase):
    """MESSAGE."""

    def subscribe(self, version: str = "1.2", **headers: str) -> tuple[Server, FakeSubscription]:
        """A server with one subscription, and its client."""
        server = Server()
        self.client = server.connect(version)
        self.client.send("SUBSCRIBE", {"id": "s\\c1", "destination": "#", **headers})
        return server, server.fake.made[0]

    def test_messageHasItsHeaders(self) -> None:
        _, made = self.subscribe()
        made.publish(event(7, "x:y", b"\0\xff", tag="1\n2", **{"o:o": "k"}))
        [message] = self.client.frames()
        self.assertEqual(
            message.headers,
            {
                "subscription": "s:1",
                "subscription-id": UUID.format(1),
                "message-id": "1-0123abcd-7-7",
                "destination": "x:y",
                "eventId": "0123abcd-7-7",
                "content-length": "2",
                "svc-tag": "1\n2",
                "svc-o\\co": "k",
            },
        )
        self.assertEqual(message.body, b"\0\xff")

    def test_messageNamesItsAck(self) -> None:
        _, made = self.subscribe(ack="client")
        made.publish(event(7))
        [message] = self.client.frames()
        self.assertEqual(message["ack"], message["message-id"])

    def test_unencodableExtensionsAreLeftOut(self) -> None:
        """An extension that a version cannot carry is left out; nothing breaks out of a header."""
        evil = event(1, a="1\nx:y\n\nbody\0", b="1\ndestination:z", c="ok\r")
        for version, names in (("1.0", {"svc-c"}), ("1.2", {"svc-b", "svc-c"})):
            server = Server()
            client = server.connect(version)
            client.send("SUBSCRIBE", {"id": "1", "destination": "#"})
            server.fake.made[0].publish(evil)
            [message] = client.frames()
            self.assertEqual({each for each in message.headers if each[:4] == "svc-"}, names)
            self.assertEqual(message["destination"], "a")

    def test_foreignUserHeadersCannotHarm(self) -> None:
        """Any publisher may write the extension that holds user headers."""
        for text, expected in (
            ("nonsense", {"svc-stomp": "nonsense"}),
            ('{"a": 1}', {"svc-stomp": '{"a": 1}'}),
            ('{"destination": "z", "": "z", "a": "b"}', {"a": "b"}),
            ('{"svc-tag": "z", "a": "1\\u0000"}', {"svc-tag": "red"}),
        ):
            _, made = self.subscribe()
            extensions = {"stomp": text, **({"tag": "red"} if "tag" in text else {})}
            made.publish(event(1, "a", b"x", **extensions))
            [message] = self.client.frames()
            self.assertEqual(message["destination"], "a")
            headers = message.headers.items()
            found = {name: value for name, value in headers if name not in MESSAGE_HEADERS}
            self.assertEqual(found, expected)

    def test_version10NeedsNoId(self) -> None:
        """In 1.0 a subscription may have no id."""
        server = Server()
        client = server.connect("1.0")
        client.send("SUBSCRIBE", {"destination": "a"})
        server.fake.made[0].publish(event(1))
        [message] = client.frames()
        self.assertNotIn("subscription", message.headers)
        client.send("UNSUBSCRIBE", {"destination": "a"})
        self.assertTrue(server.fake.made[0].isClosed)

    def test_encodedOnce(self) -> None:
        """What is alike for all subscribers is made once for each version."""
        server = Server()
        for version in ("1.2", "1.2", "1.1"):
            server.connect(version).send("SUBSCRIBE", {"id": "1", "destination": "a"})
        encoded: dict[Hashable, object] = {}
        batch = Batch([event(1)], 0, encoded)
        forms = []
        for made in server.fake.made:
            made.subscriber.deliver(batch)
            forms.append(len(encoded))
        self.assertEqual(forms, [1, 1, 2])

    def test_oneWrite(self) -> None:
        """A batch is one write."""
        _, made = self.subscribe()
        writes: list[bytes] = []
        self.patch(self.client.transport, "write", writes.append)
        made.publish(*(event(number) for number in range(1, 100)))
        self.assertEqual(len(writes), 1)
        self.assertEqual(writes[0].count(b"MESSAGE\n"), 99)

    def test_stalledClientPausesItsSubscriptions(self) -> None:
        """Whoever does not read is not sent more; what is not taken stays in the log."""
        server, made = self.subscribe()
        self.client.send("SUBSCRIBE", {"id": "2", "destination": "a", "ack": "client"})
        other = server.fake.made[1]
        self.client.stopReading()
        self.assertFalse(made.isFlowing or other.isFlowing)
        made.publish(event(1))
        other.publish(event(2))
        self.assertEqual(self.client.frames(), [])
        self.client.goOnReading()
        made.run()
        other.run()
        self.assertEqual(len(self.client.frames()), 2)

    def test_subscribedWhileStalled(self) -> None:
        server = Server()
        client = server.connect()
        client.stopReading()
        client.send("SUBSCRIBE", {"id": "1", "destination": "a"})
        self.assertFalse(server.fake.made[0].isFlowing)
        client.goOnReading()
        self.assertTrue(server.fake.made[0].isFlowing)

    def test_endedSubscriptionIsAnError(self) -> None:
        """A subscription that the broker ends is an ERROR."""
        _, made = self.subscribe()
        made.subscriber.subscriptionEnded(Overloaded())
        [answer] = self.client.frames()
        self.assertEqual((answer.command, answer["code"]), ("ERROR", "200101"))

    def test_endedSubscriptionIsNotResumed(self) -> None:
        """The ERROR waits for the answers before it; the client may stop to read meanwhile."""
        server, made = self.subscribe()
        server.fixture.ledger.isHolding = True
        self.client.send("SEND", {"destination": "a", "receipt": "1"}, b"x")
        made.subscriber.subscriptionEnded(Overloaded())
        self.client.stopReading()
        self.client.goOnReading()
        server.fixture.ledger.release()
        commands = [each.command for each in self.client.frames()]
        self.assertEqual(commands, ["RECEIPT", "ERROR"])

    def test_readerProvidesISubscriber(self) -> None:
        server = Server()
        verifyObject(ISubscriber, StompSubscriber(server.connect().protocol, 1))


class EndTests(SynchronousTestCase):
    """Connections with many subscriptions that end."""

    def test_subscriptionsOfOneMomentEndInTurns(self) -> None:
        """A unit closes some, so that connections which end together do not hold the reactor."""
        server = Server()
        work = server.fixture.broker.budgets.work
        client = server.connect()
        for number in range(200):
            client.send("SUBSCRIBE", {"id": f"{number}", "destination": "a"})
        work.seconds = count(0, WRITES_A_TURN).__next__
        client.disconnect()
        closed = [each.isClosed for each in server.fake.made].count(True)
        self.assertIn(closed, range(1, 200))
        # What one of the others is given meanwhile is dropped, and counted nowhere.
        server.fake.made[-1].publish(event(1, content=b"x" * 10_000))
        self.assertEqual(server.fixture.broker.budgets.windows.used, 0)
        for _ in range(10):
            server.fixture.clock.advance(0)
        self.assertTrue(all(each.isClosed for each in server.fake.made))

    def test_connectionThatEndsInTurnsLeavesNoCycle(self) -> None:
        """What has waited for a turn is freed without the garbage collector."""
        server = Server()
        work = server.fixture.broker.budgets.work
        client = server.connect()
        for number in range(200):
            client.send("SUBSCRIBE", {"id": f"{number}", "destination": "a"})
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        work.seconds = count(0, WRITES_A_TURN).__next__
        client.disconnect()
        del client
        for _ in range(10):
            server.fixture.clock.advance(0)
        self.assertTrue(all(each.isClosed for each in server.fake.made))
        waited = [each for each in gc.get_objects() if isinstance(each, Waiter)]
        self.assertEqual([each for each in waited if each.lane._budget is work], [])


class UnsubscribeTests(SynchronousTestCase):
    """UNSUBSCRIBE."""

    def test_unsubscribeEndsOneSubscription(self) -> None:
        server = Server()
        client = server.connect()
        client.send("SUBSCRIBE", {"id": "1", "destination": "a"})
        client.send("SUBSCRIBE", {"id": "2", "destination": "a"})
        self.assertEqual(client.ask("UNSUBSCRIBE", {"id": "1", "receipt": "r"})["receipt-id"], "r")
        self.assertEqual([each.isClosed for each in server.fake.made], [True, False])

    def test_positionIsForgottenByItsOwnId(self) -> None:
        """A position is kept, unless UNSUBSCRIBE names the subscription's own id."""
        for more, isForgotten in (({}, False), ({"svc-subscriptionId": OWN.upper()}, True)):
            server = Server()
            client = server.connect()
            client.send(
                "SUBSCRIBE",
                {"id": "1", "destination": "a", "svc-subscriptionId": OWN, "ack": "client"},
            )
            client.send("UNSUBSCRIBE", {"id": "1", **more})
            self.assertEqual(server.fake.made[0].isForgotten, isForgotten)
            self.assertTrue(server.fake.made[0].isClosed)

    def test_invalidUnsubscribeIsRefused(self) -> None:
        for headers in ({}, {"id": "9"}, {"id": "1", "svc-subscriptionId": OWN}):
            client = Server().connect()
            client.send("SUBSCRIBE", {"id": "1", "destination": "a"})
            self.assertEqual(client.ask("UNSUBSCRIBE", headers)["code"], "100600")
