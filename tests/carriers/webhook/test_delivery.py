"""
Tests for L{svcbroker.carriers.webhook.delivery}: every event, in order, until it is acknowledged.
"""

from __future__ import annotations

import gc
from itertools import pairwise

from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY
from svcbroker.carriers.webhook.webhookservice import TIMEOUT
from svcbroker.errors import LedgerUnavailable
from svcbroker.interfaces import Batch, submit
from svcbroker.model import CloseTopic, Edge, EventFormat, InterfaceType
from tests import examples

from .support import PUBLIC, SETTINGS, URL, Harness, Post


class DeliveryTests(SynchronousTestCase):
    """
    One webhook.
    """

    def setUp(self) -> None:
        self.harness = Harness(self)
        self.harness.open("a", "b")
        self.poster = self.harness.poster

    def waiting(self) -> tuple[int, int]:
        """How many events were notified and how many wait, as operators see it."""
        (record,) = self.successResultOf(
            self.harness.subscriptions.listSubscriptions(ANYBODY, None)
        )
        return record.notified, record.notifying

    def test_eventsAreSentOneByOneInOrder(self) -> None:
        """Each is sent after the answer to the last."""
        self.poster.judge = lambda post: None
        self.successResultOf(self.harness.subscribe(URL, "a", "b"))
        self.harness.publish("1", "2")
        self.harness.publish("3", topic="b")
        for number in ("1", "2", "3"):
            self.assertEqual([post.content for post in self.poster.open], [number])
            self.assertEqual(self.waiting(), (int(number) - 1, 4 - int(number)))
            self.poster.open[0].answer.callback(None)
            self.harness.settle()
        self.assertEqual(self.poster.contents, ["1", "2", "3"])
        self.assertEqual(self.waiting(), (3, 0))

    def test_operatorsSeeAuthorityButNotPath(self) -> None:
        """A path may hold a secret."""
        id = self.successResultOf(
            self.harness.subscribe(URL + "?key=x", interfaceType=InterfaceType.JSON_RPC)
        )
        (record,) = self.successResultOf(
            self.harness.subscriptions.listSubscriptions(ANYBODY, None)
        )
        self.assertEqual(record.subscriptionId, id)
        self.assertEqual(record.interfaceType, InterfaceType.JSON_RPC)
        self.assertEqual(record.remote, f"{PUBLIC}:80")

    def test_unacknowledgedEventIsSentAgain(self) -> None:
        """Before anything else, and later each time."""
        self.poster.judge = lambda post: False
        self.successResultOf(self.harness.subscribe())
        self.harness.publish("1", "2")
        times = [self.harness.clock.seconds()]
        while len(self.poster.posts) < 12:
            before = len(self.poster.posts)
            while len(self.poster.posts) == before:
                self.harness.clock.advance(0.125)
            times.append(self.harness.clock.seconds())
        self.assertEqual(set(self.poster.contents), {"1"})
        waits = [round(b - a) for a, b in pairwise(times[1:])]
        self.assertEqual(waits, [1, 2, 4, 8, 16, 30, 30, 30, 30, 30])
        self.poster.judge = lambda post: True
        self.harness.clock.pump([1.0] * 31)
        self.assertEqual(self.poster.contents[12:], ["1", "2"])
        # The next failure begins anew.
        self.poster.judge = lambda post: False
        self.harness.publish("3")
        self.poster.judge = lambda post: True
        self.harness.settle(0.6)
        self.assertEqual(self.poster.contents[14:], ["3", "3"])

    def test_cloudEventIsTheSameInEachAttempt(self) -> None:
        for format in (EventFormat.CLOUD_EVENTS, EventFormat.BINARY_CLOUD_EVENTS):
            self.poster.judge = lambda post: False
            id = self.successResultOf(self.harness.subscribe(format=format))
            self.harness.publish("1", "2")
            self.harness.clock.pump([1.0] * 10)
            self.poster.judge = lambda post: True
            self.harness.clock.pump([1.0] * 31)
            first, *others, last = (post.payload for post in self.poster.posts)
            self.assertGreater(len(others), 2)
            self.assertEqual([each for each in others if each != first], [])
            self.assertNotEqual(last, first)
            ended = self.harness.webhooks.unSubscribe(ANYBODY, id)
            self.harness.settle()
            self.assertTrue(self.successResultOf(ended))
            self.poster.posts.clear()

    def test_idleWebhookHoldsNoSlotOrTimer(self) -> None:
        """Without events nothing is sent."""
        self.successResultOf(self.harness.subscribe())
        self.harness.publish("1", topic="b")
        self.assertEqual(self.poster.posts, [])
        self.assertEqual(self.harness.slots.busy, 0)
        self.harness.clock.advance(TIMEOUT)
        self.assertEqual(self.harness.clock.getDelayedCalls(), [])

    def test_failingWebhookKeepsNoEventsInMemory(self) -> None:
        """It has no slot either while it waits to try again."""
        self.poster.judge = lambda post: False
        self.successResultOf(self.harness.subscribe())
        self.harness.publish("1")
        self.assertEqual(self.harness.slots.busy, 0)
        self.assertEqual(len(self.poster.posts), 1)
        for _ in range(3):
            # The receiver's own memory.
            self.poster.posts.clear()
            gc.collect()
            batches = [each for each in gc.get_objects() if isinstance(each, Batch)]
            self.assertEqual(batches, [])
            self.harness.clock.pump([1.0] * 10)

    def test_unsubscribeCancelsRequestUnderWay(self) -> None:
        """Nothing is sent after it."""
        self.poster.judge = lambda post: None
        id = self.successResultOf(self.harness.subscribe())
        self.harness.publish("1", "2")
        ended = self.harness.webhooks.unSubscribe(ANYBODY, id)
        self.harness.settle()
        self.assertTrue(self.successResultOf(ended))
        self.assertTrue(self.poster.posts[0].isCancelled)
        self.harness.publish("3")
        self.harness.clock.pump([10.0] * 10)
        self.assertEqual(self.poster.contents, ["1"])
        self.assertEqual(self.harness.slots.busy, 0)
        self.assertEqual(self.harness.disk.kept, {})

    def test_unreadableLogIsTriedAgain(self) -> None:
        """No event is lost."""
        self.poster.judge = lambda post: False
        self.successResultOf(self.harness.subscribe())
        self.harness.publish("1")
        ledger = self.harness.ledger
        read = ledger.readBlock

        def fail(height: int) -> object:
            raise LedgerUnavailable()

        follower = self.harness.subscriptions._followers["1"]
        follower._cache.clear()
        self.patch(ledger, "readBlock", fail)
        self.harness.clock.pump([0.25] * 40)
        self.assertEqual(self.poster.contents, ["1"])
        self.patch(ledger, "readBlock", read)
        self.poster.judge = lambda post: True
        self.harness.clock.pump([1.0] * 120)
        self.assertEqual(self.poster.contents, ["1", "1"])
        self.flushLoggedErrors(LedgerUnavailable)

    def test_onlyEventsWithTagAreSent(self) -> None:
        self.successResultOf(self.harness.subscribe(tag="x"))
        self.harness.publish("1", tag="y")
        self.harness.publish("2", tag="x")
        self.assertEqual(self.poster.contents, ["2"])


