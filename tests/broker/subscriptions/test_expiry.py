"""
Tests of the bounds of durable positions: in time, and for each owner.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import maybeDeferred, succeed
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from svcbroker import errors
from svcbroker.access import ANYBODY, Principal, Usage
from svcbroker.broker import MetadataStore
from svcbroker.broker.subscriptions import KeptPositions, _positions
from svcbroker.broker.subscriptions._positions import StoredPosition
from svcbroker.interfaces import Identity, Quotas
from svcbroker.model import InterfaceType, Owner, Position, SubscribeRequest
from svcbroker.net.budgets import Budgets
from tests.access.support import principalOf
from tests.carriers.mqtt.support import MetadataFile

from .test_subscriptions import HOLDER, UUID, Fixture, Reader, result

DAY = 86400
OTHER = "0b7b1e0c-5b7a-4c7a-9b0e-0123456789ac"


class DaysFixture(Fixture):
    """
    Subscriptions whose positions expire after 30 days, over a metadata store.

    @ivar writes: what was written to the disk.
    """

    days = 30
    most = 10_000

    def __init__(self) -> None:
        self.file = MetadataFile()
        super().__init__()
        self.open("a")

    def restart(self) -> None:
        """Other subscriptions, on what is on the disk."""
        self.metadata = MetadataStore(self.file, self.clock, maybeDeferred)
        self.budgets = Budgets.of(self.clock)
        self.positions = KeptPositions(self.metadata, self.budgets.subscriptions)
        # The write is due a little later, which is of no concern here.
        self.positions.flush = lambda: succeed(None)  # type: ignore[method-assign]
        self.begin(maxOwnPositions=self.most, positionExpiry=self.days)

    def kill(self, away: int = 0) -> None:
        """End without a stop, and start again after some days."""
        self.clock.advance(1)
        self.subscriptions.stop()
        # What a stop has written is not on the disk after a kill.
        before = dict(self.file.kept)
        result(self.metadata.stop())
        self.file.kept = before
        self.clock.advance(away * DAY)
        self.restart()

    def pass_(self, days: int) -> None:
        """Let days pass, hour by hour, with all that is due."""
        for _ in range(days * 24):
            self.clock.advance(3600)
            self.turn()

    def durable(self, id: str = UUID) -> Reader:
        """A durable reader."""
        return self.subscribe("a", id=id, isDurable=True, isAcknowledged=True)


class ExpiryTests(SynchronousTestCase):
    """
    Positions that are not used.
    """

    def setUp(self) -> None:
        self.fixture = DaysFixture()

    def assertKept(self, *ids: str) -> None:
        """These positions are kept, and no others."""
        self.assertEqual(sorted(self.fixture.positions.ids()), sorted(ids))

    def test_unusedPositionIsRemoved(self) -> None:
        """It is removed after its days and not before, from the disk too, and the log says so."""
        fixture = self.fixture
        fixture.durable().subscription.close()
        fixture.pass_(30)
        self.assertKept(UUID)
        with capturedLogs() as events:
            fixture.pass_(2)
        self.assertKept()
        self.assertNotIn(("position", UUID), fixture.file.kept)
        [line] = map(formatEvent, events)
        self.assertIn("1 positions of durable subscriptions are removed", line)
        fixture.durable()

    def test_usePostponesTheEnd(self) -> None:
        fixture = self.fixture
        for _ in range(3):
            fixture.durable().subscription.close()
            fixture.pass_(25)
        self.assertKept(UUID)

    def test_liveSubscriptionNeverExpires(self) -> None:
        """Also if no event came for months, and the broker is killed then."""
        fixture = self.fixture
        fixture.durable()
        fixture.pass_(70)
        self.assertKept(UUID)
        fixture.kill()
        fixture.pass_(29)
        self.assertKept(UUID)
        fixture.pass_(3)
        self.assertKept()

    def test_heldPositionStaysUntilForgotten(self) -> None:
        """Positions of sessions and webhooks end with those."""
        fixture = self.fixture
        fixture.durable().subscription.close()
        fixture.subscriptions.hold(UUID, HOLDER)
        fixture.pass_(70)
        self.assertKept(UUID)
        fixture.subscriptions.forget(UUID)
        fixture.durable().subscription.close()
        fixture.pass_(32)
        self.assertKept()

    def test_breakCountsAgainstNoPosition(self) -> None:
        """Positions outlast a broker that was away, or on another chain."""
        fixture = self.fixture
        fixture.durable().subscription.close()
        fixture.pass_(20)
        fixture.kill(away=300)
        fixture.pass_(30)
        self.assertKept(UUID)
        fixture.pass_(2)
        self.assertKept()

    def test_restartsCountAsService(self) -> None:
        """A broker that starts each day removes what is not used."""
        fixture = self.fixture
        fixture.durable().subscription.close()
        for _ in range(32):
            fixture.pass_(1)
            fixture.kill()
        fixture.clock.advance(_positions.INTERVAL)
        fixture.turn()
        self.assertKept()

    def test_neverIsPossible(self) -> None:
        fixture = self.fixture
        fixture.subscriptions.stop()
        fixture.days = 0
        fixture.restart()
        fixture.durable().subscription.close()
        fixture.pass_(400)
        self.assertKept(UUID)

    def test_positionsOfTheVersionBeforeAreContinued(self) -> None:
        """They resume, and their days begin with the first start of this version."""
        fixture = self.fixture
        fixture.publish("a", b"1")
        fixture.publish("a", b"2")
        for id in (UUID, OTHER):
            fixture.file.kept["position", id] = b'["1",[3,-1],[]]'
        fixture.subscriptions.stop()
        fixture.restart()
        fixture.pass_(29)
        self.assertKept(UUID, OTHER)
        reader = fixture.durable()
        fixture.turn()
        self.assertEqual(reader.contents, [b"2"])
        fixture.pass_(3)
        self.assertKept(UUID)

    def test_otherGroupsAreLeftAlone(self) -> None:
        """Positions of a group that is not served now stay."""
        fixture = self.fixture
        fixture.positions.make(UUID, "2", StoredPosition(Position(1, -1)), owner="a", day=1)
        fixture.pass_(40)
        self.assertKept(UUID)

    def test_sweepIsCutIntoPieces(self) -> None:
        """A turn of the reactor looks at a piece of the positions only, however many there are."""
        fixture = self.fixture
        # They are swept each hour of a month.
        self.patch(_positions, "PIECE", 20)
        for number in range(5 * _positions.PIECE):
            fixture.positions.make(
                f"{number}", "1", StoredPosition(Position(1, -1)), owner="a", day=1
            )
        fixture.pass_(31)
        looks = 0
        turns: list[int] = []
        find, callLater = fixture.positions.find, fixture.clock.callLater

        def count(id: str) -> object:
            nonlocal looks
            looks += 1
            return find(id)

        def turn(delay: float, *call: Any) -> object:
            nonlocal looks
            turns.append(looks)
            looks = 0
            return callLater(delay, *call)

        self.patch(fixture.positions, "find", count)
        self.patch(fixture.clock, "callLater", turn)
        fixture.clock.advance(_positions.INTERVAL)
        self.assertEqual(turns, [_positions.PIECE] * 5 + [0])

    def test_useCostsNoWriteOfItsOwn(self) -> None:
        """Coming and going on one day writes nothing, if no event came; on the next day, once."""
        fixture = self.fixture
        fixture.durable().subscription.close()
        fixture.clock.advance(1)
        kept = fixture.file.kept["position", UUID]
        writes: list[object] = []
        write = fixture.file.write

        def record(changes: dict[tuple[str, str], bytes | None]) -> None:
            writes.append(changes)
            write(changes)

        self.patch(fixture.file, "write", record)
        for _ in range(3):
            fixture.durable().subscription.close()
            fixture.clock.advance(1)
        self.assertEqual((writes, fixture.file.kept["position", UUID]), ([], kept))
        reader = fixture.durable()
        fixture.pass_(2)
        fixture.clock.advance(1)
        self.assertEqual(
            [key for changes in writes for key in changes],  # type: ignore[attr-defined]
            2 * [("position-days", "1"), ("position", UUID)],
        )
        reader.subscription.close()


class OwnerTests(SynchronousTestCase):
    """
    How many positions one owner may have made.
    """

    def setUp(self) -> None:
        self.fixture = DaysFixture()
        self.fixture.subscriptions.stop()
        self.fixture.most = 2
        self.fixture.restart()

    def subscribe(self, id: str, remote: str, principal: Principal = ANYBODY) -> Reader:
        """Subscribe durably from an address."""
        reader = Reader()
        request = SubscribeRequest(
            interfaceType=InterfaceType.STOMP,
            group="1",
            filters=("a",),
            subscriptionId=id,
            remote=remote,
            isDurable=True,
        )
        reader.subscription = result(
            self.fixture.subscriptions.subscribe(principal, request, reader)
        )
        return reader

    def uuid(self, number: int) -> str:
        """An id for a subscription."""
        return f"0b7b1e0c-5b7a-4c7a-9b0e-{number:012d}"

    def test_ownersAreBoundedOneByOne(self) -> None:
        """Whatever the port. What was made counts while it is kept, also after a restart."""
        first = self.subscribe(self.uuid(1), "10.0.0.1:1")
        self.subscribe(self.uuid(2), "10.0.0.1:2").subscription.close()
        for _ in range(2):
            error = self.assertRaises(errors.Overloaded, self.subscribe, self.uuid(3), "10.0.0.1:3")
            self.assertIn("10.0.0.1 has made 2 durable subscriptions", error.message)
            for remedy in ("deleteDurableSubscription", "svcbroker admin subscription list"):
                self.assertIn(remedy, error.message)
            first.subscription.close()
            self.fixture.kill()
        self.subscribe(self.uuid(3), "10.0.0.2:1")
        self.fixture.subscriptions.forget(self.uuid(2))
        self.subscribe(self.uuid(4), "10.0.0.1:3")
        self.assertRaises(errors.Overloaded, self.subscribe, self.uuid(5), "10.0.0.1:3")

    def test_resumingElsewhereChangesNoOwner(self) -> None:
        """A client that comes from another address goes on, and counts for the one before."""
        for number in (1, 2):
            self.subscribe(self.uuid(number), "10.0.0.1:1").subscription.close()
        for number in (1, 2):
            self.subscribe(self.uuid(number), "10.0.0.2:1").subscription.close()
        self.assertEqual(self.fixture.positions.countOf(Owner("10.0.0.1", "")), 2)
        self.subscribe(self.uuid(3), "10.0.0.2:1")
        self.assertRaises(errors.Overloaded, self.subscribe, self.uuid(4), "10.0.0.1:1")

    def test_accountIsTheOwnerWhereverItIs(self) -> None:
        """With accounts, what clients of one account have made counts together."""
        account = Principal(
            Identity(name="ada", grants=ANYBODY.identity.grants),
            Usage(Quotas(), self.fixture.clock.seconds),
        )
        for number in (1, 2):
            self.subscribe(self.uuid(number), f"10.0.0.{number}:1", account)
        error = self.assertRaises(
            errors.Overloaded, self.subscribe, self.uuid(3), "10.0.0.3:1", account
        )
        self.assertIn("ada has made 2 durable subscriptions", error.message)
        self.subscribe(self.uuid(3), "10.0.0.1:1")

    def test_anAccountNamedAsAnAddressHasPlacesOfItsOwn(self) -> None:
        """Others than the operator may choose names of accounts."""
        account = principalOf("subscribe 1 #", name="10.0.0.1")
        for number in (1, 2):
            self.subscribe(self.uuid(number), "10.0.0.2:1", account)
        self.subscribe(self.uuid(3), "10.0.0.1:1")

    def test_othersMayNotUseAPosition(self) -> None:
        """Also while it is not live, and also in the next process."""
        ada, bob = (principalOf("subscribe 1 #", name=name) for name in ("ada", "bob"))
        self.subscribe(self.uuid(1), "10.0.0.1:1", ada).subscription.close()
        self.fixture.kill()
        for _ in range(2):
            self.assertRaises(
                errors.SubscriptionExists, self.subscribe, self.uuid(1), "10.0.0.1:1", bob
            )
            self.subscribe(self.uuid(1), "10.0.0.2:1", ada).subscription.close()
        # Those that were made without credentials may be used by all who know their ids.
        self.subscribe(self.uuid(2), "10.0.0.1:1").subscription.close()
        self.subscribe(self.uuid(2), "10.0.0.1:1", bob)

    def test_totalNamesTheRemedy(self) -> None:
        self.subscribe(self.uuid(1), "10.0.0.1:1")
        self.patch(_positions, "MAX_POSITIONS", 1)
        error = self.assertRaises(errors.Overloaded, self.subscribe, self.uuid(2), "10.0.0.2:1")
        for remedy in ("deleteDurableSubscription", "svcbroker admin subscription list"):
            self.assertIn(remedy, error.message)

    def test_otherGroupTakesAnIdOver(self) -> None:
        """As the same id in another group is another subscription, with an owner of its own."""
        self.fixture.positions.make(
            self.uuid(1), "2", StoredPosition(Position(1, -1)), owner="10.0.0.1", day=1
        )
        self.subscribe(self.uuid(1), "10.0.0.2:1")
        self.assertEqual(
            [self.fixture.positions.countOf(Owner(f"10.0.0.{number}", "")) for number in (1, 2)],
            [0, 1],
        )
        self.assertEqual(self.fixture.positions.ids("2"), [])
