"""
The dialect of WeEvent 1.1: frames as its Java client sends them, and as it needs them.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.stomp.frames import StompSettings
from svcbroker.carriers.stomp.requests import LISTENER_DELAY, WEEVENT_1_1
from svcbroker.errors import TopicNotFound
from svcbroker.model import Edge, EventId
from tests.access.support import FakeAuthenticator, account

from .support import UUID, Client, FakeSubscription, Received, Server, event, frame

CONNECT = b"CONNECT\naccept-version:1.1\nversion:1.1\nheart-beat:30,0\n\n\0"
OWN = UUID.format(1)


def subscribe(
    id: int, destination: str = "a", offset: str = "OFFSET_FIRST", subscriptionId: str = ""
) -> bytes:
    """A SUBSCRIBE frame."""
    headers = {"destination": destination, "eventId": offset, "id": str(id), "groupId": "1"}
    if subscriptionId:
        headers["weevent-subscriptionId"] = subscriptionId
    return frame("SUBSCRIBE", headers)


def unsubscribe(id: int, subscriptionId: str) -> bytes:
    """An UNSUBSCRIBE frame."""
    headers = {"simpSubscriptionId": str(id), "subscription": subscriptionId, "id": str(id)}
    return frame("UNSUBSCRIBE", headers)


def send(receipt: int, content: bytes = b"hello", destination: str = "a", **headers: str) -> bytes:
    """A SEND frame; an underscore in a header's name stands for a hyphen."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return frame(
        "SEND",
        {
            "destination": destination,
            "content-type": "text/plain;charset=UTF-8",
            "content-length": str(len(content)),
            "receipt": str(receipt),
            "groupId": "1",
            **more,
        },
        content,
    )


class WeEventTestCase(SynchronousTestCase):
    """
    A server that speaks the dialect.
    """

    def setUp(self) -> None:
        self.server = Server(dialect=WEEVENT_1_1)
        self.clock = self.server.fixture.clock
        self.client = self.connect()

    def connect(self) -> Client:
        """A client that has sent CONNECT."""
        client = self.server.client()
        self.assertEqual(self.ask(client, CONNECT).command, "CONNECTED")
        return client

    def ask(self, client: Client, data: bytes) -> Received:
        """Send a frame; the one that it is answered with at once."""
        client.sendBytes(data)
        [answer] = client.frames()
        return answer

    def subscribed(self, id: int = 1, **more: str) -> FakeSubscription:
        """Subscribe, and let the time pass that the client needs for its listener."""
        answer = self.ask(self.client, subscribe(id, **more))
        self.assertEqual((answer.command, answer["receipt-id"]), ("RECEIPT", str(id)))
        made = self.server.fake.made[-1]
        self.assertEqual(answer["subscription-id"], made.subscriptionId)
        self.clock.advance(LISTENER_DELAY)
        return made


class ConnectTests(WeEventTestCase):
    """CONNECT, heart-beats, DISCONNECT."""

    def test_connectedAnnouncesHeartBeats(self) -> None:
        answer = self.ask(self.server.client(), CONNECT)
        self.assertEqual(answer["version"], "1.1")
        self.assertEqual(answer["heart-beat"], "1000,10000")

    def test_silentClientStaysConnected(self) -> None:
        """The client announces heart-beats every 30 ms and sends none."""
        made = self.subscribed()
        self.clock.pump([1.0] * 60)
        self.assertEqual((self.client.frames(), self.client.beats), ([], 0))
        made.publish(event(1))
        self.assertEqual([each.command for each in self.client.frames()], ["MESSAGE"])

    def test_disconnectIsAnsweredThenClosed(self) -> None:
        self.client.sendBytes(frame("DISCONNECT", {"receipt": "2"}))
        [answer] = self.client.frames()
        self.assertEqual((answer.command, answer["receipt-id"]), ("RECEIPT", "2"))
        self.assertFalse(self.client.isOpen)

    def test_failedLogInIsToldAtOnce(self) -> None:
        """The client waits for receipt 0, and reports a time-out where that never comes."""
        accounts = FakeAuthenticator(account("ann", "* * #"))
        server = Server(dialect=WEEVENT_1_1, authenticators=[accounts])
        for passcode, command in (("ann", "CONNECTED"), ("bob", "ERROR")):
            client = server.client()
            login = {"login": "ann", "passcode": passcode}
            client.sendBytes(frame("CONNECT", {"accept-version": "1.1", **login}))
            [answer] = client.frames()
            self.assertEqual(answer.command, command)
            self.assertEqual(client.isOpen, command == "CONNECTED")
        self.assertEqual((answer["receipt-id"], answer["code"]), ("0", "101015"))


