"""
Tests of L{svcbroker.broker.Administration}.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svcbroker import errors
from svcbroker.access import ANYBODY
from svcbroker.broker import ISubscriptionDirectory
from svcbroker.interfaces import IMeasuredLedger
from svcbroker.model import Disk, GroupMeasures, InterfaceType, LedgerMeasures, SubscriptionRecord
from tests.access.support import principalOf

from .support import NODE, FakeDirectory, makeFixture, publishOne

LIVE = SubscriptionRecord(
    subscriptionId="id",
    interfaceType=InterfaceType.STOMP,
    group="1",
    filters=("a", "b/#"),
    remote="10.0.0.1:5",
    createdAt=1000,
    notifiedAt=2000,
    notified=3,
    notifying=4,
)


@implementer(IMeasuredLedger)
@frozen
class MeasuredLedger:
    """A ledger that tells of itself and does nothing else."""

    measures: LedgerMeasures

    def measure(self) -> LedgerMeasures:
        return self.measures


class AdministrationTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.fixture = makeFixture(FakeDirectory(LIVE))
        self.admin = self.fixture.calls.admin

    def test_subscriptionDirectoriesProvideTheInterface(self) -> None:
        verifyObject(ISubscriptionDirectory, FakeDirectory())

    def test_subscriptionsAreListedByGroupAndNode(self) -> None:
        def listed(group: str | None, *nodes: str) -> object:
            return self.successResultOf(self.admin.listSubscriptions(ANYBODY, group, nodes))

        self.assertEqual(listed(None), {NODE: [LIVE]})
        self.assertEqual(listed(" ", NODE), {NODE: [LIVE]})
        self.assertEqual(listed("2"), {NODE: []})

    def test_topicsWithManyBlocksAreListedInSeveralTurns(self) -> None:
        broker = self.fixture.broker
        for number in range(20):
            self.successResultOf(broker.open(ANYBODY, None, str(number)))
            self.successResultOf(publishOne(broker, ANYBODY, None, str(number), b"x", {}))
        listing = self.admin.listTopics(ANYBODY, None, 1, 99)
        self.assertNoResult(listing)
        self.fixture.clock.advance(0)
        listed = self.successResultOf(listing).page.items
        self.assertEqual([each.lastAt is None for each in listed], [False] * 20)

    def test_subscriptionErrors(self) -> None:
        for group, nodes, error in (
            ("9", ["x:1"], errors.GroupUnknown),
            (None, [NODE, "x:1"], errors.ParameterInvalid),
        ):
            self.failureResultOf(self.admin.listSubscriptions(ANYBODY, group, nodes), error)

    def test_measuresAreTheLedgersAndTheDisks(self) -> None:
        """What is not known is left out: of ledgers that measure nothing, and without a disk."""
        known = GroupMeasures(ledger=None, disk=None)
        self.assertEqual(self.successResultOf(self.admin.getMeasures(ANYBODY, None)), known)
        measures, disk = LedgerMeasures(waiting=1, waitingBytes=2, oldest=3.0), Disk(free=4, size=5)
        ledgers = {"3": MeasuredLedger(measures)}
        admin = makeFixture(ledgers=ledgers, measureDisk=lambda: succeed(disk)).calls.admin
        known = GroupMeasures(ledger=measures, disk=disk)
        self.assertEqual(self.successResultOf(admin.getMeasures(ANYBODY, "3")), known)

    def test_lostMetadataMakesNoGroupReady(self) -> None:
        """The reason is that of every group, beside one of its own, until it is accepted."""
        lost = ["notes.sqlite is missing", ""]
        admin = makeFixture(metadataLoss=lambda: lost[0]).calls.admin
        for isReady in (False, True):
            found = self.successResultOf(admin.getHealth())
            self.assertEqual(list(found), ["1", "2"])
            for health in found.values():
                self.assertEqual((health.isReady, health.reason), (isReady, lost[0]))
            lost.pop(0)

    def test_measuresNeedTheGrantAdmin(self) -> None:
        principal = principalOf("* 2 #", "operate 1", "publish 1 #")
        self.failureResultOf(self.admin.getMeasures(principal, "1"), errors.NotAuthorized)
        self.successResultOf(self.admin.getMeasures(principal, "2"))

    def test_groupsAreListedInOrder(self) -> None:
        self.assertEqual(self.successResultOf(self.admin.listGroups(ANYBODY)), ["1", "2"])

    def test_pagesAreNumberedFromOne(self) -> None:
        for name in "abc":
            self.successResultOf(self.fixture.broker.open(ANYBODY, "2", name))
        first = self.successResultOf(self.admin.listBlocks(ANYBODY, "2", 1, 2))
        self.assertEqual([block.height for block in first.page.items], [3, 2])
        last = self.successResultOf(self.admin.listBlocks(ANYBODY, "2", 2, 2))
        self.assertEqual([block.height for block in last.page.items], [1])
        self.assertEqual((last.page.total, last.index, last.size), (3, 2, 2))
        self.failureResultOf(self.admin.listBlocks(ANYBODY, "2", 0, 2), errors.PageIndexInvalid)
        self.failureResultOf(self.admin.listBlocks(ANYBODY, "9", 0, 2), errors.GroupUnknown)

    def test_filtersFindBlocksAndTransactions(self) -> None:
        for name in "abc":
            self.successResultOf(self.fixture.broker.open(ANYBODY, None, name))
        block = self.successResultOf(
            self.admin.listBlocks(ANYBODY, None, 1, 1, blockNumber=2)
        ).page.items[0]
        self.assertEqual(block.height, 2)
        found = self.successResultOf(self.admin.listBlocks(ANYBODY, None, 1, 10, pkHash=block.hash))
        self.assertEqual(list(found.page.items), [block])
        sent = self.successResultOf(
            self.admin.listTransactions(ANYBODY, None, 1, 10, blockNumber=2)
        )
        self.assertEqual([each.height for each in sent.page.items], [2])
        again = self.successResultOf(
            self.admin.listTransactions(
                ANYBODY, None, 1, 10, transactionHash=sent.page.items[0].hash
            )
        )
        self.assertEqual(again.page, sent.page)
        empty: list[Deferred[Any]] = [
            self.admin.listBlocks(ANYBODY, None, 1, 10, pkHash=bytes(32)),
            self.admin.listTransactions(ANYBODY, None, 1, 10, transactionHash=bytes(32)),
            self.admin.listNodes(ANYBODY, None, 1, 10, nodeName="nobody"),
        ]
        for answer in empty:
            self.assertEqual(self.successResultOf(answer).page.total, 0)

    def test_failingLedgerIsNotReady(self) -> None:
        self.fixture.second.error = errors.LedgerUnavailable("the disk is full")
        health = self.successResultOf(self.admin.getHealth())
        self.assertTrue(health["1"].isReady)
        self.assertEqual((health["2"].isReady, health["2"].reason), (False, "the disk is full"))
