"""
Tests of what operators do with durable subscriptions: list, reset, delete.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svcbroker import errors
from svcbroker.broker import IDurableSubscriptions
from svcbroker.broker.subscriptions._logsubscription import SUBSCRIPTION_BYTES
from svcbroker.broker.subscriptions._positions import StoredPosition
from svcbroker.model import DurableRecord, Edge, EventId, InterfaceType, Owner, Position
from svcbroker.net.budgets import ENTRY_BYTES

from .test_expiry import DAY, DaysFixture
from .test_subscriptions import ABSENT, HOLDER, UUID, result


def uuid(number: int) -> str:
    """An id; those of lower numbers come first."""
    return f"0b7b1e0c-5b7a-4c7a-9b0e-{number:012d}"


class DurableTests(SynchronousTestCase):
    """
    Durable subscriptions of STOMP.
    """

    def setUp(self) -> None:
        self.fixture = DaysFixture()
        self.durable = self.fixture.subscriptions

    def record(self, id: str = UUID) -> DurableRecord:
        """What is listed of a subscription."""
        [record] = [
            each for each in self.durable.listDurable("1", "", 100, None).items if each.id == id
        ]
        return record

    def test_interfaceIsProvided(self) -> None:
        verifyObject(IDurableSubscriptions, self.durable)

    def test_keptFiltersCountInBudget(self) -> None:
        """Of a subscription that is not live too, and after a restart."""
        fixture = self.fixture
        reader = fixture.durable()
        live = fixture.budgets.subscriptions.used
        reader.subscription.close()
        kept = fixture.budgets.subscriptions.used
        self.assertEqual(kept, live - SUBSCRIPTION_BYTES - 1)
        self.assertGreater(kept, ENTRY_BYTES)
        fixture.kill()
        self.assertEqual(fixture.budgets.subscriptions.used, kept)
        fixture.durable().subscription.close()
        self.assertEqual(fixture.budgets.subscriptions.used, kept)
        self.assertEqual(result(self.fixture.subscriptions.deleteDurable("1", [UUID], None)), 1)
        self.assertEqual(fixture.budgets.subscriptions.used, 0)

    def test_listTellsUseAndPosition(self) -> None:
        fixture = self.fixture
        reader = fixture.durable()
        fixture.publish("a", b"1")
        fixture.turn()
        reader.subscription.acknowledge(reader.events)
        fixture.pass_(3)
        now = int(fixture.clock.seconds() * 1000)
        record = self.record()
        self.assertEqual(
            record,
            DurableRecord(
                id=UUID,
                interfaceType=InterfaceType.STOMP,
                group="1",
                owner="10.0.0.1",
                isLive=True,
                subscriptions=1,
                usedAt=now,
                position=Position(3, -1),
            ),
        )
        reader.subscription.close()
        closedOn = now // (DAY * 1000) * DAY * 1000
        fixture.pass_(5)
        record = self.record()
        self.assertEqual((record.isLive, record.usedAt), (False, closedOn))

    def test_pagesHoldEachOnce(self) -> None:
        """In the order of their ids, also if those of a page are deleted before the next."""
        for isDeleting in (False, True):
            for number in (4, 1, 3, 0, 2):
                self.fixture.durable(uuid(number)).subscription.close()
            found: list[str] = []
            sizes: list[int] = []
            after: str | None = ""
            while after is not None:
                page = self.durable.listDurable("1", after, 2, None)
                ids = [each.id for each in page.items]
                found += ids
                sizes.append(len(ids))
                after = page.next
                if isDeleting:
                    self.assertEqual(result(self.durable.deleteDurable("1", ids, None)), len(ids))
            self.assertEqual(found, [uuid(number) for number in range(5)])
            self.assertEqual(sizes, [2, 2, 1])
        self.assertEqual(self.durable.listDurable("1", "", 9, None).items, [])

    def test_othersAreNotListed(self) -> None:
        """Those of other groups, and those that belong to sessions and webhooks."""
        self.fixture.durable().subscription.close()
        self.durable.hold(UUID, HOLDER)
        self.fixture.positions.make(uuid(2), "2", StoredPosition(Position(1, -1)), owner="a", day=1)
        self.assertEqual(self.durable.listDurable("1", "", 9, None).items, [])
        for each in (UUID, uuid(2), uuid(3)):
            self.failureResultOf(
                self.durable.deleteDurable("1", [each], None), errors.SubscriptionNotFound
            )
            self.failureResultOf(
                self.durable.resetDurable("1", each, Edge.FIRST, None), errors.SubscriptionNotFound
            )
        self.assertEqual(self.fixture.positions.count(), 2)

    def test_resetMovesThePosition(self) -> None:
        """To any offset at which a subscription can begin, of which nothing is left out then."""
        fixture = self.fixture
        ids = [fixture.publish("a", b"%d" % number) for number in range(4)]
        for offset, first in (
            (Edge.FIRST, 0),
            (EventId.parse(ids[1]), 2),
            (Position(int(ids[3].rpartition("-")[2]), -1), 3),
            (Edge.LAST, 4),
            (Position(0, -1), 0),
        ):
            reader = fixture.durable()
            fixture.turn()
            reader.subscription.acknowledge(reader.events[1:2])
            reader.subscription.close()
            result(self.durable.resetDurable("1", UUID, offset, None))
            fixture.kill()
            self.durable = fixture.subscriptions
            reader = fixture.durable()
            fixture.turn()
            self.assertEqual(reader.contents, [b"%d" % n for n in range(first, 4)], offset)
            reader.subscription.close()

    def test_unknownOffsetChangesNothing(self) -> None:
        self.fixture.durable().subscription.close()
        before = self.record()
        for offset, error in (
            (EventId.parse(ABSENT), errors.EventNotFound),
            (Position(999, -1), errors.HeightUnknown),
        ):
            self.failureResultOf(self.durable.resetDurable("1", UUID, offset, None), error)
        self.assertEqual(self.record(), before)
        self.fixture.durable()

    def test_liveOnesAreRefused(self) -> None:
        """Nothing of the call is done then."""
        fixture = self.fixture
        fixture.durable()
        fixture.durable(uuid(1)).subscription.close()
        self.failureResultOf(
            self.durable.deleteDurable("1", [uuid(1), UUID], None), errors.SubscriptionExists
        )
        self.failureResultOf(
            self.durable.resetDurable("1", UUID, Edge.FIRST, None), errors.SubscriptionExists
        )
        self.assertEqual(fixture.positions.count(), 2)

    def test_resetKeepsClientsAway(self) -> None:
        """While a reset is under way, no client can subscribe from the position before."""
        self.fixture.durable().subscription.close()
        flushed: Deferred[None] = Deferred()
        self.patch(self.fixture.positions, "flush", lambda: flushed)
        resetting = self.durable.resetDurable("1", UUID, Edge.FIRST, None)
        self.assertRaises(errors.SubscriptionExists, self.fixture.durable)
        self.failureResultOf(
            self.durable.deleteDurable("1", [UUID], None), errors.SubscriptionExists
        )
        flushed.callback(None)
        self.successResultOf(resetting)
        self.patch(self.fixture.positions, "flush", lambda: succeed(None))
        self.fixture.durable()

    def test_othersSubscriptionsDoNotExist(self) -> None:
        """Neither an account of the address's name nor another address finds one."""
        self.fixture.durable().subscription.close()
        own, others = Owner("10.0.0.1", ""), (Owner("10.0.0.1", "10.0.0.1"), Owner("10.0.0.2", ""))
        for other in others:
            self.assertEqual(self.durable.listDurable("1", "", 9, other).items, [])
            for refused in (
                self.durable.resetDurable("1", UUID, Edge.FIRST, other),
                self.durable.deleteDurable("1", [UUID], other),
            ):
                self.failureResultOf(refused, errors.SubscriptionNotFound)
        self.assertEqual(len(self.durable.listDurable("1", "", 9, own).items), 1)
        result(self.durable.resetDurable("1", UUID, Edge.FIRST, own))
        self.assertEqual(result(self.durable.deleteDurable("1", [UUID], own)), 1)
