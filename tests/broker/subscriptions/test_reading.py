"""
Tests of reading pages of events: what is read is exactly the matching part of the log.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.trial.unittest import SynchronousTestCase

from svcbroker import errors
from svcbroker.access import ANYBODY, Principal
from svcbroker.broker import ReadPage, ReadRequest
from svcbroker.broker.subscriptions import _eventreading, _follower
from svcbroker.broker.subscriptions._follower import SKIP_AFTER
from svcbroker.chain import proposeBlock
from svcbroker.interfaces import submit
from svcbroker.ledgers._views import eventIdsOf
from svcbroker.ledgers.memory import _StoredBlock
from svcbroker.model import (
    CloseTopic,
    Edge,
    EventId,
    Moment,
    Offset,
    Position,
    PublishEvent,
    filterMatches,
    parseOffset,
)
from tests import examples
from tests.access.support import account, principalOf

from .test_subscriptions import Fixture


def contents(page: ReadPage) -> list[bytes]:
    return [event.content for batch in page.batches for event in batch.events]


class ReadingTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.fixture = Fixture()
        self.fixture.open("a", "b", "c/d")

    def ask(self, filter: str = "+", principal: Principal = ANYBODY, **more: Any) -> Deferred[Any]:
        """Begin to read."""
        if isinstance(more.get("offset"), (str, int)):
            more["offset"] = parseOffset(str(more["offset"]))
        isReverse = more.get("isReverse", False)
        given = {"offset": Edge.LAST if isReverse else Edge.FIRST, **more}
        request = ReadRequest(group="1", filter=filter, **given)
        return self.fixture.subscriptions.readEvents(principal, request)

    def read(self, *args: Any, **more: Any) -> ReadPage:
        """Read a page that is there."""
        asked = self.ask(*args, **more)
        self.fixture.turn()
        page: ReadPage = self.successResultOf(asked)
        return page

    def heightsRead(self) -> list[int]:
        """The heights of the blocks that are read from now on."""
        readBlock, heights = self.fixture.ledger.readBlock, list[int]()

        def read(height: int) -> Deferred[Any]:
            heights.append(height)
            return readBlock(height)

        self.patch(self.fixture.ledger, "readBlock", read)
        return heights

    def publish(self, count: int, topics: str = "ab") -> list[bytes]:
        """Publish events in blocks of their own; their contents."""
        made = [b"%d" % number for number in range(count)]
        for number, content in enumerate(made):
            self.fixture.publish(topics[number % len(topics)], content)
        self.fixture.turn()
        return made

    def walk(self, *args: Any, **more: Any) -> list[bytes]:
        """The contents of all pages."""
        found: list[bytes] = []
        while True:
            page = self.read(*args, **more)
            found += contents(page)
            if page.isAtEnd:
                return found
            more["offset"] = str(page.next)


class ForwardTests(ReadingTestCase):
    def test_pageHoldsMatchingEventsOfTheLog(self) -> None:
        """In the order of the log, for topics by the index and for patterns by the blocks."""
        made = self.publish(6)
        height = self.fixture.subscriptions.end("1").height
        for filter, expected in (("+", made), ("#", made), ("a", made[::2]), ("c/d", [])):
            page = self.read(filter)
            self.assertEqual(contents(page), expected)
            self.assertEqual((page.next, page.isAtEnd), (height, True))

    def test_pagesLeaveNothingToTheCollector(self) -> None:
        """No cycle, and no value of an event that a pass of the collector looks at."""
        self.publish(3)
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        for isReverse in (False, True):
            page = self.read("#", isReverse=isReverse)
            tracked = [event for batch in page.batches for event in batch.events]
            self.assertEqual(list(filter(gc.is_tracked, tracked)), [])
            del page, tracked
            self.assertEqual(gc.collect(), 0)

    def test_batchesHaveTheTimesOfTheirBlocks(self) -> None:
        for _ in range(3):
            self.fixture.clock.advance(1)
            self.fixture.publish("a", b"x")
        for filter in ("a", "+"):
            times = [batch.timestamp for batch in self.read(filter).batches]
            self.assertEqual(times, [1_001_000, 1_002_000, 1_003_000])
            times = [batch.timestamp for batch in self.read(filter, isReverse=True).batches]
            self.assertEqual(times, [1_003_000, 1_002_000, 1_001_000])

    def test_fullPageSaysWhereToGoOn(self) -> None:
        """After its last event; or with the next block, which is found sooner."""
        made = self.publish(6)
        for filter, expected in (("+", made), ("a", made[::2])):
            page = self.read(filter, limit=3)
            self.assertEqual((contents(page), page.isAtEnd), (expected[:3], False))
            rest = self.read(filter, limit=3, offset=page.next)
            self.assertEqual(contents(rest), expected[3:6])

    def test_pageMayEndWithinABlock(self) -> None:
        made = publishBlock(self.fixture, "aaaba")
        for more in ({}, {"isReverse": True}):
            inOrder = made[::-1] if more else made
            for limit, filter in ((2, "+"), (2, "a"), (4, "a"), (5, "+")):
                expected = [each for each in inOrder if filter == "+" or each != made[3]]
                page = self.read(filter, limit=limit, **more)
                self.assertEqual(contents(page), expected[:limit])
                isCut = limit < len(expected)
                if isCut:
                    self.assertEqual(page.next, page.batches[-1].events[-1].eventId)
                rest = self.read(filter, offset=str(page.next), **more)
                self.assertEqual(contents(rest), expected[limit:])

    def test_walkReadsEachEventOnce(self) -> None:
        made = self.publish(50)
        for limit in (1, 7, 1000):
            self.assertEqual(self.walk("+", limit=limit), made)
            self.assertEqual(self.walk("a", limit=limit), made[::2])

    def test_offsetsChooseTheFirstEvent(self) -> None:
        self.fixture.clock.advance(1)
        made = self.publish(6)
        first = self.read("+", limit=1).next
        assert isinstance(first, EventId)
        for offset, expected in (
            (first, made[1:]),
            (Position(first.height + 2, -1), made[2:]),
            (Moment(1_001_000), made),
            (Moment(1_001_001), []),
            (Edge.LAST, []),
        ):
            self.assertEqual(contents(self.read("+", offset=offset)), expected)

    def test_nextOfAnEmptyPageAfterAnEventIsUsable(self) -> None:
        """Also while the search has not come beyond its block."""
        self.publish(3)
        page = self.read("a", limit=1)
        asked = self.ask("a", offset=page.next)
        self.fixture.clock.advance(_eventreading.MAX_SEARCH)
        self.fixture.turn()
        late = self.successResultOf(asked)
        self.assertEqual(contents(late) + self.walk("a", offset=str(late.next)), [b"2"])

    def test_tagChoosesEvents(self) -> None:
        fixture = self.fixture
        for number in range(4):
            fixture.publish("a", b"%d" % number, tag="xy"[number % 2])
        for filter in ("a", "+"):
            self.assertEqual(contents(self.read(filter, tag="y")), [b"1", b"3"])
            self.assertEqual(contents(self.read(filter, tag="y", isReverse=True)), [b"3", b"1"])

    def test_eventsOfClosedTopicsAreRead(self) -> None:
        self.publish(2, "a")
        submit(self.fixture.ledger, CloseTopic(topic="a"))
        for filter in ("a", "+"):
            self.assertEqual(contents(self.read(filter)), [b"0", b"1"])
            self.assertEqual(contents(self.read(filter, isReverse=True)), [b"1", b"0"])

    def test_pagesAreBoundedInBytes(self) -> None:
        """Except for a single event, they are not larger as JSON than allowed."""
        self.patch(_eventreading, "MAX_PAGE", 10_000)
        for size in (4000, 4000, 20_000, 10):
            self.fixture.publish("a", bytes(size))
        for more in ({}, {"isReverse": True}):
            sizes, offset = list[list[int]](), None
            while True:
                page = self.read("a", **more, **({"offset": offset} if offset else {}))
                sizes.append([len(content) for content in contents(page)])
                if page.isAtEnd:
                    break
                offset = str(page.next)
            expected = [[4000], [4000], [20_000], [10]]
            self.assertEqual(sizes, expected[::-1] if more else expected)

    def test_pagesTogetherAreBoundedInBytes(self) -> None:
        """Beyond the bound each page still gets an event."""
        output = self.fixture.subscriptions._reading._output
        output.own = 2000
        made = self.publish(20)
        pages = [self.ask("+", offset=offset) for offset in ("OFFSET_FIRST", "10")]
        self.fixture.turn()
        for page in map(self.successResultOf, pages):
            self.assertTrue(1 <= len(contents(page)) < 10)
        self.assertEqual(output.used, 0)
        self.assertEqual(self.walk("+"), made)

    def test_publishedEventsAreReadAtOnce(self) -> None:
        """Also before their block was dispatched."""
        self.fixture.publish("a", b"1")
        asked = [self.ask(filter) for filter in ("a", "+")]
        self.fixture.turn()
        for page in map(self.successResultOf, asked):
            self.assertEqual((contents(page), page.isAtEnd), ([b"1"], True))

    def test_longSearchEndsWhereItHasCome(self) -> None:
        """Its page says where to go on; nothing is left out or read twice."""
        for topic in ("a", "b"):
            self.publish(100, "a")
            self.fixture.publish(topic, b"needle")
            self.publish(100, "a")
        self.fixture.restart()
        clock, ledger = self.fixture.clock, self.fixture.ledger
        readBlock = ledger.readBlock

        def readSlowly(height: int) -> Deferred[Any]:
            clock.rightNow += 0.1
            return readBlock(height)

        self.patch(ledger, "readBlock", readSlowly)
        self.patch(self.fixture.subscriptions._followers["1"], "_keep", lambda block, size: None)
        variants: Sequence[dict[str, Any]] = ({}, {"isReverse": True})
        for more in variants:
            found: list[bytes] = []
            pages = 0
            while True:
                began = clock.seconds()
                asked = self.ask("b/#", **more)
                while not asked.called:
                    clock.advance(0.001)
                page = self.successResultOf(asked)
                self.assertLess(clock.seconds() - began, _eventreading.MAX_SEARCH + 0.5)
                found += contents(page)
                pages += 1
                if page.isAtEnd:
                    break
                more["offset"] = str(page.next)
            self.assertEqual(found, [b"needle"])
            self.assertGreater(pages, 15)

    def test_invalidReadsAreRefused(self) -> None:
        for error, filter, offset in (
            (errors.TopicNotFound, "nowhere", Edge.FIRST),
            (errors.PatternInvalid, "a#", Edge.FIRST),
            (errors.TopicTooLong, "a" * 257, Edge.FIRST),
            (errors.PatternInvalid, "+" + "/" * 128, Edge.FIRST),
            (errors.EventNotFound, "a", parseOffset("00000000-1-1")),
            (errors.EventNotFound, "a", parseOffset("00000000-1-999")),
            (errors.HeightUnknown, "a", parseOffset("999")),
        ):
            for isReverse in (False, True):
                asked = self.ask(filter, offset=offset, isReverse=isReverse)
                self.failureResultOf(asked, error)

    def test_unreadableLogFailsThePage(self) -> None:
        """What was read before is answered first."""
        made = self.publish(5, "a")
        self.fixture.restart()
        ledger = self.fixture.ledger
        readBlock = ledger.readBlock
        bad = self.fixture.subscriptions.end("1").height - 2
        self.patch(
            ledger,
            "readBlock",
            lambda h: fail(errors.LedgerUnavailable()) if h == bad else readBlock(h),
        )
        for filter in ("a", "+"):
            page = self.read(filter)
            self.assertEqual((contents(page), page.isAtEnd), (made[:3], False))
            asked = self.ask(filter, offset=page.next)
            self.fixture.turn()
            self.failureResultOf(asked, errors.LedgerUnavailable)

    def test_cancelledReadEnds(self) -> None:
        self.publish(50)
        follower = self.fixture.subscriptions._followers["1"]
        for more in ({}, {"wait": 5, "filter": "c/d"}, {"isReverse": True}, {"filter": "a"}):
            for turns in (0, 1, 3):
                asked = self.ask(**more)
                for _ in range(turns):
                    self.fixture.clock.advance(0)
                if not asked.called:
                    asked.cancel()
                    self.failureResultOf(asked, CancelledError)
                self.fixture.turn()
                self.assertEqual(follower._readers, 0)
                self.assertEqual(follower.dispatcher.audienceCount, 0)
        self.assertEqual(self.fixture.clock.getDelayedCalls(), [])


class WaitTests(ReadingTestCase):
    def test_waitEndsWithTheFirstEvent(self) -> None:
        """The page holds the events of its block, and says where to go on."""
        for filter in ("a", "+"):
            asked = self.ask(filter, offset=Edge.LAST, wait=30)
            self.fixture.clock.advance(5)
            self.fixture.publish("c/d", b"other")
            self.fixture.turn()
            self.assertNoResult(asked)
            self.fixture.publish("a", b"1")
            self.fixture.turn()
            page = self.successResultOf(asked)
            self.assertEqual((contents(page), page.isAtEnd), ([b"1"], True))
            self.fixture.publish("a", b"2")
            self.assertEqual(contents(self.read(filter, offset=str(page.next))), [b"2"])

    def test_waitEndsWithItsTime(self) -> None:
        asked = self.ask("a", wait=30)
        self.fixture.clock.advance(29)
        self.assertNoResult(asked)
        self.fixture.clock.advance(1)
        self.fixture.turn()
        page = self.successResultOf(asked)
        self.assertEqual((page.batches, page.isAtEnd), ([], True))
        self.assertEqual(page.next, self.fixture.subscriptions.end("1").height)

    def test_waitIsOverWhereThereAreEvents(self) -> None:
        self.publish(3)
        self.assertEqual(len(contents(self.read("+", wait=30))), 3)

    def test_drainEndsAllWaits(self) -> None:
        """Those that come later do not wait."""
        asked = [self.ask(filter, wait=30) for filter in ("a", "b", "+")]
        self.fixture.turn()
        self.successResultOf(self.fixture.subscriptions.drain())
        self.fixture.turn()
        for page in map(self.successResultOf, asked):
            self.assertEqual((page.batches, page.isAtEnd), ([], True))
        self.assertEqual(contents(self.read("a", wait=30)), [])

    def test_waitsOfEachClientAreBounded(self) -> None:
        """Others wait beside it, and it reads without waiting."""
        self.patch(_eventreading, "MAX_WAITING", 8)
        self.fixture = Fixture()
        self.fixture.open("a")
        ann, bob = (principalOf("subscribe 1 #", name=name) for name in ("ann", "bob"))
        clients: list[dict[str, Any]] = [
            {"principal": ann, "remote": "192.0.2.1:1"},
            {"principal": bob, "remote": "192.0.2.1:1"},
            {"remote": "192.0.2.1:1"},
            {"remote": "[2001:db8::1]:1"},
        ]
        waiting = []
        for client in clients:
            waiting += [self.ask("a", wait=30, **client) for _ in range(2)]
            error = self.failureResultOf(self.ask("a", wait=30, **client), errors.QuotaExceeded)
            reason = "has 2 calls of events that wait" if len(waiting) < 8 else "all 8 places"
            self.assertIn(reason, str(error))
            self.assertEqual(contents(self.read("a", **client)), [])
        other: dict[str, Any] = {"remote": "192.0.2.2:1"}
        self.failureResultOf(self.ask("a", wait=30, **other), errors.QuotaExceeded)
        waiting[0].cancel()
        self.failureResultOf(waiting[0], CancelledError)
        waiting[0] = self.ask("a", wait=30, **other)
        # Another address of the same network.
        sameNetwork = self.ask("a", wait=30, remote="[2001:db8::2]:1")
        self.failureResultOf(sameNetwork, errors.QuotaExceeded)
        self.fixture.publish("a", b"1")
        self.fixture.turn()
        for page in map(self.successResultOf, waiting):
            self.assertEqual(contents(page), [b"1"])
        again = [self.ask("a", wait=30, **other) for _ in range(2)]
        self.assertFalse(any(each.called for each in again))
        self.successResultOf(self.fixture.subscriptions.drain())

    def test_manyWaitsAreAnsweredInShortTurns(self) -> None:
        """To answer a page takes time, so each is answered in a turn of its own."""
        clock = self.fixture.clock

        def takeTime(page: ReadPage) -> ReadPage:
            clock.rightNow += 0.001
            return page

        asked = [self.ask("a", offset=Edge.LAST, wait=30).addCallback(takeTime) for _ in range(20)]
        self.fixture.publish("a", b"1")
        turns = 0
        while not all(each.called for each in asked):
            clock.advance(0.001)
            turns += 1
        self.assertGreaterEqual(turns, 20)


class ReverseTests(ReadingTestCase):
    def test_newestEventsComeFirst(self) -> None:
        made = self.publish(6)
        for filter, expected in (("+", made), ("a", made[::2]), ("c/d", [])):
            page = self.read(filter, isReverse=True)
            self.assertEqual(contents(page), expected[::-1])
            self.assertEqual((page.next, page.isAtEnd), (0, True))

    def test_walkReadsEachEventOnce(self) -> None:
        made = self.publish(300)
        for limit in (7, 1000):
            self.assertEqual(self.walk("+", limit=limit, isReverse=True), made[::-1])
            self.assertEqual(self.walk("a", limit=limit, isReverse=True), made[::2][::-1])

    def test_rareEventsAreFoundByTheIndex(self) -> None:
        """Without reading the blocks between them."""
        fixture = self.fixture
        fixture.publish("b", b"first")
        self.publish(1000, "a")
        fixture.publish("b", b"last")
        self.publish(500, "a")
        fixture.restart()
        heights = self.heightsRead()
        self.assertEqual(contents(self.read("b", isReverse=True)), [b"last", b"first"])
        self.assertEqual(len(heights), 2)

    def test_blocksWithoutEventsOfAPatternAreSkipped(self) -> None:
        """Also where it matches none at all."""
        fixture = self.fixture
        fixture.publish("c/d", b"first")
        self.publish(1000, "a")
        fixture.publish("c/d", b"last")
        self.publish(500, "a")
        fixture.restart()
        heights = self.heightsRead()
        for filter, expected in (("c/+", [b"last", b"first"]), ("e/#", [])):
            heights.clear()
            page = self.read(filter, isReverse=True)
            self.assertEqual((contents(page), page.isAtEnd), (expected, True))
            self.assertLess(len(heights), 5 * SKIP_AFTER)

    def test_offsetsChooseTheLastEvent(self) -> None:
        """A height stands for everything up to the end of its block."""
        self.fixture.clock.advance(1)
        made = self.publish(3)
        self.fixture.clock.advance(1)
        made += [b"%d" % n for n in (3, 4, 5)]
        for content in made[3:]:
            self.fixture.publish("a", content)
        self.fixture.turn()
        second = self.read("+", limit=2).next
        assert isinstance(second, EventId)
        end = self.fixture.subscriptions.end("1").height
        for offset, expected in (
            (second, made[:1]),
            (Position(second.height, -1), made[:2]),
            (Position(end, -1), made),
            (Position(end - 1, -1), made),
            (Position(0, -1), []),
            (Moment(1_002_000), made[:3]),
            (Moment(0), []),
            (Edge.FIRST, []),
            (Edge.LAST, made),
        ):
            page = self.read("+", offset=offset, isReverse=True)
            self.assertEqual(contents(page), expected[::-1], offset)
            self.assertTrue(page.isAtEnd)

    def test_damagedIndexFailsThePage(self) -> None:
        self.publish(3)
        self.patch(self.fixture.ledger, "findBlocks", lambda *_: succeedWith([1]))
        asked = self.ask("a", isReverse=True)
        self.fixture.turn()
        self.failureResultOf(asked, errors.LedgerUnavailable)
        self.assertEqual(len(self.flushLoggedErrors()), 0)


def succeedWith(value: Any) -> Deferred[Any]:
    answer: Deferred[Any] = Deferred()
    answer.callback(value)
    return answer


class AccessTests(ReadingTestCase):
    def test_principalGetsWhatItMayRead(self) -> None:
        made = self.publish(6)
        ann = principalOf("subscribe 1 a")
        for isReverse in (False, True):
            step = -1 if isReverse else 1
            for filter in ("a", "+", "#"):
                page = self.read(filter, ann, isReverse=isReverse)
                self.assertEqual(contents(page), made[::2][::step])
            for filter in ("b", "b/#", "nowhere"):
                asked = self.ask(filter, ann, isReverse=isReverse)
                self.failureResultOf(asked, errors.NotAuthorized)

    def test_unreadableEventIsNoOffset(self) -> None:
        ann = principalOf("subscribe 1 a")
        hidden = self.fixture.publish("b", b"x")
        for isReverse in (False, True):
            asked = self.ask("a", ann, offset=hidden, isReverse=isReverse)
            self.failureResultOf(asked, errors.EventNotFound)

    def test_grantsOfTheTimeOfTheAnswerCount(self) -> None:
        """Events that were read before the grants changed are left out."""
        self.publish(6)
        ann = principalOf("subscribe 1 +")
        asked = self.ask("a", ann, wait=30, offset=Edge.LAST)
        self.fixture.turn()
        waiting: Deferred[None] = Deferred()
        self.patch(self.fixture.subscriptions._followers["1"].turns, "turn", lambda: waiting)
        self.fixture.publish("a", b"1")
        self.fixture.turn()
        ann.update(account("ann", "subscribe 1 b"))
        waiting.callback(None)
        self.assertEqual(contents(self.successResultOf(asked)), [])

    def test_endOfTheAccountEndsItsReads(self) -> None:
        variants: Sequence[dict[str, Any]] = (
            {"wait": 30, "filter": "c/d"},
            {"isReverse": True, "filter": "+"},
        )
        for more in variants:
            self.publish(50)
            ann = principalOf("subscribe 1 #")
            asked = self.ask(principal=ann, **more)
            ann.revoke()
            self.fixture.turn()
            self.failureResultOf(asked, errors.NotAuthenticated)

    def test_endOfTheAccountIsSeenBeforeItsReadBegins(self) -> None:
        fixture = self.fixture
        first = fixture.publish("a", b"x")
        located: Deferred[Position] = Deferred()
        self.patch(fixture.ledger, "locate", lambda eventId: located)
        ann = principalOf("subscribe 1 #")
        asked = self.ask(principal=ann, wait=30, offset=first)
        self.assertNoResult(asked)
        ann.revoke()
        located.callback(Position(1, 0))
        fixture.turn()
        self.failureResultOf(asked, errors.NotAuthenticated)


class WaitingTests(SynchronousTestCase):
    def test_onlyWhatMayBeCountedIsTakenOff(self) -> None:
        """Events of patterns are not counted for an account that may not read all of them."""
        fixture = Fixture()
        fixture.open(*TOPICS)
        reader = fixture.subscribe(
            "a", "c/#", principal=principalOf("subscribe 1 a", "subscribe 1 c/d")
        )
        reader.left = 1
        for topics in (["c/d"] * 5 + ["a"], ["a"] * 3):
            publishBlock(fixture, topics)
        fixture.turn()
        self.assertEqual(len(reader.events), 6)
        listing = fixture.subscriptions.listSubscriptions(ANYBODY, "1")
        [record] = self.successResultOf(listing)
        self.assertEqual(record.notifying, 3)


def publishBlock(fixture: Fixture, topics: Sequence[str]) -> list[bytes]:
    """Publish an event to each of these topics, all in one block; their contents."""
    ledger = fixture.ledger
    height = len(ledger._blocks) + 1
    made = [b"%d.%d" % (height, number) for number in range(len(topics))]
    candidate = proposeBlock(
        ledger._state,
        ledger._blocks[-1].header,
        0,
        int(fixture.clock.seconds() * 1000),
        ledger._maker.makeMany(
            [
                PublishEvent(topic=topic, content=content, extensions={})
                for topic, content in zip(topics, made, strict=True)
            ]
        ),
    )
    ledger._state.apply(candidate.outcome, candidate.history)
    ids = eventIdsOf(height, candidate.transactions, candidate.outcome.receipts)
    block = _StoredBlock(candidate.header, list(candidate.transactions), ids)
    ledger._blocks.append(block)
    ledger._observers.tell(block.read)
    return made


TOPICS = ("a", "b", "c/d", "ab")
BLOCKS = st.lists(st.lists(st.sampled_from(TOPICS), max_size=8), max_size=30)


class WalkPropertyTests(SynchronousTestCase):
    """
    A walk by C{next} reads each event once, whatever is published meanwhile.
    """

    def setUp(self) -> None:
        # So that blocks are skipped in a short log, too.
        self.patch(_follower, "SKIP_AFTER", 2)

    @settings(max_examples=examples(100), deadline=None)
    @given(
        BLOCKS,
        st.lists(st.tuples(st.integers(1, 9), BLOCKS), max_size=12),
        st.sampled_from(["+", "a", "b", "c/#", "#"]),
        st.booleans(),
    )
    def test_walkReadsEachEventOnceWhileOthersPublish(
        self,
        past: Sequence[Sequence[str]],
        plan: Sequence[tuple[int, Sequence[Sequence[str]]]],
        filter: str,
        isReverse: bool,
    ) -> None:
        fixture = Fixture()
        fixture.open(*TOPICS)
        expected: list[bytes] = []

        def publish(blocks: Sequence[Sequence[str]]) -> None:
            for topics in blocks:
                made = publishBlock(fixture, topics)
                expected.extend(
                    content
                    for topic, content in zip(topics, made, strict=True)
                    if filterMatches(filter, topic)
                )

        publish(past)
        old = list(expected)
        found: list[bytes] = []
        offset: Offset = Edge.LAST if isReverse else Edge.FIRST
        isAtEnd, steps = False, iter(plan)
        while not isAtEnd:
            limit, blocks = next(steps, (1000, ()))
            request = ReadRequest(
                group="1", filter=filter, offset=offset, limit=limit, isReverse=isReverse
            )
            asked = fixture.subscriptions.readEvents(ANYBODY, request)
            # Some blocks come while the page is being read.
            publish(blocks[: len(blocks) // 2])
            for _ in range(60):
                fixture.clock.advance(0)
            page: ReadPage = self.successResultOf(asked)
            publish(blocks[len(blocks) // 2 :])
            found += contents(page)
            offset = parseOffset(str(page.next))
            isAtEnd = page.isAtEnd and (isReverse or not blocks)
        self.assertEqual(found, old[::-1] if isReverse else expected)
