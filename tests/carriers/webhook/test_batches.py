"""
Tests for L{svcbroker.carriers.webhook.delivery}: several events in one request.
"""

from __future__ import annotations

import gc
import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY
from svcbroker.carriers.webhook.webhookservice import TIMEOUT
from svcbroker.interfaces import Batch
from svcbroker.model import Edge, EventFormat, InterfaceType
from tests import examples

from .support import Harness, Post


class BatchTests(SynchronousTestCase):
    """
    One webhook with batches.
    """

    def setUp(self) -> None:
        self.harness = Harness(self)
        self.harness.open("a", "b")
        self.poster = self.harness.poster

    def subscribe(self, batch: int = 4, seconds: int = 2, **options: Any) -> str:
        """A webhook with batches."""
        return self.successResultOf(
            self.harness.subscribe(batch=batch, batchSeconds=seconds, **options)
        )

    def sent(self) -> list[list[str]]:
        """The contents of each request."""
        return [post.contents for post in self.poster.posts]

    def test_fullBatchIsSentAtOnce(self) -> None:
        self.subscribe()
        self.harness.publish("1", "2", "3")
        self.assertEqual(self.sent(), [])
        self.harness.publish("4", "5")
        self.assertEqual(self.sent(), [["1", "2", "3", "4"]])
        self.harness.settle(3.0)
        self.assertEqual(self.sent(), [["1", "2", "3", "4"], ["5"]])

    def test_partialBatchIsSentInTime(self) -> None:
        """The time counts from its first event."""
        self.subscribe()
        self.harness.publish("1")
        self.harness.settle(1.0)
        self.harness.publish("2")
        self.assertEqual(self.sent(), [])
        self.harness.settle(1.0)
        self.assertEqual(self.sent(), [["1", "2"]])
        self.harness.clock.advance(TIMEOUT)
        self.assertEqual(self.harness.clock.getDelayedCalls(), [])

    def test_withoutWaitWhatIsThereIsSent(self) -> None:
        self.subscribe(seconds=0)
        self.harness.publish("1")
        self.harness.publish("2")
        self.assertEqual(self.sent(), [["1"], ["2"]])

    def test_bodyIsArrayOfWhatEachWouldBe(self) -> None:
        """In both forms, of a single event too. The id of the last event is the message's."""
        for interfaceType in (InterfaceType.RESTFUL, InterfaceType.JSON_RPC):
            self.subscribe(interfaceType=interfaceType)
        self.harness.publish("1", "2")
        self.harness.settle(3.0)
        rest, rpc = (json.loads(post.body) for post in self.poster.posts)
        ids = [str(event.eventId) for event in self.poster.posts[0].events]
        self.assertEqual([each["event"]["eventId"] for each in rest], ids)
        self.assertEqual([each["id"] for each in rpc], ids)
        self.assertEqual([each["method"] for each in rpc], ["onEvent"] * 2)
        self.assertTrue(self.poster.posts[0].receiver.form.isBatch)
        self.harness.publish("3")
        self.harness.settle(3.0)
        self.assertEqual(len(json.loads(self.poster.posts[-1].body)), 1)

    def test_cloudEventsOfABatchAreAnArray(self) -> None:
        """By both interfaces, of a single event too, in the batch format of CloudEvents."""
        for interfaceType in (InterfaceType.RESTFUL, InterfaceType.JSON_RPC):
            self.subscribe(interfaceType=interfaceType, format=EventFormat.CLOUD_EVENTS)
        self.harness.publish("1", "2")
        self.harness.settle(3.0)
        rest, rpc = self.poster.posts
        self.assertEqual(rest.payload, rpc.payload)
        contentType = rest.payload.headers[b"Content-Type"]
        self.assertEqual(contentType, b"application/cloudevents-batch+json")
        told = json.loads(rest.body)
        self.assertEqual([each["data_base64"] for each in told], ["MQ==", "Mg=="])
        self.assertEqual({each["source"] for each in told}, {"/svcbroker/1/a"})
        self.assertEqual([each["id"] for each in told], [str(e.eventId) for e in rest.events])
        self.harness.publish("3")
        self.harness.settle(3.0)
        self.assertEqual(len(json.loads(self.poster.posts[-1].body)), 1)

    def test_backlogGoesOutInFullBatches(self) -> None:
        """From many small blocks too."""
        self.harness.publish(*(str(number) for number in range(10)))
        self.subscribe(offset=Edge.FIRST)
        self.harness.settle(10.0)
        self.assertEqual([len(each) for each in self.sent()], [4, 4, 2])
        self.assertEqual(self.poster.contents, [str(number) for number in range(10)])

    def test_oneBatchIsUnderWay(self) -> None:
        self.poster.judge = lambda post: None
        self.subscribe()
        self.harness.publish(*"12345678")
        self.harness.settle(5.0)
        self.assertEqual(self.sent(), [["1", "2", "3", "4"]])
        self.poster.open[0].answer.callback(None)
        self.harness.settle(5.0)
        self.assertEqual(self.sent()[1:], [["5", "6", "7", "8"]])

    def test_refusedEventIsFoundByHalving(self) -> None:
        """Those before it arrive, and batches grow again after it."""
        self.poster.judge = lambda post: "7" not in post.contents
        self.subscribe(batch=8)
        self.harness.publish(*"123456789")
        self.harness.clock.pump([0.5] * 40)
        good = [post.contents for post in self.poster.posts if "7" not in post.contents]
        self.assertEqual([each for some in good for each in some], list("123456"))
        self.assertEqual(self.sent()[-1], ["7"])
        self.poster.judge = lambda post: True
        self.harness.clock.pump([1.0] * 120)
        self.assertEqual(self.poster.contents[-3:], ["7", "8", "9"])

    def test_waitingBatchesTakeNoMemory(self) -> None:
        """Events that wait for others are counted, and read again."""
        self.subscribe()
        self.harness.publish("1", "2")
        self.assertEqual(self.harness.slots.busy, 0)
        follower = self.harness.subscriptions._followers["1"]
        follower._cache.clear()
        gc.collect()
        self.assertEqual([each for each in gc.get_objects() if isinstance(each, Batch)], [])
        self.harness.settle(3.0)
        self.assertEqual(self.sent(), [["1", "2"]])

    def test_killedBrokerSendsUnacknowledgedBatchAgain(self) -> None:
        self.poster.judge = lambda post: "1" in post.contents or None
        self.subscribe()
        self.harness.publish(*"12345678")
        self.harness.settle(3.0)
        self.assertEqual(self.sent(), [list("1234"), list("5678")])
        self.harness.kill()
        self.harness.poster.judge = lambda post: True
        self.harness.start()
        self.harness.settle(5.0)
        self.assertEqual([each.contents for each in self.harness.poster.posts], [list("5678")])

    @settings(max_examples=examples(60), deadline=None, derandomize=True)
    @given(st.lists(st.sampled_from("pppPfatttkur"), max_size=40), st.integers(0, 1))
    def test_anyHistoryDeliversAllInOrder(self, steps: list[str], seconds: int) -> None:
        """
        Whatever happens between (p, P: publish one, five; f: requests fail, a: are answered, t:
        time passes, k: the broker is killed and started, u: it is paused, r: resumed), the receiver
        has every event, the first time in order, and never misses one in between.
        """
        harness = Harness()
        harness.open("a")
        mood: dict[str, bool | None] = {"verdict": True}
        received: list[int] = []

        def judge(post: Post) -> bool | None:
            if mood["verdict"]:
                received.extend(map(int, post.contents))
            return mood["verdict"]

        harness.poster.judge = judge
        id = self.successResultOf(
            harness.subscribe(offset=Edge.FIRST, batch=4, batchSeconds=seconds)
        )
        count = 0
        for step in steps:
            if step in "pP":
                some = range(count, count + (1 if step == "p" else 5))
                harness.publish(*map(str, some))
                count = some.stop
            elif step in "fa":
                mood["verdict"] = step == "a"
            elif step == "t":
                harness.clock.pump([0.5] * 10)
            elif step == "k":
                harness.kill()
                harness.start()
                harness.settle()
            elif step == "u":
                harness.webhooks.pauseWebhook(ANYBODY, id)
                harness.settle()
            else:
                harness.webhooks.resumeWebhook(ANYBODY, id)
                harness.settle()
        mood["verdict"] = True
        harness.webhooks.resumeWebhook(ANYBODY, id)
        harness.clock.pump([1.0] * 120)
        harness.kill()
        self.assertEqual(list(dict.fromkeys(received)), list(range(count)))
        for before, after in pairwise(received):
            self.assertLessEqual(after, before + 1)
