"""
STOMP on the real subscriptions: what a client gets is the log, on each ledger.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY
from svcbroker.broker import Broker, Limits
from svcbroker.broker.subscriptions import Subscriptions
from svcbroker.interfaces import ILedger
from svcbroker.ledgers.pbft import configure
from svcbroker.testing import ClockFixture
from svcbroker.testing._fixtures import memoryLedger
from tests import examples
from tests.broker.support import Fixture, makeCalls

from .support import Client, Received, Server

OWN = "12345678-1234-4234-8234-123456789abc"


class Node:
    """
    A broker with STOMP and real subscriptions, on a clock.

    @ivar server: the carrier.
    """

    def __init__(self, ledger: Any, clock: Clock) -> None:
        ledgers: dict[str, ILedger] = {"1": ledger}
        numbers = itertools.count(1)
        self.clock = clock
        self.subscriptions = Subscriptions(
            ledgers, clock, clock.seconds, lambda size: next(numbers).to_bytes(size, "big")
        )
        broker = Broker(
            ledgers,
            clock,
            Limits(maxContent=10_000),
            self.subscriptions,
        )
        self.subscriptions.start()
        fixture = Fixture(clock, ledger, ledger, broker, makeCalls(broker))
        self.server = Server(fixture=fixture, subscriptions=self.subscriptions, topics=())
        for topic in ("a", "b/c", "b"):
            broker.open(ANYBODY, None, topic)
        self.turn()

    def turn(self) -> None:
        """Let everything happen that is due."""
        self.clock.pump([0.01] * 12)

    def publish(self, client: Client, topic: str, *contents: str) -> list[str]:
        """Publish; the event ids."""
        for number, content in enumerate(contents):
            client.send("SEND", {"destination": topic, "receipt": f"p{number}"}, content.encode())
        self.turn()
        return [each["eventId"] for each in client.frames()]

    def bodies(self, client: Client) -> list[str]:
        """The bodies of the messages that have come."""
        return [each.body.decode() for each in self.messages(client)]

    def messages(self, client: Client) -> list[Received]:
        """The messages that have come."""
        self.turn()
        frames = client.frames()
        self_errors = [each for each in frames if each.command == "ERROR"]
        assert not self_errors, self_errors
        return [each for each in frames if each.command == "MESSAGE"]


class Journeys:
    """
    What clients do. Mixed into a test of one ledger.
    """

    node: Node

    def test_liveEventsArriveInOrder(self: Any) -> None:
        """A subscriber gets what is published from now on, to topics and patterns, in order."""
        node: Node = self.node
        publisher, reader = node.server.connect(), node.server.connect("1.1")
        node.publish(publisher, "a", "old")
        reader.send("SUBSCRIBE", {"id": "1", "destination": "a,b/#"})
        node.turn()
        node.publish(publisher, "a", "1")
        node.publish(publisher, "b/c", "2")
        node.publish(publisher, "b", "3", "4")
        self.assertEqual(node.bodies(reader), ["1", "2", "3", "4"])

    def test_replayContinuesLiveWithoutGap(self: Any) -> None:
        """History, then live, without gap or double; from the start, and after an event."""
        node: Node = self.node
        publisher = node.server.connect()
        ids = node.publish(publisher, "a", *map(str, range(20)))
        for offset, first in (("OFFSET_FIRST", 0), (ids[6], 7), (ids[-1], 20)):
            reader = node.server.connect()
            reader.send("SUBSCRIBE", {"id": "1", "destination": "a", "eventId": offset})
            node.publish(publisher, "a", "live")
            bodies = node.bodies(reader)
            self.assertEqual(bodies[: 20 - first], list(map(str, range(first, 20))))
            self.assertEqual(set(bodies[20 - first :]), {"live"})
            reader.disconnect()

    def test_unacknowledgedMessagesComeAgain(self: Any) -> None:
        """What was not acknowledged comes again when the subscription's id comes back."""
        node: Node = self.node
        publisher = node.server.connect()
        subscribe = {
            "id": "1",
            "destination": "a",
            "ack": "client-individual",
            "svc-subscriptionId": OWN,
        }
        reader = node.server.connect()
        reader.send("SUBSCRIBE", subscribe)
        node.turn()
        node.publish(publisher, "a", *"12345")
        messages = node.messages(reader)
        for number in (0, 2, 3):
            reader.send("ACK", {"id": messages[number]["ack"]})
        reader.disconnect()
        node.publish(publisher, "a", "6")
        reader = node.server.connect()
        reader.send("SUBSCRIBE", subscribe)
        self.assertEqual(node.bodies(reader), ["2", "5", "6"])
        reader.send("UNSUBSCRIBE", {"id": "1", "svc-subscriptionId": OWN})
        reader.send("SUBSCRIBE", subscribe)
        self.assertEqual(node.bodies(reader), [])

    def test_idInUse(self: Any) -> None:
        node: Node = self.node
        for code in (None, "100507"):
            client = node.server.connect()
            client.send("SUBSCRIBE", {"id": "1", "destination": "a", "svc-subscriptionId": OWN})
            node.turn()
            errors = client.frames()
            self.assertEqual(errors[0]["code"] if errors else None, code)

    def test_brokerRefusalsReachTheClient(self: Any) -> None:
        """The broker's refusals reach the client by the table."""
        node: Node = self.node
        for headers, code in (
            ({"destination": "none"}, "100101"),
            ({"destination": "a+"}, "100109"),
            ({"destination": "a,"}, "100103"),
            ({"destination": "a", "groupId": "7"}, "200211"),
            ({"destination": "a", "eventId": "0123abcd-1-99999"}, "100303"),
            ({"destination": "a", "svc-subscriptionId": "x"}, "100505"),
        ):
            client = node.server.connect()
            client.send("SUBSCRIBE", {"id": "1", "receipt": "r", **headers})
            node.turn()
            [answer] = client.frames()
            self.assertEqual((answer.command, answer["code"]), ("ERROR", code), headers)

    def test_ownEvent(self: Any) -> None:
        """Who subscribes and publishes in one go gets their own event."""
        node: Node = self.node
        client = node.server.connect()
        client.sendBytes(
            b"SUBSCRIBE\nid:1\ndestination:a\n\n\0SEND\ndestination:a\nsvc-tag:x\n\nmine\0"
        )
        [message] = node.messages(client)
        self.assertEqual((message.body, message["svc-tag"]), (b"mine", "x"))

    def test_onlyTaggedEventsArrive(self: Any) -> None:
        node: Node = self.node
        client = node.server.connect()
        client.send("SUBSCRIBE", {"id": "1", "destination": "#", "svc-tag": "red"})
        node.turn()
        for tag in ("red", "blue", "red"):
            client.send("SEND", {"destination": "a", "svc-tag": tag}, tag.encode())
        self.assertEqual(node.bodies(client), ["red", "red"])

    def test_slowReaderDelaysNoOther(self: Any) -> None:
        """A reader that does not read delays nobody, and gets everything afterwards."""
        node: Node = self.node
        publisher, slow, quick = (node.server.connect() for _ in range(3))
        for reader in (slow, quick):
            reader.send("SUBSCRIBE", {"id": "1", "destination": "a"})
        node.turn()
        slow.stopReading()
        contents = list(map(str, range(30)))
        node.publish(publisher, "a", *contents)
        self.assertEqual(node.bodies(quick), contents)
        self.assertEqual(node.bodies(slow), [])
        slow.goOnReading()
        self.assertEqual(node.bodies(slow), contents)

    def test_acknowledgingBringsMoreMessages(self: Any) -> None:
        """Acknowledging pulls the rest out of the log."""
        node: Node = self.node
        publisher, reader = node.server.connect(), node.server.connect()
        reader.send(
            "SUBSCRIBE", {"id": "1", "destination": "a", "ack": "client", "prefetch-count": "3"}
        )
        node.turn()
        contents = list(map(str, range(10)))
        node.publish(publisher, "a", *contents)
        got = []
        while messages := node.messages(reader):
            self.assertLessEqual(len(messages), 3)
            got += [each.body.decode() for each in messages]
            reader.send("ACK", {"id": messages[-1]["ack"]})
        self.assertEqual(got, contents)

    def test_subscriptionIsListed(self: Any) -> None:
        """C{listSubscription} knows it."""
        node: Node = self.node
        client = node.server.connect()
        client.send("SUBSCRIBE", {"id": "1", "destination": "a,b/#", "receipt": "r"})
        node.turn()
        [receipt] = client.frames()
        [record] = self.successResultOf(node.subscriptions.listSubscriptions(ANYBODY, None))
        self.assertEqual(record.subscriptionId, receipt["subscription-id"])
        self.assertEqual((record.interfaceType.value, record.group), ("STOMP", "1"))
        self.assertEqual((record.filters, record.remote), (("a", "b/#"), "192.168.1.1:54321"))
        client.disconnect()
        self.assertEqual(
            list(self.successResultOf(node.subscriptions.listSubscriptions(ANYBODY, None))), []
        )


