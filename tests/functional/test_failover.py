"""
Clients of a network of four brokers, of which those in use are killed.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater

from svcbroker.client import Event, Publication, Published

from .clients import Asyncio, Blocking, Face, Twisted
from .daemon import reactor, until
from .network import NetworkTestCase
from .test_clients import END, isEnd

KILLS = 2
BATCH = 10
PAUSE = 0.1
"""Seconds between what a client publishes: brokers that start need the processors, too."""


class Traffic:
    """
    A client that publishes to a topic of its own until it is told to end, and follows it.

    @ivar followed: how many events it has followed.
    """

    def __init__(self, face: Face, topic: str) -> None:
        self.face, self.topic = face, topic
        self.outcomes: list[Any] = []
        self.followed = 0
        self.isOver = False

    async def run(self) -> Sequence[Event]:
        """Publish; the events that were followed."""
        await self.face.call("open", self.topic)
        following = self.face.take("follow", self._count, self.topic, after="OFFSET_FIRST")
        number = 0
        while not self.isOver:
            several = [Publication(self.topic, str(number + each)) for each in range(BATCH)]
            self.outcomes += await self.face.call("publishMany", several)
            self.outcomes.append(await self.face.call("publish", self.topic, f"single {number}"))
            number += BATCH
            await deferLater(reactor, PAUSE)
        self.outcomes.append(await self.face.call("publish", self.topic, END))
        return await following

    def _count(self, event: Event) -> bool:
        self.followed += 1
        return isEnd(event)


def current(face: Any) -> str:
    """The URL of the broker that a client uses."""
    url: str = face.client._core._requests.brokers.current
    return url


class FailoverTests(NetworkTestCase):
    """
    The three clients at once.
    """

    def face(self, make: type[Any], urls: Sequence[str]) -> Any:
        """A client, which is closed at the end of the test."""
        face = make(*urls, timeout=self.timeout)
        self.addCleanup(lambda: Deferred.fromCoroutine(face.close()))
        return face

    def kill(self, url: str) -> int:
        """Kill the broker at a URL; its number."""
        [number] = [each for each in range(4) if self.port(each) == urlsplit(url).port]
        os.kill(self.brokerOf(number), signal.SIGKILL)
        return number

    async def test_eventsComeOnceAtOtherBrokers(self) -> None:
        """
        The broker in use is killed while events are published and followed, twice: each event is in
        the log once, and is delivered once and in order.
        """
        network = await self.startNetwork()
        urls = [self.base(number) for number in range(4)]
        load = [
            Traffic(self.face(make, urls), f"orders/{make.__name__}")
            for make in (Blocking, Asyncio, Twisted)
        ]
        running = gatherResults([Deferred.fromCoroutine(each.run()) for each in load])

        async def goesOn() -> None:
            before = [each.followed for each in load]
            await until(
                lambda: all(
                    each.followed > count + 3 * BATCH
                    for each, count in zip(load, before, strict=True)
                )
            )

        for _ in range(KILLS):
            await goesOn()
            [used] = {current(each.face) for each in load}
            number = self.kill(used)
            await goesOn()
            self.assertNotIn(used, {current(each.face) for each in load})
            await network.protocol.waitFor(re.compile(f"node{number} is ready again"))
        for each in load:
            each.isOver = True
        for traffic, followed in zip(load, await running, strict=True):
            log = await traffic.face.take("events", lambda event: False, traffic.topic)
            self.assertEqual(followed, log)
            self.assertEqual([each.sequence for each in log], [*range(1, len(log) + 1)])
            failed = [each for each in traffic.outcomes if not isinstance(each, Published)]
            self.assertEqual(failed, [])
            ids = sorted(each.eventId for each in traffic.outcomes)
            self.assertEqual(ids, sorted(each.eventId for each in log))
            self.assertEqual(len({each.content for each in log}), len(log))
        self.assertEqual(await network.stop(signal.SIGINT), 0)
