"""
Tests for L{svcbroker.commands.doctor.machinechecks}.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import closing
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.commands.doctor.machinechecks import (
    ClockFacts,
    DiskFacts,
    LimitFacts,
    LocalMachine,
    checkClock,
    checkDisk,
    checkLimits,
    readSynchronisation,
    timeSyncs,
)
from svcbroker.daemon.directory import lockDataDirectory
from svcbroker.daemon.memory import MemoryTable
from svcbroker.daemon.ports import tryBind, tryConnect
from svcbroker.net.bounds import Bound
from tests.directories import shortDirectory

from .support import DATA, GIB, NOW, CheckTestCase


class MachineTests(SynchronousTestCase):
    """
    Reading the files of the kernel.
    """

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()
        self.machine = LocalMachine(proc=self.root / "proc", controlGroups=self.root / "cgroup")

    def write(self, name: str, text: str) -> Path:
        """Write a file of the kernel."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def test_lockHolderIsSeenWithoutTheLock(self) -> None:
        """The holder of the data directory's lock is this process, by the real kernel."""
        lock = lockDataDirectory(self.root / "data")
        self.assertEqual(LocalMachine().lockHolder(self.root / "data/lock"), os.getpid())
        lock.release()
        self.assertIsNone(LocalMachine().lockHolder(self.root / "data/lock"))
        self.assertIsNone(LocalMachine().lockHolder(self.root / "data/none"))

    def test_listenerIsFoundByItsSocket(self) -> None:
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            port = server.getsockname()[1]
            self.assertEqual(LocalMachine().listener("127.0.0.1", port), os.getpid())
            self.assertIsNone(LocalMachine().listener("127.0.0.2", port))
            self.assertEqual(tryBind("127.0.0.1", port), errno.EADDRINUSE)
        self.assertIsNone(LocalMachine().listener("127.0.0.1", port))
        self.assertEqual(tryBind("127.0.0.1", port), 0)

    def test_listenerOnAllAddressesIsFound(self) -> None:
        self.write(
            "proc/net/tcp6",
            "  sl  local_address remote_address st tx rx tr tm retrnsmt uid timeout inode\n"
            f"   0: {'0' * 32}:1F90 {'0' * 32}:0000 0A 0:0 0:0 0 1 0 4711 1\n",
        )
        link = self.root / "proc/77/fd/5"
        link.parent.mkdir(parents=True)
        link.symlink_to("socket:[4711]")
        self.write("proc/77/comm", "nginx\n")
        self.assertEqual(self.machine.listener("", 0x1F90), 77)
        self.assertEqual(self.machine.listener("10.0.0.1", 0x1F90), 77)
        self.assertIsNone(self.machine.listener("", 0x1F91))
        self.assertEqual(self.machine.programOf(77), "nginx")

    def test_addressesOfOthersCannotBeBound(self) -> None:
        self.assertEqual(tryBind("192.0.2.1", 8080), errno.EADDRNOTAVAIL)
        self.assertEqual(tryBind("::1", 0), 0)

    def test_unixSocketsAreTried(self) -> None:
        path = str(shortDirectory(self) / "s")
        self.assertEqual(tryConnect(path), 0)
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as server:
            server.bind(path)
            self.assertEqual(tryConnect(path), 0)
            server.listen()
            self.assertEqual(tryConnect(path), errno.EADDRINUSE)

    def test_limitsOfTheDaemonAreRead(self) -> None:
        self.write(
            "proc/77/limits",
            "Limit                     Soft Limit           Hard Limit           Units     \n"
            "Max file size             1048576              unlimited            bytes     \n"
            "Max open files            1024                 4096                 files     \n"
            "Max address space         unlimited            unlimited            bytes     \n",
        )
        expected = {"files": 4096, "fileSize": 1048576, "addressSpace": None}
        self.assertEqual(self.machine.limits(77), expected)
        self.assertEqual({*self.machine.limits(None)}, {*expected})
        self.assertGreater(LocalMachine().openFiles(os.getpid()) or 0, 2)
        self.assertIsNone(self.machine.openFiles(78))

    def test_leastMemoryOfControlGroupsCounts(self) -> None:
        self.write("proc/77/cgroup", "0::/system.slice/svcbroker.service\n")
        self.write("cgroup/memory.max", "max\n")
        self.write("cgroup/system.slice/memory.max", "1073741824\n")
        self.write("cgroup/system.slice/memory.stat", "anon 1000\nfile 7\n")
        self.write("cgroup/system.slice/svcbroker.service/memory.max", "2147483648\n")
        self.assertEqual(self.machine.memory(77), (1 << 30, 1000))
        self.assertEqual(self.machine.memory(None), (None, None))

    def test_oldControlGroupsAreRead(self) -> None:
        """Those of version 1, where no limit is a number as well."""
        self.write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
        self.assertEqual(self.machine.memory(None), (None, None))
        self.write("cgroup/memory/memory.limit_in_bytes", "1073741824\n")
        self.assertEqual(self.machine.memory(None), (1 << 30, None))

    def test_backlogIsRead(self) -> None:
        self.assertIsNone(self.machine.backlog())
        self.write("proc/sys/net/core/somaxconn", "4096\n")
        self.assertEqual(self.machine.backlog(), 4096)

    def test_innermostMountCounts(self) -> None:
        self.write(
            "proc/self/mountinfo",
            "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
            "30 22 0:40 / /srv/my\\040data ro,relatime shared:1 - nfs4 host:/x rw,vers=4.2\n",
        )
        inner = self.machine.mountOf(Path("/srv/my data/1"))
        outer = self.machine.mountOf(Path("/srv/other"))
        assert inner is not None and outer is not None
        self.assertEqual((inner.type, inner.isReadOnly), ("nfs4", True))
        self.assertEqual((outer.type, outer.isReadOnly), ("ext4", False))

    def test_syncsLeaveNoFile(self) -> None:
        self.root.mkdir()
        times = timeSyncs(self.root)
        self.assertEqual(len(times), 20)
        self.assertTrue(all(each > 0 for each in times))
        self.assertEqual(list(self.root.iterdir()), [])
        self.assertEqual(timeSyncs(self.root / "none"), ())

    def test_kernelTellsOfSynchronisation(self) -> None:
        isSynchronised, maxError = readSynchronisation()
        self.assertIn(isSynchronised, (None, False, True))
        self.assertGreaterEqual(maxError, 0.0)


