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

from svcbroker.carriers.webhook.webhooks import TIMEOUT
from svcbroker.errors import LedgerUnavailable
from svcbroker.interfaces import Batch, submit
from svcbroker.model import CloseTopic, Edge, InterfaceType

from .support import PUBLIC, SETTINGS, URL, Post, World


class DeliveryTests(SynchronousTestCase):
    """
    One web hook.
    """

    def setUp(self) -> None:
        self.world = World(self)
        self.world.open("a", "b")
        self.poster = self.world.poster

    def waiting(self) -> tuple[int, int]:
        """How many events were notified and how many wait, as operators see it."""
        (record,) = self.successResultOf(self.world.subscriptions.listSubscriptions(None))
        return record.notified, record.notifying

    def test_order(self) -> None:
        """Events go out one at a time, in the order of the log, each after the last's answer."""
        self.poster.judge = lambda post: None
        self.successResultOf(self.world.subscribe(URL, "a", "b"))
        self.world.publish("1", "2")
        self.world.publish("3", topic="b")
        for number in ("1", "2", "3"):
            self.assertEqual([post.content for post in self.poster.open], [number])
            self.assertEqual(self.waiting(), (int(number) - 1, 4 - int(number)))
            self.poster.open[0].answer.callback(None)
            self.world.settle()
        self.assertEqual(self.poster.contents, ["1", "2", "3"])
        self.assertEqual(self.waiting(), (3, 0))

    def test_record(self) -> None:
        """Operators see whom it goes to, never the path, which may hold a secret."""
        id = self.successResultOf(
            self.world.subscribe(URL + "?key=x", interfaceType=InterfaceType.JSON_RPC)
        )
        (record,) = self.successResultOf(self.world.subscriptions.listSubscriptions(None))
        self.assertEqual(record.subscriptionId, id)
        self.assertEqual(record.interfaceType, InterfaceType.JSON_RPC)
        self.assertEqual(record.remote, f"{PUBLIC}:80")

    def test_repeated(self) -> None:
        """What is not acknowledged comes again, before anything else, later each time."""
        self.poster.judge = lambda post: False
        self.successResultOf(self.world.subscribe())
        self.world.publish("1", "2")
        times = [self.world.clock.seconds()]
        while len(self.poster.posts) < 12:
            before = len(self.poster.posts)
            while len(self.poster.posts) == before:
                self.world.clock.advance(0.125)
            times.append(self.world.clock.seconds())
        self.assertEqual(set(self.poster.contents), {"1"})
        waits = [round(b - a) for a, b in pairwise(times[1:])]
        self.assertEqual(waits, [1, 2, 4, 8, 16, 30, 30, 30, 30, 30])
        self.poster.judge = lambda post: True
        self.world.clock.pump([1.0] * 31)
        self.assertEqual(self.poster.contents[12:], ["1", "2"])
        # The next failure begins anew.
        self.poster.judge = lambda post: False
        self.world.publish("3")
        self.poster.judge = lambda post: True
        self.world.settle(0.6)
        self.assertEqual(self.poster.contents[14:], ["3", "3"])

    def test_idle(self) -> None:
        """Without events nothing is sent, no slot is taken and no timer runs."""
        self.successResultOf(self.world.subscribe())
        self.world.publish("1", topic="b")
        self.assertEqual(self.poster.posts, [])
        self.assertEqual(self.world.slots.busy, 0)
        self.world.clock.advance(TIMEOUT)
        self.assertEqual(self.world.clock.getDelayedCalls(), [])

    def test_failing(self) -> None:
        """While it waits to try again, it has no slot and keeps no events in memory."""
        self.poster.judge = lambda post: False
        self.successResultOf(self.world.subscribe())
        self.world.publish("1")
        self.assertEqual(self.world.slots.busy, 0)
        self.assertEqual(len(self.poster.posts), 1)
        for _ in range(3):
            # The receiver's own memory.
            self.poster.posts.clear()
            gc.collect()
            batches = [each for each in gc.get_objects() if isinstance(each, Batch)]
            self.assertEqual(batches, [])
            self.world.clock.pump([1.0] * 10)

    def test_unsubscribed(self) -> None:
        """After unSubscribe a request that is under way is given up, and nothing follows."""
        self.poster.judge = lambda post: None
        id = self.successResultOf(self.world.subscribe())
        self.world.publish("1", "2")
        ended = self.world.webhooks.unSubscribe(id)
        self.world.settle()
        self.assertTrue(self.successResultOf(ended))
        self.assertTrue(self.poster.posts[0].isCancelled)
        self.world.publish("3")
        self.world.clock.pump([10.0] * 10)
        self.assertEqual(self.poster.contents, ["1"])
        self.assertEqual(self.world.slots.busy, 0)
        self.assertEqual(self.world.notes.kept, {})

    def test_logFails(self) -> None:
        """A log that cannot be read now is tried again, and nothing is lost."""
        self.poster.judge = lambda post: False
        self.successResultOf(self.world.subscribe())
        self.world.publish("1")
        ledger = self.world.ledger
        read = ledger.readBlock

        def fail(height: int) -> object:
            raise LedgerUnavailable()

        follower = self.world.subscriptions._followers["1"]
        follower._cache.clear()
        self.patch(ledger, "readBlock", fail)
        self.world.clock.pump([0.25] * 40)
        self.assertEqual(self.poster.contents, ["1"])
        self.patch(ledger, "readBlock", read)
        self.poster.judge = lambda post: True
        self.world.clock.pump([1.0] * 120)
        self.assertEqual(self.poster.contents, ["1", "1"])
        self.flushLoggedErrors(LedgerUnavailable)

    def test_tag(self) -> None:
        """Only events with the tag are sent."""
        self.successResultOf(self.world.subscribe(tag="x"))
        self.world.publish("1", tag="y")
        self.world.publish("2", tag="x")
        self.assertEqual(self.poster.contents, ["2"])


