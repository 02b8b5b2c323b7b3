"""
Tests of waiting for blocks that other nodes have: what one node has answered, the others know.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import alsoProvides

from svcbroker import errors
from svcbroker.access import ANYBODY
from svcbroker.broker import ReadPage, ReadRequest
from svcbroker.broker.subscriptions import _eventreading
from svcbroker.broker.subscriptions._eventreading import WAIT
from svcbroker.broker.subscriptions._positions import StoredPosition
from svcbroker.interfaces import INetworkLedger, ISubscription
from svcbroker.model import EventId, InterfaceType, Offset, Position, SubscribeRequest, topicPrefix

from .test_subscriptions import UUID, Fixture, Reader


class HeightsTests(SynchronousTestCase):
    """
    The ledger is that of a network: what is published here later, another node has already.
    """

    def setUp(self) -> None:
        self.fixture = Fixture()
        alsoProvides(self.fixture.ledger, INetworkLedger)
        self.fixture.restart()
        self.fixture.open("a")
        self.height = self.fixture.subscriptions.end("1").height

    def idAt(self, ahead: int, sequence: int = 1, topic: str = "a") -> EventId:
        """The id of an event so many blocks after the last one."""
        return EventId(topicPrefix(topic), sequence, self.height + ahead - 1)

    def subscribe(
        self, offset: Offset, topic: str = "a", remote: str = "10.0.0.1:2", **more: Any
    ) -> tuple[Deferred[ISubscription], Reader]:
        """Begin to subscribe."""
        reader = Reader()
        request = SubscribeRequest(
            interfaceType=InterfaceType.STOMP,
            group="1",
            filters=(topic,),
            offset=offset,
            mustExist=True,
            remote=remote,
            **more,
        )
        return self.fixture.subscriptions.subscribe(ANYBODY, request, reader), reader

    def read(self, offset: Offset, topic: str = "a") -> Deferred[ReadPage]:
        request = ReadRequest(group="1", filter=topic, offset=offset, remote="10.0.0.1:2")
        return self.fixture.subscriptions.readEvents(ANYBODY, request)

    def locate(self, offset: Offset) -> Deferred[Position]:
        return self.fixture.subscriptions.locate("1", offset)

    def test_subscriptionWaitsForTheEventAfterWhichItResumes(self) -> None:
        asked, reader = self.subscribe(self.idAt(2, 2))
        self.fixture.publish("a", b"1")
        self.fixture.turn()
        self.assertNoResult(asked)
        self.fixture.publish("a", b"2")
        self.fixture.turn()
        reader.subscription = self.successResultOf(asked)
        reader.subscription.resume()
        self.fixture.publish("a", b"3")
        self.fixture.turn()
        self.assertEqual(reader.contents, [b"3"])

    def test_topicMayBeAsNewAsTheEvent(self) -> None:
        asked, _ = self.subscribe(self.idAt(2, topic="new"), "new")
        page = self.read(self.idAt(2, topic="new"), "new")
        self.fixture.open("new")
        self.fixture.publish("new", b"1")
        self.fixture.turn()
        self.successResultOf(asked)
        self.assertEqual(self.successResultOf(page).batches, [])

    def test_pagesAndPlacesWait(self) -> None:
        """Also for a height, which is where a page may end."""
        for offset in (self.idAt(1), Position(self.height + 1, -1)):
            page, place = self.read(offset), self.locate(offset)
            self.fixture.turn()
            self.assertNoResult(page)
            self.assertNoResult(place)
        id = self.fixture.publish("a", b"1")
        self.fixture.turn()
        self.assertEqual(str(self.idAt(1)), id)
        self.assertEqual(self.successResultOf(place), Position(self.height + 1, -1))
        self.assertTrue(self.successResultOf(page).isAtEnd)

    def test_blockThatExistsIsNotWaitedFor(self) -> None:
        self.fixture.publish("a", b"1")
        known = (Position(self.height + 1, -1), self.idAt(1))
        for offset in known:
            self.successResultOf(self.subscribe(offset)[0])
            self.successResultOf(self.locate(offset))
        self.failureResultOf(self.locate(self.idAt(1, 2)), errors.EventNotFound)

    def test_waitEndsWithAnErrorOfItsOwn(self) -> None:
        """Not with one that says that there is no such event."""
        asked = [
            self.subscribe(self.idAt(1))[0],
            self.read(self.idAt(1)),
            self.locate(self.idAt(1)),
        ]
        self.fixture.clock.advance(WAIT - 0.1)
        for each in asked:
            self.assertNoResult(each)
        self.fixture.clock.advance(0.1)
        for each in asked:
            error = self.failureResultOf(each, errors.NodeBehind).value
            self.assertIn(f"blocks up to {self.height - 1}, and {self.height} was not", str(error))
        self.assertEqual(self.fixture.subscriptions.counts.total(), 0)

    def test_ledgerThatIsAloneIsNotWaitedFor(self) -> None:
        """Nobody else can have told of a block that it does not have."""
        fixture = Fixture()
        fixture.open("a")
        self.fixture = fixture
        self.failureResultOf(self.subscribe(self.idAt(1))[0], errors.EventNotFound)
        self.failureResultOf(self.read(self.idAt(1)), errors.EventNotFound)
        self.failureResultOf(self.read(Position(99, -1)), errors.HeightUnknown)
        reached = fixture.subscriptions.reach(ANYBODY, "1", self.idAt(1), "")
        self.failureResultOf(reached, errors.HeightUnknown)

    def test_callsThatWaitAreBounded(self) -> None:
        self.patch(_eventreading, "MAX_CALLS", 8)
        self.fixture.restart()
        waiting = [self.subscribe(self.idAt(1))[0] for _ in range(2)]
        refused, _ = self.subscribe(self.idAt(1))
        self.failureResultOf(refused, errors.QuotaExceeded)
        waiting += [self.subscribe(self.idAt(1), remote="10.0.0.2:2")[0]]
        waiting[0].cancel()
        self.failureResultOf(waiting.pop(0), CancelledError)
        waiting += [self.subscribe(self.idAt(1))[0]]
        self.fixture.publish("a", b"1")
        self.fixture.turn()
        for each in waiting:
            self.successResultOf(each)

    def test_cancelledCallLeavesNothing(self) -> None:
        asked, _ = self.subscribe(self.idAt(1))
        asked.cancel()
        self.failureResultOf(asked, CancelledError)
        self.assertEqual(self.fixture.clock.getDelayedCalls(), [])
        follower = self.fixture.subscriptions._followers["1"]
        self.assertEqual(follower._awaited, {})
        self.successResultOf(self.subscribe(Position(1, -1), subscriptionId=UUID)[0])

    def test_nobodyWaitsForABrokerThatStops(self) -> None:
        asked, _ = self.subscribe(self.idAt(1))
        self.fixture.subscriptions.drain()
        self.failureResultOf(asked, errors.NodeBehind)
        self.failureResultOf(self.read(self.idAt(1)), errors.NodeBehind)

    def test_durablePositionAheadIsKept(self) -> None:
        """
        A node whose log was lost gets it again from the others, while the positions of its clients
        are still here: they get nothing twice.
        """
        ahead = StoredPosition(Position(self.height + 1, 0))
        self.fixture.positions.make(UUID, "1", ahead, owner="10.0.0.1", day=0)
        asked, reader = self.subscribe(
            Position(1, -1), "a", subscriptionId=UUID, isDurable=True, isAcknowledged=True
        )
        reader.subscription = self.successResultOf(asked)
        reader.subscription.resume()
        reader.subscription.storePosition()
        self.assertEqual(self.fixture.positions.get(UUID, "1"), ahead)
        for content in (b"1", b"2", b"3"):
            self.fixture.publish("a", content)
            self.fixture.turn()
        self.assertEqual(reader.contents, [b"3"])
