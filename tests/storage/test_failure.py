"""
Tests for full and failing disks, and for processes that die.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from svcbroker.storage import StorageFailed, Store
from tests.storage import child
from tests.storage.chains import Chain, differences, newStore, seededChain

ROOT = Path(__file__).parent.parent.parent


def startChild(
    task: str, path: Path, environment: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """
    Run a task of L{tests.storage.child} in a process of its own.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "tests.storage.child", task, str(path.absolute())],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class FailureTestCase(SynchronousTestCase):
    """
    A store in a directory, and a child process that fails.
    """

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.path = self.directory / "ledger.sqlite"

    def runChild(self, task: str, environment: dict[str, str] | None = None) -> tuple[int, bool]:
        """
        Run a task that dies in the end.

        @return: the height it had stored, and whether the failure it met was uncertain.
        """
        with startChild(task, self.path, environment) as process:
            output, errors = process.communicate()
        self.assertEqual((process.returncode, errors), (-signal.SIGKILL, ""))
        height, isUncertain = output.split()
        return int(height), isUncertain == "True"

    def opened(self) -> Store:
        """
        The store as it is after a crash.
        """
        store = Store.open(self.path)
        self.addCleanup(store.close)
        return store

    def tipHeight(self) -> int:
        """
        The height that is found after a crash.
        """
        tip = self.opened().tip()
        assert tip is not None
        return tip.height


class KillTests(FailureTestCase):
    """
    A process is killed while it appends.
    """

    def test_storedBlocksSurviveKill(self) -> None:
        """
        Whenever it is killed, every block it said was stored is there, whole, and at most one
        more; the next process goes on from there.
        """
        random = Random(31)
        newStore(self.path).close()
        chain = seededChain(child.KILL_SEED, child.KILL_BLOCKS, size=600)
        height = 0
        for _ in range(6):
            with startChild("appendUntilKilled", self.path) as process:
                assert process.stdout is not None
                assert process.stderr is not None
                for _ in range(random.randrange(1, 250)):
                    process.stdout.readline()
                process.kill()
                said = process.stdout.read().split()
                self.assertEqual(process.stderr.read(), "")
            last = int(said[-1]) if said else None
            store = Store.open(self.path)
            tip = store.tip()
            assert tip is not None
            self.assertGreater(tip.height, height)
            if last is not None:
                self.assertIn(tip.height - last, (0, 1))
            height = tip.height
            self.assertEqual(differences(store, chain, height), [])
            store.close()


class FullDiskTests(FailureTestCase):
    """
    There is no more room.
    """

    def test_appendWithoutRoomStoresNothing(self) -> None:
        """
        An append without room fails and stores nothing; reads go on; with room, the same
        append works.
        """
        connections: list[sqlite3.Connection] = []

        def connect(*args: Any, **named: Any) -> sqlite3.Connection:
            connections.append(sqlite3.connect(*args, **named))
            return connections[-1]

        newStore(self.path).close()
        store = Store.open(self.path, connect=connect)
        self.addCleanup(store.close)
        connections[0].execute("PRAGMA max_page_count = 100")
        chain = Chain()
        failure = child.appendUntilFailed(store, chain)
        self.assertFalse(failure.isUncertain)
        self.assertIn(str(self.path), str(failure))
        self.assertGreater(chain.height, 5)
        self.assertEqual(differences(store, chain, chain.height), [])
        store.reserve(9, 9)
        append = chain.add([("b", bytes(30_000))])
        self.assertRaises(StorageFailed, store.append, append)
        connections[0].execute("PRAGMA max_page_count = 100000")
        store.append(append)
        store.close()
        self.assertEqual(differences(self.opened(), chain, chain.height), [])

    def test_fullFileSystemStoresNothing(self) -> None:
        """
        The same on a file system that is really full, where the store can also be opened.
        """
        command = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(self.directory)]
        if shutil.which("mount") is None or os.geteuid() != 0:
            raise SkipTest("only root can mount a small file system")
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        if mounted.returncode:
            raise SkipTest(f"cannot mount a small file system: {mounted.stderr}")
        self.addCleanup(subprocess.run, ["umount", str(self.directory)], check=True)
        store = newStore(self.path)
        self.addCleanup(store.close)
        chain = Chain()
        ballast = self.directory / "ballast"
        ballast.write_bytes(bytes(700_000))
        failure = child.appendUntilFailed(store, chain)
        self.assertFalse(failure.isUncertain)
        self.assertIn("no room", str(failure))
        self.assertEqual(differences(store, chain, chain.height), [])
        append = chain.add([("b", bytes(100_000))])
        self.assertRaises(StorageFailed, store.append, append)
        self.assertRaises(StorageFailed, store.append, append)
        self.assertEqual(differences(store, chain, chain.height - 1), [])
        store.close()
        again = Store.open(self.path)
        self.addCleanup(again.close)
        self.assertEqual(differences(again, chain, chain.height - 1), [])
        self.assertRaises(StorageFailed, again.append, append)
        ballast.unlink()
        again.append(append)
        again.close()
        store = Store.open(self.path)
        self.addCleanup(store.close)
        self.assertEqual(differences(store, chain, chain.height), [])

    def test_failedWriteIsLikeAFullDisk(self) -> None:
        """
        A write that fails with an I/O error is like a full disk, and what was stored after
        it survives a crash.
        """
        height, _ = self.runChild("fileSizeLimit")
        self.assertEqual(self.tipHeight(), height)


class FailingSyncTests(FailureTestCase):
    """
    The disk takes the bytes, but fails to sync them.
    """

    def setUp(self) -> None:
        super().setUp()
        compiler = shutil.which("cc")
        if compiler is None or not sys.platform.startswith("linux"):
            raise SkipTest("needs Linux and a C compiler")
        library = self.directory.absolute() / "failing_sync.so"
        source = Path(__file__).with_name("failing_sync.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
        self.environment = {"LD_PRELOAD": str(library)}

    def test_unsyncedBlockIsRemoved(self) -> None:
        """
        A block that could not be synced is not there after a crash: its trace was removed.
        """
        height, isUncertain = self.runChild("oneSyncFails", self.environment)
        self.assertFalse(isUncertain)
        self.assertEqual(self.tipHeight(), height)

    def test_uncertainBlockStopsAppends(self) -> None:
        """
        If the trace cannot be removed, the store says so and takes nothing more until it
        can. What is stored then replaces it.
        """
        height, isUncertain = self.runChild("allSyncsFail", self.environment)
        self.assertTrue(isUncertain)
        store = self.opened()
        block = store.block(height)
        assert block is not None
        self.assertIn(b"after", block.body)
        self.assertEqual(self.tipHeight(), height)
