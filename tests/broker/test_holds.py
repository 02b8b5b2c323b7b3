"""
Tests of the operator calls that keep events from being erased.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import alsoProvides

from svcbroker import errors
from svcbroker.access import ANYBODY, Principal
from svcbroker.broker import _eventerasure
from svcbroker.broker._eventerasure import SHOWN_RANGES, HeldEvents, Ranges, findHeld
from svcbroker.interfaces import IHoldLedger
from svcbroker.model import AddHold, EventId, Execution, HeldRange, Receipt, ReleaseHold
from svcbroker.net.budgets import WorkBudget
from tests.broker.support import publishOne

from ..access.support import principalOf
from ..carriers.http.test_follow import FollowTestCase


class HoldTests(FollowTestCase):
    """
    Holds over six events of the topic a and one of b/c.
    """

    def setUp(self) -> None:
        super().setUp()
        self.ledger, self.broker = self.fixture.ledger, self.fixture.broker
        self.ids: list[EventId] = []
        for number in range(7):
            topic = "b/c" if number == 6 else "a"
            publishing = publishOne(self.broker, ANYBODY, None, topic, b"%d" % number, {})
            eventId = self.successResultOf(publishing).eventId
            assert eventId is not None
            self.ids.append(EventId.parse(eventId))
        self.settle()
        self.ledger.submitted.clear()

    def done(self, waiting: Deferred[Any]) -> Any:
        self.settle()
        return self.successResultOf(waiting)

    def refused(self, error: type[errors.BrokerError], waiting: Deferred[Any]) -> str:
        self.settle()
        failure: Any = self.failureResultOf(waiting, error)
        message: str = failure.value.message
        return message

    def add(self, case: str, principal: Principal = ANYBODY, **given: Any) -> Deferred[Any]:
        return self.fixture.calls.holding.add(principal, None, case, "court order", **given)

    def release(self, case: str, principal: Principal = ANYBODY) -> Deferred[Any]:
        return self.fixture.calls.holding.release(principal, None, case, "closed")

    def erase(self, **given: Any) -> Deferred[Any]:
        return self.fixture.calls.erasing.erase(ANYBODY, None, "asked for", **given)

    def preview(self, **given: Any) -> Any:
        return self.done(self.fixture.calls.erasing.preview(ANYBODY, None, **given))

    def held(self, case: str | None = None) -> list[Any]:
        listing = self.fixture.calls.holding.list(ANYBODY, None, 0, 10, case)
        return list(self.done(listing).items)

    def test_heldEventsAreNotErased(self) -> None:
        """Nothing is erased where an event is held, with an error that names the cases."""
        self.done(self.add("case-1", events=[self.ids[1], self.ids[3]]))
        self.done(self.add("case-2", patterns=["b/#"]))
        said = self.refused(errors.EventHeld, self.erase(events=self.ids))
        self.assertEqual(said, "3 events are held and not erased: case case-1, case-2")
        said = self.refused(errors.EventHeld, self.erase(topic="a", last=2))
        self.assertEqual(said, "1 event is held and not erased: case case-1")
        self.assertEqual(self.done(self.erase(topic="a", last=1)), 1)

    def test_erasureMayLeaveOutHeldEvents(self) -> None:
        """Events that are not held are erased, and counted."""
        self.done(self.add("case-1", events=[self.ids[1], self.ids[3]]))
        self.done(self.add("case-2", events=[self.ids[3], self.ids[4]]))
        self.assertEqual(self.done(self.erase(topic="a", last=6, exceptHeld=True)), 3)
        preview = self.preview(topic="a", last=6)
        self.assertEqual((preview.erasable, preview.heldCount), (3, 3))
        for case in ("case-1", "case-2"):
            self.done(self.release(case))
        self.assertEqual(self.done(self.erase(topic="a", last=6)), 6)

    def test_previewErasesNothing(self) -> None:
        """It tells what would be erased, and what is held by which case."""
        self.done(self.add("case-1", events=[self.ids[1], self.ids[2]]))
        preview = self.preview(events=self.ids)
        self.assertEqual((preview.erasable, preview.heldCount), (5, 2))
        self.assertEqual(preview.held, {"a": [HeldRange(case="case-1", first=2, last=3)]})
        self.assertEqual(self.ledger.submitted[1:], [])
        preview = self.preview(topic="b/c", last=1)
        self.assertEqual((preview.erasable, preview.heldCount, preview.held), (1, 0, {}))

    def test_holdsAreListed(self) -> None:
        """Those in force, with account, reason and transaction; the events of one case."""
        holder = principalOf("hold 1", name="cara")
        made = self.done(self.add("case-1", holder, events=[self.ids[6], self.ids[0]]))
        self.done(self.add("case-2", patterns=["a", "b/+", "a"]))
        first, second = self.held()
        self.assertEqual((first.case, first.account, first.eventCount), ("case-1", "cara", 2))
        self.assertEqual((first.hash, first.height), (made.transactionHash, made.height))
        self.assertEqual((second.reason, list(second.patterns)), ("court order", ["a", "b/+"]))
        [alone] = self.held("case-1")
        self.assertEqual(sorted(alone.events), [("a", 1), ("b/c", 1)])
        self.assertEqual(self.held("case-3"), [])
        self.done(self.release("case-1", holder))
        self.assertEqual([each.case for each in self.held()], ["case-2"])
        listing = self.fixture.calls.holding.listReleased(ANYBODY, None, 10)
        [ended] = self.done(listing).items
        self.assertEqual((ended.case, ended.account), ("case-1", "cara"))
        self.assertEqual((ended.release.account, ended.release.reason), ("cara", "closed"))
        released = [each for each in self.ledger.submitted if isinstance(each, ReleaseHold)]
        self.assertEqual(released, [ReleaseHold(case="case-1", account="cara", reason="closed")])

    def test_grantOfHoldingIsNeeded(self) -> None:
        """Operators neither hold nor release, but see what is held; holders do not erase."""
        operator, holder = principalOf("operate 1"), principalOf("hold 1")
        self.refused(errors.NotAuthorized, self.add("case-1", operator, patterns=["a"]))
        self.done(self.add("case-1", holder, patterns=["a"]))
        said = self.refused(errors.NotAuthorized, self.release("case-1", operator))
        self.assertIn("hold events or release them", said)
        calls = self.fixture.calls
        for principal in (operator, holder):
            self.done(calls.holding.list(principal, None, 0, 1))
            self.done(calls.holding.listReleased(principal, None, 1))
        nobody = principalOf("publish 1 #", "subscribe 1 #", "admin 1")
        self.refused(errors.NotAuthorized, calls.holding.list(nobody, None, 0, 1))
        self.refused(errors.NotAuthorized, calls.holding.listReleased(nobody, None, 1))
        erasing = calls.erasing.erase(holder, None, "x", events=self.ids[6:])
        self.refused(errors.NotAuthorized, erasing)

    def test_holdOfErasedEventIsRefused(self) -> None:
        """With the event's id, and nothing is held."""
        self.done(self.erase(events=self.ids[:1]))
        said = self.refused(
            errors.ParameterInvalid, self.add("case-1", events=[self.ids[1], self.ids[0]])
        )
        self.assertEqual(
            said, f"events: the content of {self.ids[0]} was erased, so it cannot be held"
        )
        self.assertEqual(self.held(), [])

    def test_badHoldsAreRefused(self) -> None:
        """Each with one error that names the parameter."""
        self.done(self.add("case-1", patterns=["a"]))
        for case, given, words in (
            ("case-1", {"patterns": ["b"]}, "case: there is a hold 'case-1' already"),
            ("a case", {"patterns": ["b"]}, "case: is not 1 to 64 characters"),
            ("", {"patterns": ["b"]}, "case: is not 1 to 64 characters"),
            ("c", {}, "give either events or topics"),
            ("c", {"patterns": ["b"], "events": self.ids[:1]}, "give either events or topics"),
            ("c", {"patterns": [f"t/{n}" for n in range(17)]}, "topics: a hold has at most 16"),
            ("c", {"events": self.ids[:1] * 1001}, "events: a hold has at most 1000"),
        ):
            said = self.refused(errors.ParameterInvalid, self.add(case, **given))
            self.assertIn(words, said)
        self.refused(errors.PatternInvalid, self.add("c", patterns=["a/#/b"]))
        self.refused(errors.TopicInvalid, self.add("c", patterns=["a\n"]))
        unknown = EventId(self.ids[0].prefix, 99, 3)
        self.refused(errors.EventNotFound, self.add("c", events=[unknown]))
        said = self.refused(errors.ParameterInvalid, self.release("case-9"))
        self.assertEqual(said, "case: no hold 'case-9' is in force")
        self.assertEqual(len(self.ledger.submitted), 1)

    def test_tooManyHoldsAreRefused(self) -> None:
        """With what is in the way."""
        self.patch(_eventerasure, "MAX_HOLDS", 2)
        for case in ("1", "2"):
            self.done(self.add(case, patterns=["a"]))
        said = self.refused(errors.ParameterInvalid, self.add("3", patterns=["a"]))
        self.assertEqual(said, "case: there are 2 holds, and no more can be")

    def test_holdThatCameInBetweenIsTold(self) -> None:
        """The chain decides, and an erasure that it refuses names the case."""
        self.ledger.isHolding = True
        erasing = self.erase(events=self.ids[:2])
        first, *_ = self.ledger.submitted
        self.assertEqual(first.topic, "a")
        topic = self.ledger.topicState("a")
        assert topic is not None
        hold = AddHold(case="fast", account="", reason="x", events=[(topic.address, 2)])
        self.fixture.ledger._ledger.submitMany([hold])
        said = self.refused(errors.EventHeld, erasing)
        self.assertEqual(said, "1 event is held and not erased: case fast")

    def test_refusalOfTheChainIsTold(self) -> None:
        """Where nothing tells why."""
        self.ledger.receipt = Receipt(
            execution=Execution.REFUSED, transactionHash=bytes(32), height=1
        )
        self.refused(errors.TransactionFailed, self.add("case-1", patterns=["a"]))