class SendTests(WeEventTestCase):
    """SEND."""

    def test_receiptHasTheEventId(self) -> None:
        answer = self.ask(self.client, send(1))
        self.assertEqual((answer.command, answer["receipt-id"]), ("RECEIPT", "1"))
        self.assertEqual(EventId.parse(answer["eventId"]).sequence, 1)

    def test_extensionsAreStoredInOneForm(self) -> None:
        self.ask(self.client, send(1, weevent_tag="red", weevent_format="json"))
        [request] = self.server.published
        self.assertEqual(request.extensions, {"svc-tag": "red", "svc-format": "json"})

    def test_refusedSendKeepsTheConnection(self) -> None:
        for data, code in (
            (send(1, destination="nowhere"), "100101"),
            (send(2, destination=65 * "t"), "100102"),
            (send(3, 10241 * b"x"), "100201"),
            (send(4, destination="a/#"), "100106"),
        ):
            answer = self.ask(self.client, data)
            self.assertEqual((answer.command, answer["code"]), ("ERROR", code))
            self.assertEqual(answer["receipt-id"].encode(), data.split(b"receipt:")[1][:1])
            self.assertEqual("10240" in answer["message"], code == "100201")
        self.assertEqual(self.ask(self.client, send(5)).command, "RECEIPT")

    def test_malformedFrameClosesTheConnection(self) -> None:
        """Nothing after it can be read."""
        self.client.sendBytes(b"SEND\nno colon\n\n\0")
        [answer] = self.client.frames()
        self.assertEqual(answer.command, "ERROR")
        self.assertFalse(self.client.isOpen)


