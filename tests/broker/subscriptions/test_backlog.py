"""
Tests of what is told of events that wait for durable subscriptions.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker.subscriptions import Holder, _backlog
from svcbroker.broker.subscriptions._backlog import Survey
from svcbroker.broker.subscriptions._positions import StoredPosition
from svcbroker.model import Position

from .test_durable import uuid
from .test_reading import publishBlock
from .test_subscriptions import UUID, Fixture, Reader


class BacklogTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.fixture = Fixture()
        self.fixture.open("t", "u", "a/b")

    def survey(self) -> Survey:
        self.fixture.clock.advance(_backlog.MIN_PERIOD)
        return self.fixture.subscriptions.backlog.survey()

    def counts(self) -> list[tuple[str, int, int | None]]:
        """The kind, the number of events and the time of the oldest one, in seconds."""
        survey = self.survey()
        for (group, kind), total in survey.totals.items():
            named = [each for each in survey.worst if each.kind == kind]
            self.assertEqual((group, total.behind), ("1", len(named)))
            self.assertEqual(total.count, sum(each.count for each in named))
            oldest = [each.oldest for each in named if each.oldest is not None]
            self.assertEqual(total.oldest, min(oldest, default=None))
        return [
            (kind, total.count, None if total.oldest is None else total.oldest // 1000)
            for (_, kind), total in survey.totals.items()
        ]

    def publish(self, topic: str = "t") -> int:
        """Publish a second later; return when that was."""
        self.fixture.clock.advance(1)
        self.fixture.publish(topic, b"x")
        self.fixture.turn()
        return int(self.fixture.clock.seconds())

    def subscribe(self, *filters: str, id: str = UUID) -> Reader:
        return self.fixture.subscribe(*filters, id=id, isDurable=True, isAcknowledged=True)

    def test_nothingWaitsForIdleSubscription(self) -> None:
        self.subscribe("t")
        self.assertEqual(self.counts(), [("stomp", 0, None)])

    def test_subscriptionsThatAreNotDurableAreLeftOut(self) -> None:
        self.fixture.subscribe("t")
        self.assertEqual(self.counts(), [])

    def test_unacknowledgedEventsWait(self) -> None:
        reader = self.fixture.subscribe("t", id=UUID, isDurable=True, isAcknowledged=True)
        first = self.publish()
        second = self.publish()
        self.assertEqual(self.counts(), [("stomp", 2, first)])
        reader.subscription.acknowledge(reader.events[:1])
        self.assertEqual(self.counts(), [("stomp", 1, second)])
        reader.subscription.acknowledge(reader.events[1:])
        self.assertEqual(self.counts(), [("stomp", 0, None)])

    def test_eventsWaitForAbsentSubscription(self) -> None:
        self.checkAbsent()

    def test_firstOfManyTopicsIsFoundInSteps(self) -> None:
        self.patch(_backlog, "LOOKED_UP_AT_ONCE", 1)
        self.patch(_backlog, "TOPICS_AT_ONCE", 2)
        self.checkAbsent()

    def checkAbsent(self) -> None:
        for filters in (("t",), ("t", "u"), ("#",), ("+", "a/#")):
            reader = self.fixture.subscribe(*filters, id=UUID, isDurable=True, isAcknowledged=True)
            reader.subscription.close()
            self.assertEqual(self.counts(), [("stomp", 0, None)])
            if filters == ("t",):
                self.publish("u")
            first = self.publish()
            self.publish()
            self.assertEqual(self.counts(), [("stomp", 2, first)])
            self.fixture.restart()
            self.assertEqual(self.counts(), [("stomp", 2, first)])
            self.fixture.subscriptions.forget(UUID)
            self.assertEqual(self.counts(), [])

    def test_restOfABlockWaits(self) -> None:
        """A position within a block leaves what is behind it."""
        first = self.publish()
        height = self.fixture.subscriptions.end("1").height - 1
        later = self.publish()
        self.subscribe("t")
        for position, count, oldest in (
            (Position(height, 0), 1, later),
            (Position(height, -1), 2, first),
        ):
            subscription = self.fixture.subscriptions
            subscription.stop()
            self.fixture.restart()
            self.fixture.positions.move(UUID, StoredPosition(position), day=1)
            self.assertEqual(self.counts(), [("stomp", count, oldest)])

    def test_heldPositionIsNamedByItsHolder(self) -> None:
        filters = ["t"]
        self.fixture.subscriptions.hold(UUID, Holder("mqtt", "meter-7", lambda: filters))
        self.fixture.positions.make(
            UUID, "1", StoredPosition(Position(1, -1)), owner="ann", account="", day=1
        )
        when = self.publish("u")
        self.assertEqual(self.counts(), [("mqtt", 0, None)])
        filters[:] = ["u"]
        self.assertEqual(self.counts(), [("mqtt", 1, when)])
        self.assertEqual([each.name for each in self.survey().worst], ["meter-7"])

    def test_positionWithoutFiltersIsLeftOut(self) -> None:
        """It was made by a release that did not keep them."""
        self.fixture.positions.make(UUID, "1", StoredPosition(Position(1, -1)), owner="a", day=1)
        self.assertEqual(self.counts(), [])

    def test_longSurveyPauses(self) -> None:
        """Of the first one, what is known so far is told."""
        for number in range(3):
            self.subscribe("t", id=uuid(number)).subscription.close()
        self.publish()
        self.patch(_backlog, "SLICE", -1.0)
        backlog = self.fixture.subscriptions.backlog
        self.assertEqual(backlog.survey().totals["1", "stomp"].count, 1)
        self.fixture.clock.advance(0)
        self.assertEqual(backlog.survey().totals["1", "stomp"].count, 3)
        self.publish()
        self.fixture.clock.advance(_backlog.MIN_PERIOD)
        self.assertEqual(backlog.survey().totals["1", "stomp"].count, 3)
        self.fixture.clock.pump([0, 0, 0])
        self.assertEqual(backlog.survey().totals["1", "stomp"].count, 6)

    def countPauses(self) -> list[float]:
        """Have surveys pause after each step, for no time. A step compares two topics."""
        pauses: list[float] = []

        def pause(clock: object, seconds: float) -> Deferred[None]:
            pauses.append(seconds)
            return succeed(None)

        self.patch(_backlog, "deferLater", pause)
        self.patch(_backlog, "SLICE", -1.0)
        self.patch(_backlog, "MATCHED_AT_ONCE", 2)
        return pauses

    def test_topicsAreMatchedInSteps(self) -> None:
        """A session may have a thousand patterns, and a group any number of topics."""
        self.fixture.open(*map(str, range(17)))
        when = self.publish()
        pauses = self.countPauses()
        for filters in (
            ["#"],
            ["t/+", "u/+", "+"],
            [f"+/{number}" for number in range(20)] + ["+"],
        ):
            self.subscribe(*filters).subscription.close()
            self.fixture.positions.move(UUID, StoredPosition(Position(1, -1)), day=1)
            pauses.clear()
            self.assertEqual(self.counts(), [("stomp", 1, when)])
            self.assertGreaterEqual(len(pauses), 10)
            self.fixture.subscriptions.forget(UUID)

    def test_eventsOfABlockAreMatchedInSteps(self) -> None:
        publishBlock(self.fixture, ["t"] * 20)
        self.fixture.turn()
        height = self.fixture.subscriptions.end("1").height - 1
        self.subscribe("t", "+").subscription.close()
        self.fixture.positions.move(UUID, StoredPosition(Position(height, 1)), day=1)
        pauses = self.countPauses()
        self.assertEqual([count for _, count, _ in self.counts()], [18])
        self.assertGreaterEqual(len(pauses), 9)

    def test_stopEndsTheSurvey(self) -> None:
        self.patch(_backlog, "SLICE", -1.0)
        self.subscribe("t")
        self.fixture.subscriptions.backlog.survey()
        self.fixture.subscriptions.stop()
        self.assertEqual(self.fixture.clock.getDelayedCalls(), [])
