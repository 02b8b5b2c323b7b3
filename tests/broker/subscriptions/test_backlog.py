"""
Tests of what is told of events that wait for durable subscriptions.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker.subscriptions import Holder, StoredPosition, WaitingEvents, _backlog
from svcbroker.model import Position

from .test_durable import uuid
from .test_subscriptions import UUID, Fixture, Reader


class BacklogTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.fixture = Fixture()
        self.fixture.open("t", "u", "a/b")

    def survey(self) -> list[WaitingEvents]:
        self.fixture.clock.advance(_backlog.MIN_PERIOD)
        return list(self.fixture.subscriptions.backlog.survey().waiting)

    def counts(self) -> list[tuple[str, int, int | None]]:
        """The name, the number of events and the time of the oldest, in seconds."""
        return [
            (each.name, each.count, None if each.oldest is None else each.oldest // 1000)
            for each in self.survey()
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
        self.assertEqual(
            self.survey(),
            [WaitingEvents(group="1", kind="stomp", name=UUID, count=0, oldest=None)],
        )

    def test_subscriptionsThatAreNotDurableAreLeftOut(self) -> None:
        self.fixture.subscribe("t")
        self.assertEqual(self.survey(), [])

    def test_unacknowledgedEventsWait(self) -> None:
        reader = self.fixture.subscribe("t", id=UUID, isDurable=True, isAcknowledged=True)
        first = self.publish()
        second = self.publish()
        self.assertEqual(self.counts(), [(UUID, 2, first)])
        reader.subscription.acknowledge(reader.events[:1])
        self.assertEqual(self.counts(), [(UUID, 1, second)])
        reader.subscription.acknowledge(reader.events[1:])
        self.assertEqual(self.counts(), [(UUID, 0, None)])

    def test_eventsWaitForAbsentSubscription(self) -> None:
        for filters in (("t",), ("t", "u"), ("#",), ("+", "a/#")):
            reader = self.fixture.subscribe(*filters, id=UUID, isDurable=True, isAcknowledged=True)
            reader.subscription.close()
            self.assertEqual(self.counts(), [(UUID, 0, None)])
            if filters == ("t",):
                self.publish("u")
            first = self.publish()
            self.publish()
            self.assertEqual(self.counts(), [(UUID, 2, first)])
            self.fixture.restart()
            self.assertEqual(self.counts(), [(UUID, 2, first)])
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
            self.assertEqual(self.counts(), [(UUID, count, oldest)])

    def test_heldPositionIsNamedByItsHolder(self) -> None:
        filters = ["t"]
        self.fixture.subscriptions.hold(UUID, Holder("mqtt", "meter-7", lambda: filters))
        self.fixture.positions.make(
            UUID, "1", StoredPosition(Position(1, -1)), owner="ann", account="", day=1
        )
        when = self.publish("u")
        self.assertEqual(self.counts(), [("meter-7", 0, None)])
        filters[:] = ["u"]
        self.assertEqual(self.counts(), [("meter-7", 1, when)])
        self.assertEqual(self.survey()[0].kind, "mqtt")

    def test_positionWithoutFiltersIsLeftOut(self) -> None:
        """It was made by a release that did not keep them."""
        self.fixture.positions.make(UUID, "1", StoredPosition(Position(1, -1)), owner="a", day=1)
        self.assertEqual(self.survey(), [])

    def test_longSurveyPauses(self) -> None:
        for number in range(3):
            self.subscribe("t", id=uuid(number))
        seconds = self.fixture.clock.seconds

        def slowly() -> float:
            self.fixture.clock.rightNow += _backlog.SLICE
            return seconds()

        backlog = self.fixture.subscriptions.backlog
        self.fixture.clock.seconds = slowly  # type: ignore[method-assign]
        backlog.survey()
        self.assertEqual(backlog.survey().waiting, ())
        self.fixture.clock.seconds = seconds  # type: ignore[method-assign]
        self.fixture.clock.advance(60)
        self.fixture.clock.advance(60)
        self.assertEqual(len(backlog.survey().waiting), 3)

    def test_stopEndsTheSurvey(self) -> None:
        self.patch(_backlog, "SLICE", -1.0)
        for number in range(2):
            self.subscribe("t", id=uuid(number))
        backlog = self.fixture.subscriptions.backlog
        backlog.survey()
        self.fixture.subscriptions.stop()
        self.assertEqual(backlog.survey().waiting, ())
