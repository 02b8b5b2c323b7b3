"""
Tests of the operator call that erases events.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker import errors
from svcbroker.access import ANYBODY, Principal
from svcbroker.broker import _eventerasure
from svcbroker.broker._eventerasure import erasuresOf, rangesOf
from svcbroker.model import MAX_ERASED, MAX_RANGES, EraseEvents, EventId, Execution, Moment, Receipt
from tests.broker.support import publishOne

from ..access.support import principalOf
from ..carriers.http.test_follow import FollowTestCase


class ErasingTests(FollowTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.ledger, self.broker = self.fixture.ledger, self.fixture.broker
        self.ids: list[EventId] = []
        for number in range(6):
            self.clock.advance(1)
            topic = "b/c" if number == 5 else "a"
            publishing = publishOne(self.broker, ANYBODY, None, topic, b"%d" % number, {})
            eventId = self.successResultOf(publishing).eventId
            assert eventId is not None
            self.ids.append(EventId.parse(eventId))
        self.settle()
        self.ledger.submitted.clear()

    def erase(self, principal: Principal = ANYBODY, **given: Any) -> Deferred[int]:
        return self.fixture.calls.erasing.erase(principal, None, "asked for", **given)

    def erased(self, **given: Any) -> int:
        erasing = self.erase(**given)
        self.settle()
        return self.successResultOf(erasing)

    def refused(self, error: type[errors.BrokerError], **given: Any) -> None:
        erasing = self.erase(**given)
        self.settle()
        self.failureResultOf(erasing, error)
        self.assertEqual(self.ledger.submitted, [])

    def gone(self) -> list[int]:
        """The numbers of the events whose content is gone."""
        gone = []
        for number, eventId in enumerate(self.ids):
            answers: list[Any] = []
            self.broker.getEvent(ANYBODY, None, eventId).addBoth(answers.append)
            if isinstance(getattr(answers[0], "value", None), errors.EventErased):
                gone.append(number)
        return gone

    def test_eventsOfTwoTopicsAreErased(self) -> None:
        events = [self.ids[number] for number in (4, 0, 1, 5, 0)]
        self.assertEqual(self.erased(events=events), 4)
        self.assertEqual(self.gone(), [0, 1, 4, 5])
        ranges = {each.topic: list(each.ranges) for each in self.erasures()}
        self.assertEqual(ranges, {"a": [(1, 2), (5, 5)], "b/c": [(1, 1)]})

    def test_eventsAreLookedUpInTurns(self) -> None:
        """Many callers with long lists share the time of a turn."""
        self.patch(_eventerasure, "_EVENTS_AT_ONCE", 2)
        work = self.broker.budgets.work
        waits: list[int] = []
        wait = work.wait

        def waited(*given: Any, **named: Any) -> None:
            waits.append(1)
            wait(*given, **named)

        self.patch(work, "wait", waited)
        self.assertEqual(self.erased(events=self.ids), 6)
        self.assertEqual(len(waits), 3)

    def erasures(self) -> list[EraseEvents]:
        return [each for each in self.ledger.submitted if isinstance(each, EraseEvents)]

    def test_accountAndReasonAreKept(self) -> None:
        self.successResultOf(self.erase(principalOf("operate 1"), events=self.ids[:1]))
        [erasure] = self.erasures()
        self.assertEqual((erasure.account, erasure.reason), ("ann", "asked for"))
        error = self.failureResultOf(self.broker.getEvent(ANYBODY, None, self.ids[0])).value
        self.assertEqual((error.account, error.reason), ("ann", "asked for"))

    def test_partOfATopicIsErased(self) -> None:
        self.assertEqual(self.erased(topic="a", first=2, last=3), 2)
        self.assertEqual(self.gone(), [1, 2])
        self.assertEqual(self.erased(topic="a", last=2), 2)
        self.assertEqual(self.gone(), [0, 1, 2])

    def test_eventsBeforeAnEventAreErased(self) -> None:
        self.assertEqual(self.erased(topic="a", before=self.ids[0]), 0)
        self.assertEqual(self.ledger.submitted, [])
        self.assertEqual(self.erased(topic="a", before=self.ids[2]), 2)
        self.assertEqual(self.gone(), [0, 1])
        # The place itself may be erased.
        self.assertEqual(self.erased(topic="a", before=self.ids[1]), 1)

    def test_eventsBeforeATimeAreErased(self) -> None:
        times = [1_700_000_001_000 + 1000 * number for number in range(6)]
        self.assertEqual(self.erased(topic="a", before=Moment(times[0])), 0)
        self.assertEqual(self.erased(topic="a", before=Moment(times[0] + 1)), 1)
        self.assertEqual(self.erased(topic="a", before=Moment(times[3])), 3)
        self.assertEqual(self.gone(), [0, 1, 2])
        self.assertEqual(self.erased(topic="a", before=Moment(times[5] * 2)), 5)
        self.assertEqual(self.erased(topic="b/c", before=Moment(times[5] * 2)), 1)

    def test_closedTopicsAreErased(self) -> None:
        self.successResultOf(self.broker.close(ANYBODY, None, "a"))
        self.assertEqual(self.erased(topic="a", last=5), 5)

    def test_erasedEventsAreErasedAgain(self) -> None:
        for _ in range(2):
            self.assertEqual(self.erased(events=self.ids[:1]), 1)

    def test_unclearCallsAreRefused(self) -> None:
        for wrong in (
            {},
            {"events": self.ids[:1], "topic": "a"},
            {"topic": "a"},
            {"topic": "a", "last": 2, "before": self.ids[1]},
            {"topic": "a", "last": 6},
        ):
            self.refused(errors.ParameterInvalid, **wrong)

    def test_unknownEventsAreRefused(self) -> None:
        unknown = EventId(self.ids[0].prefix, 99, 3)
        self.refused(errors.EventNotFound, events=[self.ids[0], unknown])
        self.refused(errors.EventNotFound, topic="a", before=self.ids[5])
        self.refused(errors.TopicNotFound, topic="never", last=1)
        self.refused(errors.TopicInvalid, topic="a#", last=1)

    def test_grantOfOperatingIsNeeded(self) -> None:
        publisher = principalOf("publish 1 #", "subscribe 1 #", "open 1 #", "admin 1")
        self.refused(errors.NotAuthorized, principal=publisher, events=self.ids[:1])

    def test_refusalOfTheChainIsTold(self) -> None:
        self.ledger.receipt = Receipt(
            execution=Execution.REFUSED, transactionHash=bytes(32), height=1
        )
        erasing = self.erase(events=self.ids[:1])
        self.failureResultOf(erasing, errors.TransactionFailed)


class SplittingTests(SynchronousTestCase):
    @given(st.lists(st.integers(1, 50)))
    def test_rangesHoldTheNumbers(self, numbers: list[int]) -> None:
        ranges = rangesOf(numbers)
        held = [number for first, last in ranges for number in range(first, last + 1)]
        self.assertEqual(held, sorted(set(numbers)))
        for (_, last), (first, _) in pairwise(ranges):
            self.assertGreater(first, last + 1)

    def test_erasuresKeepToTheLimits(self) -> None:
        for ranges in (
            [(1, 3 * MAX_ERASED + 5)],
            [(2 * number, 2 * number) for number in range(1, 2 * MAX_RANGES + 10)],
            [(1, MAX_ERASED - 1), (MAX_ERASED + 1, MAX_ERASED + 2)],
            [],
        ):
            named: list[tuple[int, int]] = []
            for erasure in erasuresOf("t", ranges, "ann", "why"):
                self.assertLessEqual(len(erasure.ranges), MAX_RANGES)
                count = sum(last - first + 1 for first, last in erasure.ranges)
                self.assertLessEqual(count, MAX_ERASED)
                named += erasure.ranges
            self.assertEqual(rangesOf(_numbers(named)), ranges)


def _numbers(ranges: list[tuple[int, int]]) -> list[int]:
    return [number for first, last in ranges for number in range(first, last + 1)]