class RestartTests(SynchronousTestCase):
    """
    The broker ends, in order or not, and starts again.
    """

    def setUp(self) -> None:
        self.world = World(self)
        self.world.open("a")

    def test_killed(self) -> None:
        """After a kill everything that was not acknowledged comes, in order."""
        self.world.poster.judge = lambda post: post.content == "1" or None
        self.successResultOf(self.world.subscribe())
        self.world.publish("1", "2", "3")
        self.assertEqual(self.world.poster.contents, ["1", "2"])
        self.world.kill()
        self.world.publish("4")
        self.world.poster.judge = lambda post: True
        self.world.start()
        self.world.settle(1.0)
        self.assertEqual(self.world.poster.contents, ["2", "3", "4"])

    def test_killedAtOnce(self) -> None:
        """What was published right after subscribe had answered comes, though nobody ran."""
        self.successResultOf(self.world.subscribe())
        self.world.kill()
        self.world.publish("1")
        self.world.start()
        self.world.settle(1.0)
        self.assertEqual(self.world.poster.contents, ["1"])

    def test_topicClosed(self) -> None:
        """A topic that was closed meanwhile does not keep its last events back."""
        self.world.poster.judge = lambda post: None
        self.successResultOf(self.world.subscribe())
        self.world.publish("1")
        submit(self.world.ledger, CloseTopic(topic="a"))
        self.world.settle()
        self.world.kill()
        self.world.poster.judge = lambda post: True
        self.world.start()
        self.world.settle(1.0)
        self.assertEqual(self.world.poster.contents, ["1"])

    def test_stopped(self) -> None:
        """An orderly stop waits for the answer that is due, and asks nothing more."""
        self.world.poster.judge = lambda post: None
        self.successResultOf(self.world.subscribe())
        self.world.publish("1", "2")
        stopping = self.world.webhooks.stop()
        self.assertNoResult(stopping)
        self.world.poster.open[0].answer.callback(None)
        self.successResultOf(stopping)
        self.assertEqual(self.world.poster.contents, ["1"])
        self.world.settle()
        self.world.kill()
        self.world.poster.judge = lambda post: True
        self.world.start()
        self.world.settle(1.0)
        self.assertEqual(self.world.poster.contents, ["2"])

    def test_stopHurried(self) -> None:
        """Who stops may lose patience: what is under way is given up, and comes again later."""
        self.world.poster.judge = lambda post: None
        self.successResultOf(self.world.subscribe())
        self.world.publish("1")
        stopping = self.world.webhooks.stop()
        stopping.cancel()
        self.successResultOf(stopping)
        self.assertTrue(self.world.poster.posts[0].isCancelled)
        self.assertEqual(self.world.slots.busy, 0)

    def test_groupGone(self) -> None:
        """A web hook of a group that is no longer served waits, and harms nobody."""
        self.successResultOf(self.world.subscribe())
        key, value = next(
            (key, value) for key, value in self.world.notes.kept.items() if key[0] == "webhook"
        )
        self.world.kill()
        self.world.notes.kept[key] = value.replace(b'"group":"1"', b'"group":"9"')
        self.world.start()
        self.world.settle(2.0)
        ended = self.world.webhooks.unSubscribe(key[1])
        self.world.settle()
        self.assertTrue(self.successResultOf(ended))

    @settings(
        max_examples=100,
        deadline=None,
        derandomize=True,
    )
    @given(st.lists(st.sampled_from("pppfatttk"), max_size=40))
    def test_whatever(self, steps: list[str]) -> None:
        """
        Whatever happens between (p: publish, f: requests fail, a: are answered, t: time passes,
        k: the broker is killed and started), the receiver has every event, the first time in
        order; and never misses one in between.
        """
        world = World()
        world.open("a")
        mood: dict[str, bool | None] = {"verdict": True}
        taken: list[int] = []

        def judge(post: Post) -> bool | None:
            if mood["verdict"]:
                taken.append(int(post.content))
            return mood["verdict"]

        world.poster.judge = judge
        self.successResultOf(world.subscribe(offset=Edge.FIRST))
        count = 0
        for step in steps:
            if step == "p":
                world.publish(str(count))
                count += 1
            elif step == "f":
                mood["verdict"] = False
            elif step == "a":
                mood["verdict"] = True
            elif step == "t":
                world.clock.pump([0.5] * 10)
            else:
                world.kill()
                world.start()
                world.settle()
        mood["verdict"] = True
        world.clock.pump([1.0] * 120)
        world.kill()
        firsts = list(dict.fromkeys(taken))
        self.assertEqual(firsts, list(range(count)))
        for before, after in pairwise(taken):
            self.assertLessEqual(after, before + 1)


