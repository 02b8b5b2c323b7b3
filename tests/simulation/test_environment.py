"""
Tests for the simulated environment: clock, disks and network.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random

from twisted.internet.error import AlreadyCalled, AlreadyCancelled
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svcbroker.ledgers.pbft._protocol import BlockRequest
from svcbroker.storage import Store
from tests.storage.chains import Chain, newStore
from tools.simulation.clock import VirtualClock
from tools.simulation.crashingdisk import CrashingDisk
from tools.simulation.disk import Disk, Moment, Slot
from tools.simulation.lossyfiles import Image, LossyFiles
from tools.simulation.network import (
    Cut,
    Envelope,
    Isolation,
    LinkConditions,
    Network,
    Partition,
    Starvation,
)
from tools.simulation.trace import Trace


class ClockTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = VirtualClock(100.0)
        self.heard: list[str] = []

    def test_clockProvidesInterfaces(self) -> None:
        verifyObject(IReactorTime, self.clock)
        verifyObject(IDelayedCall, self.clock.callLater(1, list))

    def test_callsAreMadeInOrder(self) -> None:
        """At equal times, in the order in which they were scheduled."""
        for name, delay in (("late", 2.0), ("first", 1.0), ("second", 1.0)):
            self.clock.callLater(delay, self.heard.append, name)
        self.clock.runUntil(101.0)
        self.assertEqual((self.heard, self.clock.seconds()), (["first", "second"], 101.0))
        self.clock.runUntil(110.0)
        self.assertEqual((self.heard[2:], self.clock.seconds()), (["late"], 110.0))

    def test_callsCanBeMoved(self) -> None:
        """And cancelled."""
        alarm = self.clock.callLater(1.0, self.heard.append, "moved")
        alarm.reset(5.0)
        alarm.delay(1.0)
        other = self.clock.callLater(1.0, self.heard.append, "never")
        other.cancel()
        self.assertEqual([call.getTime() for call in self.clock.getDelayedCalls()], [106.0])
        self.clock.runUntil(105.9)
        self.assertEqual(self.heard, [])
        self.clock.runUntil(106.0)
        self.assertEqual(self.heard, ["moved"])
        self.assertRaises(AlreadyCalled, alarm.cancel)
        self.assertRaises(AlreadyCancelled, other.reset, 1.0)

    def test_clockStopsWhenEnough(self) -> None:
        self.clock.callLater(1.0, self.heard.append, "a")
        self.clock.callLater(2.0, self.heard.append, "b")
        self.clock.runUntil(110.0, lambda: bool(self.heard))
        self.assertEqual((self.heard, self.clock.seconds()), (["a"], 101.0))


class DiskTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = VirtualClock()
        self.disk = Disk(self.clock, Random(1))
        self.disk.latency = 1.0
        self.disk.crashed = self.crash
        self.done: list[str] = []
        self.crashes = 0

    def crash(self) -> None:
        """Lose power."""
        self.crashes += 1
        self.disk.crash()

    def write(self, record: str) -> None:
        """Write a record."""
        self.assertTrue(self.disk.write(record, lambda: self.done.append(record)))

    def test_syncedRecordsSurvive(self) -> None:
        """The writer is told when a record is synced."""
        self.write("a")
        self.assertEqual(self.done, [])
        self.clock.runUntil(1.0)
        self.assertEqual(self.done, ["a"])
        self.disk.crash()
        self.assertEqual(self.disk.read(), ["a"])

    def test_anyPrefixOfUnsyncedSurvives(self) -> None:
        """The writers are not told."""
        left = set()
        for seed in range(50):
            self.disk = Disk(self.clock, Random(seed))
            self.disk.latency = 1.0
            for record in "abc":
                self.write(record)
            self.disk.crash()
            left.add("".join(self.disk.read()))
            self.clock.runUntil(self.clock.seconds() + 10)
        self.assertEqual(left, {"", "a", "ab", "abc"})
        self.assertEqual(self.done, [])

    def test_crashBeforeAndAfterWrite(self) -> None:
        """The record is lost or kept, and its writer is not told."""
        for moment, left in ((Moment.BEFORE, ["a"]), (Moment.AFTER, ["a", "b"])):
            self.disk.wipe()
            self.disk.arm(Slot(moment, 1))
            self.write("a")
            self.write("b")
            self.clock.runUntil(self.clock.seconds() + 1.5)
            if moment is Moment.AFTER:
                self.clock.runUntil(self.clock.seconds() + 1.5)
                self.assertEqual(self.disk.read(), left)
            self.assertNotIn("b", self.done)
        self.assertEqual(self.crashes, 2)

    def test_nothingIsWrittenAfterPowerFailure(self) -> None:
        self.disk.arm(Slot(Moment.BEFORE, 0))
        for record in "abc":
            self.write(record)
        self.clock.runUntil(10.0)
        self.assertEqual((self.disk.read(), self.done, self.crashes), ([], [], 1))

    def test_fullDiskRefusesWrites(self) -> None:
        self.disk.isFull = True
        self.assertFalse(self.disk.write("a", lambda: None))
        self.assertEqual(self.disk.read(), [])


class NetworkTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = VirtualClock()
        self.arrived: list[tuple[int, int]] = []
        self.deliveries: list[int] = []
        self.network = Network(self.clock, Random(1), Trace(), self.deliver)

    def deliver(self, target: int, envelopes: Sequence[Envelope]) -> None:
        """Record arrivals."""
        self.arrived += [(sender, target) for sender, _ in envelopes]
        self.deliveries.append(len(envelopes))

    def send(self, count: int = 1) -> int:
        """Send between all pairs, and count the arrivals."""
        self.arrived.clear()
        for _ in range(count):
            for sender in range(3):
                targets = [target for target in range(3) if target != sender]
                self.network.send(sender, targets, BlockRequest(sender=sender, height=1))
        self.clock.runUntil(self.clock.seconds() + 10)
        return len(self.arrived)

    def test_lossAndDuplication(self) -> None:
        self.assertEqual(self.send(100), 600)
        self.network.conditions = LinkConditions(loss=0.5)
        self.assertTrue(250 < self.send(100) < 350)
        self.network.conditions = LinkConditions(duplication=0.5)
        self.assertTrue(850 < self.send(100) < 950)

    def test_obstaclesBlockTheirMessages(self) -> None:
        """Others pass."""
        cases = (
            (Partition((0, 0, 1)), {(0, 1), (1, 0)}),
            (Cut([(0, 1), (2, 0)]), {(0, 2), (1, 0), (1, 2), (2, 1)}),
            (Isolation(1), {(0, 2), (2, 0)}),
            (Starvation(("request",), 2), {(0, 2), (1, 2)}),
            (Starvation(("commit",), 2), {(a, b) for a in range(3) for b in range(3) if a != b}),
        )
        for obstacle, passing in cases:
            self.network.obstacles = [obstacle]
            self.send()
            self.assertEqual(set(self.arrived), passing)

    def test_obstacleBlocksMessagesInFlight(self) -> None:
        self.network.send(0, [1], BlockRequest(sender=0, height=1))
        self.network.obstacles = [Isolation(1)]
        self.clock.runUntil(1)
        self.assertEqual(self.arrived, [])

    def test_arrivalsOfOneTurnAreDelivered(self) -> None:
        """In order of arrival."""
        self.network = Network(self.clock, Random(1), Trace(), self.deliver, turn=0.1)
        self.assertEqual(self.send(), 6)
        self.assertEqual(self.deliveries, [2, 2, 2])


class CrashingDiskTests(SynchronousTestCase):
    """
    Crashes in the middle of SQLite's writes.
    """

    def test_tornWriteLeavesOpenableFile(self) -> None:
        """With the block or without it."""
        found = set()
        for seed in range(30):
            root = Path(self.mktemp())
            clock = VirtualClock()
            disk = CrashingDisk(clock, Random(seed), root)
            disk.directory.mkdir(parents=True)
            chain = Chain()
            with disk.files.installed():
                store = newStore(disk.directory / "ledger.sqlite")
                left = disk.directory
                disk.arm(Slot(Moment.INSIDE, 2))
                for _ in range(3):
                    disk(store.append, chain.add([("t", b"x" * 3000)]))
                clock.runUntil(10)
                self.assertNotEqual(disk.directory, left)
                store.close()
            opened = Store.open(disk.directory / "ledger.sqlite")
            tip = opened.tip()
            assert tip is not None
            found.add(tip.height)
            opened.close()
        self.assertEqual(found, {2, 3})


class LossyFilesTests(SynchronousTestCase):
    """
    Files that lose what was not synced.
    """

    def setUp(self) -> None:
        self.root = Path(self.mktemp())
        self.root.mkdir()
        self.path = (self.root / "store").absolute()
        self.files = LossyFiles(self.root)

    def left(self, synchronous: str, seeds: int) -> set[int | None]:
        """
        How many rows are left by power failures after three commits; C{None} where SQLite cannot
        read them.
        """
        with self.files.installed(), closing(sqlite3.connect(self.path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE t (a)")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            for _ in range(3):
                connection.execute("INSERT INTO t VALUES (randomblob(3000))")
                connection.commit()
            image = self.files.image()
        return {self.rowsLeft(image, Random(seed)) for seed in range(seeds)}

    def rowsLeft(self, image: Image, random: Random) -> int | None:
        """What one power failure leaves."""
        copy = Path(self.mktemp())
        for path, state in image.items():
            content = state.left(random)
            if content is not None:
                path = copy.with_name(copy.name + path.name.removeprefix("store"))
                path.write_bytes(content)
        try:
            with closing(sqlite3.connect(copy)) as connection:
                [[count]] = connection.execute("SELECT count(*) FROM t")
                return int(count)
        except sqlite3.Error:
            return None

    def test_syncedCommitsAreKept(self) -> None:
        self.assertEqual(self.left("FULL", 20), {3})

    def test_commitsWithoutSyncGetLost(self) -> None:
        """Any number of the last ones."""
        self.assertEqual(self.left("OFF", 200), {0, 1, 2, 3})

    def test_fullDiskRefusesCommits(self) -> None:
        """And one that does not sync fails them. Both are over when the disk is well again."""
        with self.files.installed(), closing(sqlite3.connect(self.path)) as connection:
            connection.execute("CREATE TABLE t (a)")
            for fault, code in (
                ("isFull", sqlite3.SQLITE_FULL),
                ("isFailing", sqlite3.SQLITE_IOERR_FSYNC),
            ):
                setattr(self.files, fault, True)
                with self.assertRaises(sqlite3.OperationalError) as caught, connection:
                    connection.execute("INSERT INTO t VALUES (1)")
                self.assertEqual(caught.exception.sqlite_errorcode, code)
                setattr(self.files, fault, False)
            with connection:
                connection.execute("INSERT INTO t VALUES (1)")
            self.assertEqual(connection.execute("SELECT count(*) FROM t").fetchone(), (1,))

    def test_otherFilesAreNotRecorded(self) -> None:
        other = Path(self.mktemp())
        with self.files.installed(), closing(sqlite3.connect(other)) as connection:
            connection.execute("CREATE TABLE t (a)")
        self.assertEqual(self.files.image(), {})
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("CREATE TABLE t (a)")
        self.assertEqual(self.files.image(), {})