class ClockTests(CheckTestCase):
    """
    The clock.
    """

    def test_clockInStepIsGood(self) -> None:
        facts = ClockFacts(now=NOW, isSynchronised=True, maxError=0.05, lastBlocks={"1": NOW - 5})
        self.good(checkClock(facts), "kept in step, 0.05 seconds")

    def test_unknownSynchronisationIsGood(self) -> None:
        self.good(checkClock(ClockFacts(now=NOW)), "the kernel does not say")

    def test_unsynchronisedClockIsWarnedOf(self) -> None:
        self.warns(checkClock(ClockFacts(now=NOW, isSynchronised=False)), "timedatectl set-ntp")

    def test_clockBehindLastBlockIsAProblem(self) -> None:
        facts = ClockFacts(now=NOW, lastBlocks={"1": NOW + 7200})
        self.fails(checkClock(facts), "group 1", "2 hours ahead", "retention waits")

    def test_clockOf1970IsAProblem(self) -> None:
        self.fails(checkClock(ClockFacts(now=300.0)), "1970-01-01")

    def test_filesFromTheFutureAreWarnedOf(self) -> None:
        self.warns(checkClock(ClockFacts(now=NOW, lastChange=NOW + 60)), "was set back")


class DiskTests(CheckTestCase):
    """
    The disk.
    """

    def test_largeLocalDiskIsGood(self) -> None:
        facts = DiskFacts(
            path=DATA, fileSystem="ext4", free=500 * GIB, growth=GIB, syncs=[0.0002, 0.001, 0.0003]
        )
        self.good(checkDisk(facts), "a sync takes 0.30 ms, 1.00 ms at most")

    def test_disksEndIsForetold(self) -> None:
        facts = DiskFacts(path=DATA, free=12 * GIB, growth=GIB)
        self.warns(checkDisk(facts), "full in about 12 days", "--retain")

    def test_diskFullWithinADayIsAProblem(self) -> None:
        self.fails(checkDisk(DiskFacts(path=DATA, free=GIB, growth=2 * GIB)), "12 hours")

    def test_littleRoomIsWarnedOfWithoutGrowth(self) -> None:
        self.warns(checkDisk(DiskFacts(path=DATA, free=GIB // 4)), "256 MiB are free")
        self.fails(checkDisk(DiskFacts(path=DATA, free=GIB // 64)), "16 MiB are free")

    def test_networkFileSystemsAreProblems(self) -> None:
        for type in ("nfs4", "cifs", "fuse.sshfs"):
            facts = DiskFacts(path=DATA, fileSystem=type, free=500 * GIB)
            self.fails(checkDisk(facts), type, "--data-dir")

    def test_memoryIsNoDisk(self) -> None:
        self.fails(checkDisk(DiskFacts(path=DATA, fileSystem="tmpfs", free=9 * GIB)), "restarts")

    def test_containersLayerIsWarnedOf(self) -> None:
        self.warns(checkDisk(DiskFacts(path=DATA, fileSystem="overlay", free=9 * GIB)), "volume")

    def test_fileSystemWithoutRightsIsAProblem(self) -> None:
        self.fails(checkDisk(DiskFacts(path=DATA, fileSystem="vfat", free=9 * GIB)), "keys")

    def test_readOnlyMountIsAProblem(self) -> None:
        self.fails(checkDisk(DiskFacts(path=DATA, isReadOnly=True, free=9 * GIB)), "remount")

    def test_slowSyncIsWarnedOf(self) -> None:
        facts = DiskFacts(path=DATA, free=9 * GIB, syncs=[0.03, 0.04, 0.05])
        self.warns(checkDisk(facts), "40.00 ms", "SSD")

    def test_diskWithoutInodesIsAProblem(self) -> None:
        self.fails(checkDisk(DiskFacts(path=DATA, free=9 * GIB, freeFiles=3)), "inodes")


class LimitTests(CheckTestCase):
    """
    The limits of the process.
    """

    def test_usualLimitsAreGood(self) -> None:
        facts = LimitFacts(isDaemon=True, files=524288, backlog=4096, memory=2 * GIB)
        self.good(checkLimits(facts), "the daemon may have 65,536 open files, 2.0 GiB of memory")
        self.good(checkLimits(LimitFacts(isDaemon=False)), "any number of open files")

    def test_fewOpenFilesAreWarnedOf(self) -> None:
        self.warns(checkLimits(LimitFacts(isDaemon=True, files=1024)), "LimitNOFILE=65536")

    def test_usedUpFilesAreAProblem(self) -> None:
        facts = LimitFacts(isDaemon=True, files=8192, openFiles=8000)
        self.fails(checkLimits(facts), "has 8,000")

    def test_boundedFileSizeIsAProblem(self) -> None:
        self.fails(checkLimits(LimitFacts(isDaemon=True, fileSize=GIB)), "LimitFSIZE=infinity")

    def test_boundedAddressSpaceIsWarnedOf(self) -> None:
        self.warns(checkLimits(LimitFacts(isDaemon=True, addressSpace=GIB)), "MemoryMax=")

    def test_shortBacklogIsWarnedOf(self) -> None:
        self.warns(checkLimits(LimitFacts(isDaemon=True, backlog=128)), "net.core.somaxconn")

    def test_littleMemoryIsWarnedOf(self) -> None:
        self.warns(checkLimits(LimitFacts(isDaemon=True, memory=GIB // 8)), "128 MiB")

    def test_usedUpMemoryIsAProblem(self) -> None:
        facts = LimitFacts(isDaemon=True, memory=GIB, memoryUsed=GIB - 1024)
        self.fails(checkLimits(facts), "the kernel kills")

    def test_moreThanMemoryIsWarnedOf(self) -> None:
        """All bounds together may be more than the process may use."""
        bounds = (
            Bound(name="x", bytes=GIB, how="y="),
            Bound(name="z", bytes=9, how="", each="each"),
        )
        for memory, isOver in ((GIB, False), (GIB - 1, True)):
            table = MemoryTable(bounds=bounds, memory=memory)
            facts = LimitFacts(isDaemon=True, bounds=table)
            if isOver:
                self.warns(checkLimits(facts), "the largest bound is x, 1.0 GiB (y=)")
            else:
                self.good(checkLimits(facts), "it takes at most 1.0 GiB")
