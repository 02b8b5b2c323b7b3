"""
ACK, NACK, and what is sent ahead of them.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.stomp.answers import Write
from svcbroker.carriers.stomp.frames import StompSettings
from svcbroker.carriers.stomp.session import MESSAGES_AT_ONCE
from svcbroker.model import Event

from .support import Client, FakeSubscription, Received, Server, event, frame

EVENTS = [event(number) for number in range(1, 11)]


class AckTestCase(SynchronousTestCase):
    """A connection with one subscription that acknowledges."""

    server: Server
    client: Client
    made: FakeSubscription

    def subscribe(
        self,
        ack: str = "client",
        version: str = "1.2",
        settings: StompSettings | None = None,
        prefetch: str | None = None,
    ) -> None:
        """Subscribe with id C{s}."""
        headers = {} if prefetch is None else {"prefetch-count": prefetch}
        self.server = Server(settings)
        self.client = self.server.connect(version)
        self.client.send("SUBSCRIBE", {"id": "s", "destination": "a", "ack": ack, **headers})
        self.made = self.server.fake.made[0]

    def publish(self, *events: Event) -> list[Received]:
        """Have events delivered; the messages."""
        self.made.publish(*events)
        return self.messages()

    def messages(self) -> list[Received]:
        """The messages since the last time, after all that may flow has flowed."""
        self.made.run()
        return self.client.frames()


class AckTests(AckTestCase):
    """ACK."""

    def test_clientAckCoversEarlierMessages(self) -> None:
        """C{client}: an ACK is for all messages up to its own."""
        self.subscribe()
        messages = self.publish(*EVENTS)
        self.client.send("ACK", {"id": messages[3]["ack"]})
        self.assertEqual(self.made.acknowledged, EVENTS[:4])
        self.client.send("ACK", {"id": messages[9]["ack"]})
        self.assertEqual(self.made.acknowledged, EVENTS)

    def test_individualAckCoversOneMessage(self) -> None:
        """C{client-individual}: an ACK is for one message."""
        self.subscribe("client-individual")
        messages = self.publish(*EVENTS)
        for number in (3, 0, 9):
            self.client.send("ACK", {"id": messages[number]["ack"]})
        self.assertEqual(self.made.acknowledged, [EVENTS[3], EVENTS[0], EVENTS[9]])

    def test_ackNamesTheMessageAsItsVersionDoes(self) -> None:
        """1.0 names the message, 1.1 the subscription too, 1.2 the value of C{ack}."""
        for version, more in (("1.0", {}), ("1.1", {"subscription": "s"})):
            self.subscribe(version=version)
            [message] = self.publish(EVENTS[0])
            answer = self.client.ask(
                "ACK", {"message-id": message["message-id"], "receipt": "r", **more}
            )
            self.assertEqual(answer.command, "RECEIPT")
            self.assertEqual(self.made.acknowledged, EVENTS[:1])
        self.assertEqual(self.client.ask("ACK", {"message-id": "1-0123abcd-1-1"})["code"], "100600")

    def test_lateAckChangesNothing(self) -> None:
        """What crossed with something else changes nothing."""
        self.subscribe()
        [message] = self.publish(EVENTS[0])
        ack = {"id": message["ack"]}
        for _ in range(2):
            self.client.send("ACK", ack)
        self.client.send("NACK", ack)
        self.client.send("UNSUBSCRIBE", {"id": "s"})
        self.client.send("ACK", ack)
        self.assertEqual(self.made.acknowledged, EVENTS[:1])
        self.assertEqual(self.client.frames(), [])

    def test_ackInAutoModeIsIgnored(self) -> None:
        """A needless ACK is no error."""
        self.subscribe("auto")
        [message] = self.publish(EVENTS[0])
        self.client.send("ACK", {"id": message["message-id"]})
        self.assertEqual((self.client.frames(), self.made.acknowledged), ([], []))

    def test_malformedAckIsRefused(self) -> None:
        for id in ("", "x", "1", "2-0123abcd-1-1", "0-0123abcd-1-1", "1-0123abcd-1-1-1"):
            self.subscribe()
            for command in ("ACK", "NACK"):
                client = self.server.connect()
                client.send("SUBSCRIBE", {"id": "s", "destination": "a", "ack": "client"})
                answer = client.ask(command, {"id": id, "receipt": "r"})
                self.assertEqual((answer.command, answer["code"]), ("ERROR", "100600"), id)


class NackTests(AckTestCase):
    """NACK: the message is sent again, in its order."""

    def test_individualNackRedeliversOneMessage(self) -> None:
        self.subscribe("client-individual")
        messages = self.publish(*EVENTS[:3])
        self.client.send("NACK", {"id": messages[1]["ack"]})
        [again] = self.client.frames()
        self.assertEqual(again["redelivered"], "true")
        self.assertEqual(again["message-id"], messages[1]["message-id"])
        self.assertEqual(again.body, messages[1].body)
        self.assertEqual(self.made.acknowledged, [])
        self.client.send("ACK", {"id": again["ack"]})
        self.assertEqual(self.made.acknowledged, [EVENTS[1]])

    def test_clientNackRedeliversEarlierMessages(self) -> None:
        self.subscribe()
        messages = self.publish(*EVENTS[:5])
        self.client.send("NACK", {"id": messages[2]["ack"]})
        again = self.client.frames()
        self.assertEqual([each["eventId"] for each in again], [m["eventId"] for m in messages[:3]])
        self.client.send("ACK", {"id": again[2]["ack"]})
        self.assertEqual(len(self.made.acknowledged), 5)

    def test_givenUp(self) -> None:
        """C{requeue:false} gives a message up, however the client writes it."""
        for number, text in enumerate(("false", "False", " FALSE")):
            self.subscribe("client-individual")
            [message] = self.publish(EVENTS[0])
            self.client.send("NACK", {"id": message["ack"], "requeue": text})
            acknowledged = self.made.acknowledged
            self.assertEqual((self.client.frames(), acknowledged), ([], EVENTS[:1]), number)

    def test_thousandsAreSentAgainInSteps(self) -> None:
        """Between two of which there is a look at the time."""
        self.subscribe(prefetch="2500")
        messages = self.publish(*[event(number) for number in range(1, 2501)])
        self.assertEqual(len(messages), 2500)
        session = self.client.protocol._session
        nack = frame("NACK", {"id": messages[-1]["ack"]})
        effects = session.receive(nack, 0.0)
        sent = []
        while effects:
            write, *rest = effects
            assert isinstance(write, Write)
            sent.append(write.data.count(b"redelivered:true"))
            self.assertLessEqual(len(rest), 1)
            effects = session.resumeFrames(0.0) if rest else []
        self.assertEqual(sent, [MESSAGES_AT_ONCE, MESSAGES_AT_ONCE, 500])

    def test_manyAtOnce(self) -> None:
        """A read full of NACKs for one message has it sent once."""
        self.subscribe("client-individual")
        [message] = self.publish(event(1, content=b"x" * 1000))
        self.client.sendBytes(frame("NACK", {"id": message["ack"]}) * 1000)
        self.assertEqual(len(self.client.frames()), 1)


class WindowTests(AckTestCase):
    """What is sent ahead of acknowledgements."""

    def test_prefetchCountBoundsTheWindow(self) -> None:
        """As many as C{prefetch-count}, out of a larger batch too."""
        self.subscribe("client-individual", prefetch="2")
        first, second = self.publish(*EVENTS)
        self.assertFalse(self.made.isFlowing)
        self.client.send("ACK", {"id": second["ack"]})
        [third] = self.messages()
        self.assertEqual(third["eventId"], str(EVENTS[2].eventId))
        self.client.send("ACK", {"id": first["ack"]})
        self.client.send("ACK", {"id": third["ack"]})
        self.assertEqual(len(self.messages()), 2)
        self.assertFalse(self.made.isFlowing)

    def test_flowsAgain(self) -> None:
        """When a batch is gone and there is room, the next may come."""
        self.subscribe(prefetch="2")
        self.made.publish(EVENTS[0], EVENTS[1])
        self.assertFalse(self.made.isFlowing)
        _, last = self.publish(EVENTS[2])
        self.client.send("ACK", {"id": last["ack"]})
        self.assertTrue(self.made.isFlowing)
        self.assertEqual(len(self.messages()), 1)

    def test_prefetchCountIsLimited(self) -> None:
        """0 and too many mean as many as may be; nothing means the default."""
        settings = StompSettings(defaultPrefetch=2, maxPrefetch=4)
        for prefetch, count in ((None, 2), ("0", 4), ("999", 4), ("3", 3)):
            self.subscribe(settings=settings, prefetch=prefetch)
            self.assertEqual(len(self.publish(*EVENTS)), count)

    def test_subscriptionsShareABoundOfBytes(self) -> None:
        """All subscriptions of a connection share a bound of bytes, and go on together."""
        settings = StompSettings(maxUnacknowledgedBytes=2000)
        self.subscribe("client", settings=settings)
        self.client.send("SUBSCRIBE", {"id": "t", "destination": "a", "ack": "client"})
        self.client.send("SUBSCRIBE", {"id": "u", "destination": "a"})
        _, second, third = self.server.fake.made
        [large] = self.publish(event(1, content=b"x" * 5000))
        self.assertFalse(self.made.isFlowing or second.isFlowing)
        self.assertTrue(third.isFlowing)
        self.client.send("ACK", {"id": large["ack"]})
        self.assertTrue(self.made.isFlowing and second.isFlowing)

    def test_bytesOfTheEnded(self) -> None:
        """What an ended subscription held is free again."""
        settings = StompSettings(maxUnacknowledgedBytes=2000)
        self.subscribe("client", settings=settings)
        self.client.send("SUBSCRIBE", {"id": "t", "destination": "a", "ack": "client"})
        self.publish(event(1, content=b"x" * 5000))
        self.assertFalse(self.server.fake.made[1].isFlowing)
        self.client.send("UNSUBSCRIBE", {"id": "s"})
        self.assertTrue(self.server.fake.made[1].isFlowing)

    def test_stalledClientGetsNoRedelivery(self) -> None:
        """Nothing is sent again to who does not read, until they do."""
        self.subscribe("client-individual")
        [message] = self.publish(EVENTS[0])
        self.client.stopReading()
        self.client.send("NACK", {"id": message["ack"]})
        self.assertEqual(self.client.frames(), [])
        self.client.goOnReading()
        self.assertEqual(len(self.client.frames()), 1)