class FairnessTests(SynchronousTestCase):
    """
    Many web hooks.
    """

    def test_slowHost(self) -> None:
        """A host that hangs has its part of the requests and no more; others go on."""
        world = World(self)
        world.open("a")
        world.poster.judge = lambda post: None if post.target.port == 81 else True
        for number in range(20):
            self.successResultOf(world.subscribe(f"http://{PUBLIC}:81/{number}"))
        self.successResultOf(world.subscribe())
        world.publish("1", "2", "3")
        self.assertEqual(len(world.poster.open), SETTINGS.connectionsPerHost)
        others = [post.content for post in world.poster.posts if post.target.port == 80]
        self.assertEqual(others, ["1", "2", "3"])

    def test_everybody(self) -> None:
        """With more web hooks than slots each gets each event, in order."""
        world = World(self, evolve(SETTINGS, connections=1, turn=0.0))
        world.open("a")
        ids = [self.successResultOf(world.subscribe()) for _ in range(12)]
        world.publish(*"12345")
        world.settle(2.0)
        for id in ids:
            mine = [post.content for post in world.poster.posts if post.subscriptionId == id]
            self.assertEqual(mine, list("12345"))

    def test_turns(self) -> None:
        """One with much to get lets another go first when its turn is over."""
        world = World(self, evolve(SETTINGS, connections=1, turn=0.0))
        world.open("a")
        world.poster.judge = lambda post: None
        ids = [self.successResultOf(world.subscribe()) for _ in range(2)]
        world.publish(*"123456")
        seen = []
        while world.poster.open:
            (post,) = world.poster.open
            seen.append(post.subscriptionId)
            post.answer.callback(None)
            world.settle()
        self.assertEqual(len(seen), 12)
        self.assertLess(max(seen.index(id) for id in ids), 4)
        self.assertGreater(seen.index(ids[0]) + seen.index(ids[1]), 0)