class SubscribeTests(WeEventTestCase):
    """SUBSCRIBE, MESSAGE, UNSUBSCRIBE."""

    def test_firstMessageWaitsForTheListener(self) -> None:
        self.client.sendBytes(subscribe(1))
        self.server.fake.made[0].publish(event(1))
        self.assertEqual([each.command for each in self.client.frames()], ["RECEIPT"])
        self.clock.advance(LISTENER_DELAY - 0.001)
        self.assertEqual(self.client.frames(), [])
        self.clock.advance(0.001)
        self.server.fake.made[0].run()
        self.assertEqual([each.command for each in self.client.frames()], ["MESSAGE"])

    def test_messageHasTheHeadersOfTheClient(self) -> None:
        made = self.subscribed(7)
        made.publish(event(5, tag="red", format="json"))
        [message] = self.client.frames()
        self.assertEqual(
            dict(message.headers),
            {
                "subscription": "7",
                "subscription-id": OWN,
                "message-id": "7",
                "eventId": "0123abcd-5-5",
                "destination": "a",
                "content-length": "1",
                "weevent-tag": "red",
                "weevent-format": "json",
            },
        )
        self.assertEqual(message.body, b"x")

    def test_contentIsAlwaysText(self) -> None:
        """The client discards binary WebSocket messages, and would skip the event."""
        self.subscribed().publish(event(1, content=b"\xff1"))
        [message] = self.client.frames()
        self.assertEqual(message.body.decode("utf-8"), "\N{REPLACEMENT CHARACTER}1")

    def test_dialectsShareEventsNotFrames(self) -> None:
        """Both kinds of connection are sent the same batch, each in its form."""
        plain = Server(fixture=self.server.fixture, subscriptions=self.server.fake)
        other = plain.connect("1.1")
        other.send("SUBSCRIBE", {"id": "1", "destination": "a"})
        mine = self.subscribed()
        theirs = self.server.fake.made[0]
        mine.publish(event(1, tag="red"))
        theirs.publish(event(1, tag="red"))
        [shown], [stored] = self.client.frames(), other.frames()
        self.assertEqual(shown["weevent-tag"], stored["svc-tag"])
        self.assertEqual(stored["message-id"], "1-0123abcd-1-1")

    def test_refusedSubscribeKeepsTheConnection(self) -> None:
        self.server.fake.error = TopicNotFound()
        answer = self.ask(self.client, subscribe(1))
        self.assertEqual((answer.command, answer["receipt-id"]), ("ERROR", "1"))
        self.assertEqual(answer["code"], "100101")
        self.server.fake.error = None
        self.subscribed(1)

    def test_unservedWishesAreRefused(self) -> None:
        for headers, text in (
            ({"weevent-file": "1"}, "files"),
            ({"ack": "client"}, "acknowledged"),
            ({"destination": 65 * "t"}, "64"),
        ):
            data = {"destination": "a", "id": "1", **headers}
            answer = self.ask(self.client, frame("SUBSCRIBE", data))
            self.assertEqual((answer.command, answer["receipt-id"]), ("ERROR", "1"))
            self.assertIn(text, answer["message"])
        self.assertEqual(self.server.fake.made, [])

    def test_unsubscribeIsAnsweredUnderItsId(self) -> None:
        made = self.subscribed(3)
        answer = self.ask(self.client, unsubscribe(3, made.subscriptionId))
        self.assertEqual((answer.command, answer["receipt-id"]), ("RECEIPT", "3"))
        self.assertTrue(made.isClosed)

    def test_unsubscribeBeforeTheFirstMessageEndsIt(self) -> None:
        self.ask(self.client, subscribe(1))
        self.ask(self.client, unsubscribe(1, OWN))
        self.clock.advance(LISTENER_DELAY)
        self.assertTrue(self.server.fake.made[0].isClosed)

    def test_refusedUnsubscribeChangesNothing(self) -> None:
        """The connection stays open, so a subscription that it no longer knew would stay, too."""
        made = self.subscribed(1)
        data = {"id": "1", "weevent-subscriptionId": UUID.format(2)}
        answer = self.ask(self.client, frame("UNSUBSCRIBE", data))
        self.assertEqual((answer.command, answer["receipt-id"]), ("ERROR", "1"))
        self.assertFalse(made.isClosed)
        made.publish(event(1))
        self.assertEqual([each.command for each in self.client.frames()], ["MESSAGE"])
        self.ask(self.client, unsubscribe(1, made.subscriptionId))
        self.assertTrue(made.isClosed)

    def test_fullTransactionKeepsNothingMore(self) -> None:
        """The connection stays open after the refusal."""
        settings = StompSettings(maxTransactionFrames=2)
        self.client = Server(settings, dialect=WEEVENT_1_1).client()
        self.ask(self.client, CONNECT)
        self.client.send("BEGIN", {"transaction": "t"})
        for number in range(4):
            self.client.sendBytes(send(number, transaction="t"))
        commands = [each.command for each in self.client.frames()]
        self.assertEqual(commands, ["RECEIPT", "RECEIPT", "ERROR", "ERROR"])
        answer = self.ask(self.client, frame("COMMIT", {"transaction": "t", "receipt": "r"}))
        self.assertEqual(answer["eventId"].count(","), 1)

    def test_failedCommitLeavesNothingBehind(self) -> None:
        """The connection stays open after the refusal."""
        self.subscribed(1)
        session = self.client.protocol._session
        for _ in range(3):
            self.client.send("BEGIN", {"transaction": "t"})
            self.client.sendBytes(send(1, destination="none", transaction="t"))
            self.client.send("ACK", {"subscription": "1", "message-id": "1-0123abcd-1-1"})
            self.client.send("COMMIT", {"transaction": "t"})
        self.assertEqual(session._acknowledgements, {})

    def test_patternsAndListsReachTheBroker(self) -> None:
        made = self.subscribed(1, destination="com/#,a")
        self.assertEqual(made.request.filters, ("com/#", "a"))

    def test_clientResumesUnderItsOldId(self) -> None:
        """
        After a restart of the broker the client connects again, counts from 1 again, and subscribes
        with the id of the subscription and of the last event.
        """
        self.client.disconnect()
        self.client = self.connect()
        made = self.subscribed(1, offset="0123abcd-5-7", subscriptionId=OWN)
        self.assertEqual(made.request.offset, EventId("0123abcd", 5, 7))
        self.assertEqual(made.request.subscriptionId, OWN)
        self.assertFalse(made.request.isDurable)

    def test_tagChoosesEvents(self) -> None:
        self.client.sendBytes(
            frame("SUBSCRIBE", {"destination": "a", "id": "1", "weevent-tag": "red"})
        )
        request = self.server.fake.made[0].request
        self.assertEqual((request.tag, request.offset), ("red", Edge.LAST))


class PlainTests(SynchronousTestCase):
    """STOMP without the dialect."""

    def test_weeventHeadersNeedTheOption(self) -> None:
        for data in (
            send(1, weevent_tag="red"),
            subscribe(1, subscriptionId=OWN),
            frame("UNSUBSCRIBE", {"id": "1", "weevent-subscriptionId": OWN}),
        ):
            server = Server()
            client = server.connect("1.1")
            client.sendBytes(data)
            [answer] = client.frames()
            self.assertEqual((answer.command, answer["code"]), ("ERROR", "100206"))
            self.assertIn("--dialect weevent-1.1", answer["message"])
            self.assertEqual((server.published, server.fake.made), ([], []))
