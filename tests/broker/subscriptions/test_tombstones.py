"""
Tests of erased events: left out of subscriptions and pages, or tombstones.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY, Principal
from svcbroker.broker import ReadRequest
from svcbroker.interfaces import submit
from svcbroker.model import (
    Edge,
    EraseEvents,
    Event,
    InterfaceType,
    Position,
    PublishEvent,
    SubscribeRequest,
)
from tests.access.support import principalOf

from .test_subscriptions import Fixture, Reader

FILTERS = (("a",), ("+",), ("#", "a"), ("a", "b"))


class TombstoneTests(SynchronousTestCase):
    """Every second event of topic C{a} is erased."""

    def setUp(self) -> None:
        self.fixture = Fixture()
        self.fixture.open("a", "b")
        for number in range(6):
            self.fixture.publish("a", b"%d" % number, tag="odd" if number % 2 else "even")
        ranges = [(number, number) for number in (1, 3, 5)]
        erasure = EraseEvents(topic="a", ranges=ranges, account="ann", reason="asked for")
        self.successResultOf(submit(self.fixture.ledger, erasure))
        self.fixture.turn()

    def subscribe(
        self, *filters: str, principal: Principal = ANYBODY, **more: Any
    ) -> Sequence[Event]:
        """The events that a subscription from the beginning gets."""
        reader = Reader()
        request = SubscribeRequest(
            interfaceType=InterfaceType.STOMP, group="1", filters=filters, offset=Edge.FIRST
        )
        request = evolve(request, **more)
        subscribing = self.fixture.subscriptions.subscribe(principal, request, reader)
        reader.subscription = self.successResultOf(subscribing)
        reader.subscription.resume()
        self.fixture.turn()
        return reader.events

    def read(self, filter: str, **more: Any) -> Sequence[Event]:
        """The events of a page."""
        more.setdefault("offset", Edge.LAST if more.get("isReverse") else Edge.FIRST)
        request = ReadRequest(group="1", filter=filter, **more)
        reading = self.fixture.subscriptions.readEvents(ANYBODY, request)
        self.fixture.turn()
        page = self.successResultOf(reading)
        return [event for batch in page.batches for event in batch.events]

    def check(self, events: Sequence[Event], *, hasTombstones: bool) -> None:
        """Compare events in the order of the log with what was not erased."""
        contents = [(event.content, event.isErased) for event in events]
        expected = [(b"", True) if n % 2 == 0 else (b"%d" % n, False) for n in range(6)]
        if not hasTombstones:
            expected = [each for each in expected if not each[1]]
        self.assertEqual(contents, expected)

    def test_erasedEventsAreLeftOut(self) -> None:
        for filters in FILTERS:
            self.check(self.subscribe(*filters), hasTombstones=False)

    def test_tombstonesAreDelivered(self) -> None:
        for filters in FILTERS:
            events = self.subscribe(*filters, hasTombstones=True)
            self.check(events, hasTombstones=True)
        self.assertEqual(events[0].extensions, {"svc-tag": "even"})

    def test_subscribersWithAndWithoutReadTogether(self) -> None:
        """By one walk through history."""
        readers = [self.fixture.subscribe("#", offset=Edge.FIRST, flow=False) for _ in range(2)]
        tombstones = [Reader(), Reader()]
        for reader in tombstones:
            request = SubscribeRequest(
                interfaceType=InterfaceType.STOMP,
                group="1",
                filters=("#",),
                offset=Edge.FIRST,
                hasTombstones=True,
            )
            subscribing = self.fixture.subscriptions.subscribe(ANYBODY, request, reader)
            reader.subscription = self.successResultOf(subscribing)
        for reader in (*readers, *tombstones):
            reader.subscription.resume()
        self.fixture.turn()
        for reader in readers:
            self.check(reader.events, hasTombstones=False)
        for reader in tombstones:
            self.check(reader.events, hasTombstones=True)
        self.fixture.publish("a", b"live")
        self.fixture.turn()
        for reader in (*readers, *tombstones):
            self.assertEqual(reader.contents[-1], b"live")
            reader.subscription.close()

    def test_tagsChooseTombstones(self) -> None:
        for tag, count in (("odd", 0), ("even", 3)):
            events = self.subscribe("a", tag=tag, hasTombstones=True)
            self.assertEqual(sum(event.isErased for event in events), count)

    def test_grantsHoldForTombstones(self) -> None:
        events = self.subscribe("+", principal=principalOf("subscribe 1 b"), hasTombstones=True)
        self.assertEqual(events, [])

    def test_pagesLeaveErasedEventsOut(self) -> None:
        for filter in ("a", "+"):
            self.check(self.read(filter), hasTombstones=False)
            self.check(self.read(filter, isReverse=True)[::-1], hasTombstones=False)

    def test_pagesHaveTombstones(self) -> None:
        for filter in ("a", "+"):
            self.check(self.read(filter, hasTombstones=True), hasTombstones=True)
            events = self.read(filter, hasTombstones=True, isReverse=True)
            self.check(events[::-1], hasTombstones=True)

    def walk(self, filter: str, **more: Any) -> tuple[list[Event], int]:
        """The events of all pages, and how many erased events these left out."""
        events: list[Event] = []
        leftOut = 0
        offset: Any = Edge.LAST if more.get("isReverse") else 0
        while True:
            if isinstance(offset, int):
                offset = Position(offset, -1)
            request = ReadRequest(group="1", filter=filter, offset=offset, **more)
            reading = self.fixture.subscriptions.readEvents(ANYBODY, request)
            self.fixture.turn()
            page = self.successResultOf(reading)
            events += [event for batch in page.batches for event in batch.events]
            leftOut += page.leftOut
            if page.isAtEnd:
                return events, leftOut
            offset = page.next

    def test_pagesCountEachErasedEventOnce(self) -> None:
        """Also where pages end within a block, of which every kind of event is the last one."""
        for erased in (1, 3), (2, 4), (1, 4), (3, 4), (1, 2):
            known = self.fixture.ledger.topicState("a")
            assert known is not None
            requests = [PublishEvent(topic="a", content=b"x", extensions={}) for _ in range(4)]
            self.successResultOf(self.fixture.ledger.submitMany(requests).done)
            ranges = sorted((known.sequence + each,) * 2 for each in erased)
            erasure = EraseEvents(topic="a", ranges=ranges, account="", reason="x")
            self.successResultOf(submit(self.fixture.ledger, erasure))
            self.fixture.turn()
        for filter, limit, isReverse in product(("a", "+"), (1, 2, 3, 100), (False, True)):
            found = self.walk(filter, limit=limit, isReverse=isReverse)
            self.assertEqual((len(found[0]), found[1]), (13, 13), (filter, limit, isReverse))
            self.assertFalse(any(event.isErased for event in found[0]))
            ids = {event.eventId for event in found[0]}
            self.assertEqual(len(ids), 13)
            found = self.walk(filter, limit=limit, isReverse=isReverse, hasTombstones=True)
            self.assertEqual((len(found[0]), found[1]), (26, 0))

    def test_otherTagsAreNotCounted(self) -> None:
        for tag, count in (("odd", 0), ("even", 3)):
            self.assertEqual(self.walk("a", tag=tag)[1], count)

    def test_erasedEventsEndNoWait(self) -> None:
        """A call that waits is answered with the next event that it shows."""
        request = ReadRequest(group="1", filter="a", offset=Position(0, -1), tag="even", wait=9)
        reading = self.fixture.subscriptions.readEvents(ANYBODY, request)
        self.fixture.turn()
        self.assertNoResult(reading)
        self.fixture.publish("a", b"new", tag="even")
        self.fixture.turn()
        page = self.successResultOf(reading)
        [batch] = page.batches
        self.assertEqual([event.content for event in batch.events], [b"new"])
        self.assertEqual(page.leftOut, 3)

    def test_pagesGoOnAfterAnErasedEvent(self) -> None:
        [first] = self.read("a", limit=1, hasTombstones=True)
        self.assertTrue(first.isErased)
        events = self.read("a", offset=first.eventId)
        self.check(events, hasTombstones=False)