class HeldLedger:
    """
    A ledger of which nothing but the held ranges is asked.
    """

    def __init__(self, *held: HeldRange) -> None:
        self._held = held

    def heldRanges(
        self, topic: str, ranges: Sequence[tuple[int, int]]
    ) -> Sequence[Iterator[HeldRange]]:
        """See L{IHoldLedger.heldRanges}."""
        return [self._inRanges(each, ranges) for each in self._held if topic != "free"]

    @staticmethod
    def _inRanges(held: HeldRange, ranges: Sequence[tuple[int, int]]) -> Iterator[HeldRange]:
        for first, last in ranges:
            if first <= held.last and last >= held.first:
                within = (max(first, held.first), min(last, held.last))
                yield HeldRange(case=held.case, first=within[0], last=within[1])


class RangeTests(SynchronousTestCase):
    """
    Ranges of events, and what of them is held.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.work = WorkBudget(self.clock)

    def find(self, found: Ranges, *held: HeldRange) -> Deferred[HeldEvents]:
        ledger: Any = HeldLedger(*held)
        alsoProvides(ledger, IHoldLedger)
        return Deferred.fromCoroutine(findHeld(ledger, found, self.work))

    def free(self, found: HeldEvents) -> Ranges:
        return {topic: list(ranges) for topic, ranges in found.free.items()}

    def test_heldRangesAreLeftOut(self) -> None:
        """However they overlap."""
        found = self.successResultOf(
            self.find(
                {"a": [(1, 10), (12, 15), (17, 18)], "free": [(4, 4)]},
                HeldRange(case="x", first=2, last=3),
                HeldRange(case="y", first=3, last=5),
                HeldRange(case="x", first=9, last=9),
                HeldRange(case="z", first=12, last=16),
            )
        )
        self.assertEqual(
            self.free(found), {"a": [(1, 1), (6, 8), (10, 10), (17, 18)], "free": [(4, 4)]}
        )
        self.assertEqual((found.count, found.cases), (9, {"x", "y", "z"}))
        shown = [(each.first, each.last) for each in found.shown["a"]]
        self.assertEqual(shown, [(2, 3), (3, 5), (9, 9), (12, 15)])
        found = self.successResultOf(
            self.find({"a": [(2, 3)]}, HeldRange(case="x", first=1, last=9))
        )
        self.assertEqual((self.free(found), found.count), ({}, 2))

    def test_manyHoldsTakeTurns(self) -> None:
        """A thousand holds of each event are looked at in several turns; a thousand are shown."""
        self.patch(self.clock, "seconds", count(0, 0.001).__next__)
        self.work = WorkBudget(self.clock)
        holds = [HeldRange(case=str(each), first=2, last=8) for each in range(1000)]
        waiting = self.find({"a": [(1, 2), (4, 5), (8, 9)]}, *holds)
        self.assertNoResult(waiting)
        while not waiting.called:
            self.clock.pump([0])
        self.assertGreater(self.work.turns, 5)
        found = self.successResultOf(waiting)
        self.assertEqual((self.free(found), found.count), ({"a": [(1, 1), (9, 9)]}, 4))
        self.assertEqual((len(found.cases), len(found.shown["a"])), (1000, SHOWN_RANGES))
