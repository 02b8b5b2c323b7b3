"""
Tests for L{svcbroker.daemon.alarms}, and for the alarms of other features of the daemon.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import directlyProvides

from svcbroker.daemon.alarms import (
    FEATURE,
    LITTLE,
    MANY_LOGINS,
    RECENT,
    RUNNING,
    ClockWatch,
    DiskRoom,
    certificateAlarms,
    healthAlarms,
    ledgerAlarms,
)
from svcbroker.daemon.auditing import LastAudit, auditAlarms
from svcbroker.daemon.metrics import LAG_PERIOD, ReactorLag
from svcbroker.errors import LedgerUnavailable
from svcbroker.interfaces import IMeasuredLedger
from svcbroker.model import ChainMeasures, Disk, Health, LedgerMeasures, Page
from svcbroker.net.findings import DAY
from svcbroker.testing import _featuretests as contract
from tests.metrics.support import samplesOf


def names(alarms: Any) -> list[str]:
    """The names of alarms, each with its group."""
    return [f"{each.condition.name} {each.group}".rstrip() for each in alarms]


class FeatureTests(contract.FeatureTests):
    """
    What is counted in the process, and how it ended.
    """

    def makeFixture(self) -> contract.FeatureFixture:
        return contract.FeatureFixture(feature=FEATURE)

    def begin(self) -> Any:
        made = self.serve()
        self.successResultOf(made.start())
        return made

    def look(self) -> list[str]:
        """The alarms of now, which the metric tells, too."""
        self.reactor.advance(1)
        raised = names(self.successResultOf(self.services.alarms.look()))
        samples = samplesOf(self.made.metrics())
        self.assertEqual(len(samples), len(FEATURE.conditions))
        told = {name for (_, name), value in samples.items() if value}
        self.assertEqual(told, {each.partition(" ")[0] for each in raised})
        return raised

    def test_manyRefusedLogInsAreAnAlarm(self) -> None:
        """It ends some minutes after the last of them."""
        self.made = self.begin()
        self.addCleanup(self.end, self.made)
        self.assertEqual(self.look(), [])
        self.access.logins["http", "failed"] += MANY_LOGINS
        self.assertEqual(self.look(), [])
        self.access.logins["mqtt", "failed"] += 1
        self.assertEqual(self.look(), ["logins-fail"])
        self.reactor.advance(RECENT)
        self.look()
        self.reactor.advance(RECENT)
        self.assertEqual(self.look(), [])

    def test_refusalsForWantOfRoomAreAlarms(self) -> None:
        """By a budget of bytes, and by the ledger."""
        self.made = self.begin()
        self.addCleanup(self.end, self.made)
        self.assertEqual(self.look(), [])
        self.assertFalse(self.services.budgets.input.count("ann").fits(1 << 60))
        self.assertEqual(self.look(), ["budget-used-up"])
        [alarm] = self.services.alarms.raised
        self.assertIn("input: 1 refusals", alarm.text)
        self.services.broker.meter.others["http", "overloaded"] += 3
        self.assertEqual(self.look(), ["budget-used-up", "overloaded"])

    def test_uncleanStopIsToldForADay(self) -> None:
        """The file that says so is removed by a stop in order."""
        self.made = self.begin()
        self.assertEqual(self.look(), [])
        marker = self.services.dataDir / RUNNING
        self.assertTrue(marker.exists())
        self.end(self.made)
        self.assertFalse(marker.exists())
        self.made = self.serve()
        self.addCleanup(self.end, self.made)
        (self.services.dataDir / RUNNING).touch()
        self.successResultOf(self.made.start())
        self.assertEqual(self.look(), ["unclean-stop"])
        self.reactor.advance(DAY)
        self.assertEqual(self.look(), [])

    def test_lateTimersAreAnAlarm(self) -> None:
        clock = Clock()
        lag = ReactorLag(clock)
        lag.start()
        self.addCleanup(lag.stop)
        self.assertEqual(names(lag.alarms()), [])
        for _ in range(20):
            clock.advance(5)
            clock.advance(LAG_PERIOD)
        self.assertEqual(names(lag.alarms()), ["reactor-blocked"])
        for _ in range(600):
            clock.advance(LAG_PERIOD)
            found = names(lag.alarms())
        self.assertEqual(found, [])


class FakeLedger:
    """A ledger that answers what a test has set."""

    def __init__(self, measures: LedgerMeasures | None = None, **nodes: bool) -> None:
        self.nodes, self.measures, self.times = nodes, measures, [0.0]
        if measures is not None:
            directlyProvides(self, IMeasuredLedger)

    def measure(self) -> LedgerMeasures:
        assert self.measures is not None
        return self.measures

    def listNodes(self, offset: int, limit: int) -> Deferred[Any]:
        items = [
            SimpleNamespace(name=name, nodeId=b"", isActive=isActive)
            for name, isActive in self.nodes.items()
        ]
        return succeed(Page(items=items, total=len(items)))

    def listBlocks(self, offset: int, limit: int) -> Deferred[Any]:
        blocks = [SimpleNamespace(timestamp=at * 1000) for at in self.times]
        return succeed(Page(items=blocks, total=len(blocks)))


class SourceTests(SynchronousTestCase):
    """
    The sources that look at ledgers, the disk, the clock, certificates and audits.
    """

    def setUp(self) -> None:
        self.clock = Clock()

    def test_groupsThatAreNotReadyAreNamed(self) -> None:
        good, bad = Health(isReady=True), Health(isReady=False, reason="no quorum")
        [alarm] = healthAlarms({"1": good, "2": bad})
        self.assertEqual((alarm.group, alarm.text), ("2", "no quorum"))

    def ofLedger(self, ledger: Any) -> list[str]:
        return names(self.successResultOf(Deferred.fromCoroutine(ledgerAlarms({"1": ledger}))))

    def test_nodesThatDoNotRunAreNamed(self) -> None:
        self.assertEqual(self.ofLedger(FakeLedger(a=True, b=True)), [])
        self.assertEqual(self.ofLedger(FakeLedger(a=True, b=False)), ["node-down 1"])

    def test_ledgerWithoutAnAnswerHasNoNodes(self) -> None:
        """Its health says why; other groups are looked at."""
        ledger: Any = FakeLedger()
        ledger.listNodes = lambda *_: Deferred.fromCoroutine(self.refuse())
        self.assertEqual(self.ofLedger(ledger), [])

    async def refuse(self) -> None:
        raise LedgerUnavailable("stopped")

    def test_copiesThatAreBehindOrRefuseAreTold(self) -> None:
        measures = LedgerMeasures(waiting=0, waitingBytes=0, oldest=0, behind=5, silence=1)
        for changes, found in (
            ({}, []),
            ({"behind": 1001}, ["copy-behind 1"]),
            ({"silence": 121}, ["copy-behind 1"]),
            ({"silence": 121, "refused": "another genesis"}, ["copy-forked 1"]),
        ):
            each: dict[str, Any] = changes
            # Its nodes are those of the original.
            ledger = FakeLedger(evolve(measures, **each), a=False)
            self.assertEqual(self.ofLedger(ledger), found)

    def test_littleMoneyForGasIsTold(self) -> None:
        """Where gas costs something, and the account can pay for few batches."""
        for balance, price, found in (
            *((None, 7, []), (0, 0, []), (10**10 * 7, 7, [])),
            *((10**9 * 7, 7, ["gas-low 1"]), (0, 1, ["gas-low 1"])),
        ):
            chain = ChainMeasures(
                height=9, behind=0, underWay=0, balance=balance, gasPrice=price, attested=0
            )
            measures = LedgerMeasures(waiting=0, waitingBytes=0, oldest=0, chain=chain)
            self.assertEqual(self.ofLedger(FakeLedger(measures, a=True)), found)

    def test_diskIsToldBeforeItIsFull(self) -> None:
        """By what is left, and by how long that lasts at the rate of the last day."""
        disk = Disk(free=500 * LITTLE, size=1000 * LITTLE)
        then = float(disk.free)
        room = DiskRoom(lambda: succeed(disk), lambda: (self.clock.seconds(), then))

        def look() -> list[str]:
            return names(self.successResultOf(room.alarms()))

        self.assertEqual(look(), [])
        self.clock.advance(3600)
        disk = evolve(disk, free=490 * LITTLE)
        self.assertEqual(look(), [])
        self.clock.advance(3600)
        disk = evolve(disk, free=400 * LITTLE)
        self.assertEqual(look(), ["disk-fills-up"])
        [alarm] = self.successResultOf(room.alarms())
        self.assertIn("enough for 8 hours", alarm.text)
        disk = evolve(disk, free=LITTLE - 1)
        self.assertEqual(look(), ["disk-full"])
        disk = evolve(disk, free=500 * LITTLE)
        self.assertEqual(look(), [])
        disk = evolve(disk, size=10_000 * LITTLE)
        self.assertEqual(look(), ["disk-fills-up"])

    def test_clockThatJumpsIsToldForAnHour(self) -> None:
        ahead, ledger = 1e9, FakeLedger()
        ledger.times = [1e9]
        ledgers: Any = {"1": ledger}
        watch = ClockWatch(lambda: self.clock.seconds() + ahead, self.clock.seconds, ledgers)

        def look() -> list[str]:
            return names(self.successResultOf(watch.alarms()))

        self.clock.advance(100)
        self.assertEqual(look(), [])
        ahead += 60
        self.assertEqual(look(), ["clock-off"])
        self.clock.advance(1800)
        self.assertEqual(look(), ["clock-off"])
        ahead -= 60
        self.assertEqual(look(), [])
        ahead += 60
        look()
        self.clock.advance(3600)
        look()
        self.assertEqual(look(), [])
        ledger.times = [self.clock.seconds() + ahead + 60]
        self.assertEqual(look(), ["clock-off 1"])
        ledger.times = []
        self.assertEqual(look(), [])

    def test_certificatesThatExpireAreNamed(self) -> None:
        def port(end: float) -> Any:
            return SimpleNamespace(name="mqtt", certificates=SimpleNamespace(validUntil=end))

        plain: Any = SimpleNamespace(name="http", certificates=None)
        now = 100 * DAY
        texts = [
            each.text
            for end in (99 * DAY, 113 * DAY, 115 * DAY)
            for each in certificateAlarms([plain, port(end)], lambda: now)
        ]
        self.assertEqual(len(texts), 2)
        self.assertIn("mqtt has expired", texts[0])
        self.assertIn("mqtt expires on", texts[1])

    def test_auditsThatFindDamageOrAreOldAreTold(self) -> None:
        audit = LastAudit(isGood=True, endedAt=0, seconds=1, height=7)
        bad = evolve(audit, isGood=False, problem="block 3: another hash")
        audits = {"1": audit, "2": bad}
        self.assertEqual(names(auditAlarms(audits, 3600, DAY)), ["audit-failed 2"])
        old = ["audit-old 1", "audit-failed 2"]
        self.assertEqual(names(auditAlarms(audits, 3600, 2 * DAY)), old)
        self.assertEqual(names(auditAlarms(audits, 0, 2 * DAY)), ["audit-failed 2"])