class MemoryTests(Journeys, SynchronousTestCase):
    """On the memory ledger."""

    def setUp(self) -> None:
        clock = Clock()
        clock.advance(1_700_000_000)
        self.node = Node(memoryLedger(clock), clock)

    @settings(deadline=None, max_examples=examples(30))
    @given(
        steps=st.lists(
            st.one_of(
                st.tuples(st.just("publish"), st.integers(1, 5)),
                st.tuples(st.sampled_from(["ack", "nack"]), st.integers(0, 20)),
                st.tuples(st.sampled_from(["stop", "go on", "come back", "turn"]), st.just(0)),
            ),
            max_size=25,
        ),
        ack=st.sampled_from(["client", "client-individual"]),
        prefetch=st.integers(1, 4),
    )
    # Of two that were acknowledged behind the first one, one came again.
    @example(
        steps=[("publish", 3), ("ack", 1), ("come back", 0), ("ack", 1), ("come back", 0)],
        ack="client-individual",
        prefetch=2,
    )
    def test_anyCourse(self, steps: list[tuple[str, int]], ack: str, prefetch: int) -> None:
        """
        Whatever a client does: nothing is lost, nothing is acknowledged that it did not
        acknowledge, and in the end, after it has acknowledged everything, it has everything.
        """
        self.setUp()
        node = self.node
        publisher = node.server.connect()
        subscribe = {
            "id": "1",
            "destination": "a",
            "ack": ack,
            "prefetch-count": str(prefetch),
            "svc-subscriptionId": OWN,
        }
        count = 0
        open_: list[Received] = []
        done: set[str] = set()
        reader = node.server.connect()
        reader.send("SUBSCRIBE", subscribe)

        def collect() -> None:
            for message in node.messages(reader):
                body = message.body.decode()
                self.assertNotIn(body, done)
                open_[:] = [each for each in open_ if each.body != message.body] + [message]
                self.assertLessEqual(len(open_), prefetch)

        for step, number in steps:
            if step == "publish":
                names = [str(count + each) for each in range(number)]
                count += number
                node.publish(publisher, "a", *names)
            elif step in ("ack", "nack") and open_:
                index = number % len(open_)
                first = 0 if ack == "client" else index
                taken = open_[first : index + 1]
                del open_[first : index + 1]
                reader.send(step.upper(), {"id": taken[-1]["ack"]})
                if step == "ack":
                    done.update(each.body.decode() for each in taken)
            elif step == "stop":
                reader.stopReading()
            elif step == "go on":
                reader.goOnReading()
            elif step == "come back":
                reader.disconnect()
                open_.clear()
                reader = node.server.connect()
                reader.send("SUBSCRIBE", subscribe)
            collect()
        reader.goOnReading()
        collect()
        while open_:
            reader.send("ACK", {"id": open_[0]["ack"]})
            done.add(open_.pop(0).body.decode())
            collect()
        self.assertEqual(done, {str(number) for number in range(count)})


class PbftTests(Journeys, SynchronousTestCase):
    """On the embedded ledger."""

    def setUp(self) -> None:
        fixture = ClockFixture(configure({"nodes": "4"}), isDurable=True)
        ledger = fixture.makeLedger(Path(self.mktemp()))
        started = ledger.start()
        fixture.clock.pump([0.01] * 20)
        self.successResultOf(started)
        self.node = Node(ledger, fixture.clock)

    def tearDown(self) -> None:
        stopped = self.node.server.fixture.ledger.stop()
        self.node.clock.pump([0.1] * 50)
        self.successResultOf(stopped)