class RestartTests(SynchronousTestCase):
    """
    The broker ends, in order or not, and starts again.
    """

    def setUp(self) -> None:
        self.harness = Harness(self)
        self.harness.open("a")

    def test_unacknowledgedEventsAreSentAfterKill(self) -> None:
        """In order."""
        self.harness.poster.judge = lambda post: post.content == "1" or None
        self.successResultOf(self.harness.subscribe())
        self.harness.publish("1", "2", "3")
        self.assertEqual(self.harness.poster.contents, ["1", "2"])
        self.harness.kill()
        self.harness.publish("4")
        self.harness.poster.judge = lambda post: True
        self.harness.start()
        self.harness.settle(1.0)
        self.assertEqual(self.harness.poster.contents, ["2", "3", "4"])

    def test_eventAfterSubscribeIsSentAfterKill(self) -> None:
        """It was published just after subscribe had answered, and before the webhook ran."""
        self.successResultOf(self.harness.subscribe())
        self.harness.kill()
        self.harness.publish("1")
        self.harness.start()
        self.harness.settle(1.0)
        self.assertEqual(self.harness.poster.contents, ["1"])

    def test_closedTopicsLastEventsAreSent(self) -> None:
        """Also where it was closed during the restart."""
        self.harness.poster.judge = lambda post: None
        self.successResultOf(self.harness.subscribe())
        self.harness.publish("1")
        submit(self.harness.ledger, CloseTopic(topic="a"))
        self.harness.settle()
        self.harness.kill()
        self.harness.poster.judge = lambda post: True
        self.harness.start()
        self.harness.settle(1.0)
        self.assertEqual(self.harness.poster.contents, ["1"])

    def test_stopWaitsForAnswer(self) -> None:
        """It sends nothing more."""
        self.harness.poster.judge = lambda post: None
        self.successResultOf(self.harness.subscribe())
        self.harness.publish("1", "2")
        stopping = self.harness.webhooks.stop()
        self.assertNoResult(stopping)
        self.harness.poster.open[0].answer.callback(None)
        self.successResultOf(stopping)
        self.assertEqual(self.harness.poster.contents, ["1"])
        self.harness.settle()
        self.harness.kill()
        self.harness.poster.judge = lambda post: True
        self.harness.start()
        self.harness.settle(1.0)
        self.assertEqual(self.harness.poster.contents, ["2"])

    def test_cancelledStopCancelsRequest(self) -> None:
        """The event is sent again later."""
        self.harness.poster.judge = lambda post: None
        self.successResultOf(self.harness.subscribe())
        self.harness.publish("1")
        stopping = self.harness.webhooks.stop()
        stopping.cancel()
        self.successResultOf(stopping)
        self.assertTrue(self.harness.poster.posts[0].isCancelled)
        self.assertEqual(self.harness.slots.busy, 0)

    def test_webhookOfMissingGroupWaits(self) -> None:
        """Others are not affected."""
        self.successResultOf(self.harness.subscribe())
        key, value = next(
            (key, value) for key, value in self.harness.disk.kept.items() if key[0] == "webhook"
        )
        self.harness.kill()
        self.harness.disk.kept[key] = value.replace(b'"group":"1"', b'"group":"9"')
        self.harness.start()
        self.harness.settle(2.0)
        ended = self.harness.webhooks.unSubscribe(ANYBODY, key[1])
        self.harness.settle()
        self.assertTrue(self.successResultOf(ended))

    @settings(
        max_examples=examples(100),
        deadline=None,
        derandomize=True,
    )
    @given(st.lists(st.sampled_from("pppfatttk"), max_size=40))
    def test_anyHistoryDeliversAllInOrder(self, steps: list[str]) -> None:
        """
        Whatever happens between (p: publish, f: requests fail, a: are answered, t: time passes,
        k: the broker is killed and started), the receiver has every event, the first time in
        order; and never misses one in between.
        """
        harness = Harness()
        harness.open("a")
        mood: dict[str, bool | None] = {"verdict": True}
        received: list[int] = []

        def judge(post: Post) -> bool | None:
            if mood["verdict"]:
                received.append(int(post.content))
            return mood["verdict"]

        harness.poster.judge = judge
        self.successResultOf(harness.subscribe(offset=Edge.FIRST))
        count = 0
        for step in steps:
            if step == "p":
                harness.publish(str(count))
                count += 1
            elif step == "f":
                mood["verdict"] = False
            elif step == "a":
                mood["verdict"] = True
            elif step == "t":
                harness.clock.pump([0.5] * 10)
            else:
                harness.kill()
                harness.start()
                harness.settle()
        mood["verdict"] = True
        harness.clock.pump([1.0] * 120)
        harness.kill()
        firsts = list(dict.fromkeys(received))
        self.assertEqual(firsts, list(range(count)))
        for before, after in pairwise(received):
            self.assertLessEqual(after, before + 1)


