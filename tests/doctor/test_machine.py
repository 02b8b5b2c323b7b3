"""
Tests for what the doctor asks of the machine, with a kernel that a test has written.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import closing
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.daemon.directory import lockDataDirectory
from svcbroker.doctor._machine import (
    Machine,
    readSynchronisation,
    timeSyncs,
    tryBind,
    tryConnect,
)
from tests.directories import shortDirectory


class MachineTests(SynchronousTestCase):
    """
    Reading the files of the kernel.
    """

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()
        self.machine = Machine(proc=self.root / "proc", controlGroups=self.root / "cgroup")

    def write(self, name: str, text: str) -> Path:
        """Write a file of the kernel."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def test_lockHolderIsSeenWithoutTheLock(self) -> None:
        """The holder of the data directory's lock is this process, by the real kernel."""
        lock = lockDataDirectory(self.root / "data")
        self.assertEqual(Machine().lockHolder(self.root / "data/lock"), os.getpid())
        lock.release()
        self.assertIsNone(Machine().lockHolder(self.root / "data/lock"))
        self.assertIsNone(Machine().lockHolder(self.root / "data/none"))

    def test_listenerIsFoundByItsSocket(self) -> None:
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            port = server.getsockname()[1]
            self.assertEqual(Machine().listener("127.0.0.1", port), os.getpid())
            self.assertIsNone(Machine().listener("127.0.0.2", port))
            self.assertEqual(tryBind("127.0.0.1", port), errno.EADDRINUSE)
        self.assertIsNone(Machine().listener("127.0.0.1", port))
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
        self.assertGreater(Machine().openFiles(os.getpid()) or 0, 2)
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