class FairnessTests(SynchronousTestCase):
    """
    Many webhooks.
    """

    def test_hangingHostLeavesSlotsToOthers(self) -> None:
        """It has its part of the requests and no more."""
        harness = Harness(self)
        harness.open("a")
        harness.poster.judge = lambda post: None if post.target.port == 8081 else True
        for number in range(20):
            self.successResultOf(harness.subscribe(f"http://{PUBLIC}:8081/{number}"))
        self.successResultOf(harness.subscribe())
        harness.publish("1", "2", "3")
        self.assertEqual(len(harness.poster.open), SETTINGS.connectionsPerHost)
        others = [post.content for post in harness.poster.posts if post.target.port == 80]
        self.assertEqual(others, ["1", "2", "3"])

    def test_moreWebhooksThanSlotsAllDeliver(self) -> None:
        """Each gets each event, in order."""
        harness = Harness(self, evolve(SETTINGS, connections=1, turn=0.0))
        harness.open("a")
        ids = [self.successResultOf(harness.subscribe()) for _ in range(12)]
        harness.publish(*"12345")
        harness.settle(2.0)
        for id in ids:
            mine = [post.content for post in harness.poster.posts if post.subscriptionId == id]
            self.assertEqual(mine, list("12345"))

    def test_busyWebhookYieldsItsSlot(self) -> None:
        """Another goes first when its turn is over."""
        harness = Harness(self, evolve(SETTINGS, connections=1, turn=0.0))
        harness.open("a")
        harness.poster.judge = lambda post: None
        ids = [self.successResultOf(harness.subscribe()) for _ in range(2)]
        harness.publish(*"123456")
        seen = []
        while harness.poster.open:
            (post,) = harness.poster.open
            seen.append(post.subscriptionId)
            post.answer.callback(None)
            harness.settle()
        self.assertEqual(len(seen), 12)
        self.assertLess(max(seen.index(id) for id in ids), 4)
        self.assertGreater(seen.index(ids[0]) + seen.index(ids[1]), 0)
