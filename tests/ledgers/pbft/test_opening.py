"""
Tests for creating a chain, opening it, and refusing to open one that was damaged or changed.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Certificate, Phase
from svcbroker.errors import LedgerUnavailable
from svcbroker.ledgers.pbft._keys import publicKey
from svcbroker.ledgers.pbft._pbftledger import openChain
from svcbroker.ledgers.pbft._producer import ROUNDS_RESERVED
from svcbroker.ledgers.pbft._protocol import Effect, Message, Proposal
from svcbroker.ledgers.pbft._replica import Replica
from svcbroker.storage import HEADS, StorageFailed, Store, wholeHeader
from tests.ledgers.pbft.rig import LedgerRig, newDirectory
from tests.storage.chains import makeFirst

Signed = dict[tuple[int, int, int, Phase], bytes]


class Crash(BaseException):
    """Simulates the end of the process."""


class IgnoresProposals(Replica):
    """Ignores proposals after the first block, so that rounds time out."""

    def receive(self, messages: Sequence[Message]) -> Sequence[Effect]:
        return super().receive(
            [each for each in messages if not isinstance(each, Proposal) or each.height == 1]
        )


class OpeningTestCase(SynchronousTestCase):
    """
    Shared by these tests.
    """

    def chain(self, count: int = 3, **settings: str) -> LedgerRig:
        """A stopped ledger with some events."""
        rig = LedgerRig(self, settings).start().open()
        rig.publish(count)
        rig.settle()
        self.successResultOf(rig.ledger.stop())
        return rig

    def again(self, rig: LedgerRig, **settings: str) -> LedgerRig:
        """Another ledger in the directory of a stopped one."""
        following = LedgerRig(self, settings, rig.directory, rig.clock)
        following.salt = rig.salt + 1
        return following

    def refused(self, rig: LedgerRig, words: str) -> None:
        """Check that a ledger refuses to start with a one-line reason, and leaves nothing open."""
        message = self.failureResultOf(self.again(rig).ledger.start(), LedgerUnavailable)
        self.assertIn(words, message.value.message)
        self.assertNotIn("\n", message.value.message)
        self.assertEqual(rig.clock.getDelayedCalls(), [])

    def goesOn(self, rig: LedgerRig, sequence: int) -> LedgerRig:
        """Check that a ledger starts and continues."""
        following = self.again(rig).start()
        if sequence == 1:
            following.open()
        following.publish()
        following.settle()
        self.assertEqual(following.sequences(), [sequence])
        following.check()
        return following


class FilesTests(OpeningTestCase):
    def test_keysBelongToTheOwner(self) -> None:
        """Whatever the umask."""
        self.addCleanup(os.umask, os.umask(0))
        rig = self.chain()
        keys = rig.directory / "keys"
        self.assertEqual(stat.S_IMODE(rig.directory.stat().st_mode), 0o700)
        self.assertEqual(stat.S_IMODE(keys.stat().st_mode), 0o700)
        files = sorted(keys.iterdir())
        self.assertEqual([file.name for file in files], [f"node{n}.key" for n in range(4)])
        for file in files:
            self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)

    def test_chainContinuesWithSameKeys(self) -> None:
        rig = self.chain()
        before = [file.read_text() for file in sorted((rig.directory / "keys").iterdir())]
        self.goesOn(rig, 4)
        after = [file.read_text() for file in sorted((rig.directory / "keys").iterdir())]
        self.assertEqual(after, before)
        self.assertEqual(len(set(before)), 4)

    def test_interruptedCreationIsRepeated(self) -> None:
        """After a crash at any step, the next start succeeds."""
        steps = 0
        while self.crashes(steps):
            steps += 1
        self.assertGreater(steps, 20)

    def crashes(self, steps: int) -> bool:
        """Crash after some calls that touch the disk."""
        rig = LedgerRig(self)
        left = [steps]
        real: dict[str, Callable[..., Any]] = {
            name: getattr(os, name) for name in ("open", "fsync", "rename", "mkdir")
        }

        def maker(call: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*args: Any, **kwargs: Any) -> Any:
                if not left[0]:
                    raise Crash
                left[0] -= 1
                return call(*args, **kwargs)

            return counted

        for name, call in real.items():
            setattr(os, name, maker(call))
        try:
            rig.ledger.start()
        except Crash:
            hasCrashed = True
        else:
            hasCrashed = False
        finally:
            for name, call in real.items():
                setattr(os, name, call)
        if hasCrashed:
            self.goesOn(rig, 1)
        else:
            rig.close()
        return hasCrashed

    def test_unwritableDirectoryIsNamed(self) -> None:
        directory = newDirectory(self)
        directory.write_text("a file")
        rig = LedgerRig(self, directory=directory)
        self.refused(rig, str(directory))

    def test_fullDiskPreventsStart(self) -> None:
        """No rounds can be reserved; once there is room, the ledger starts."""
        rig = self.chain()

        def fail(store: Store, height: int, round: int) -> None:
            raise StorageFailed("no room on the disk")

        patch = self.patch(Store, "reserve", fail)
        self.refused(rig, "no room on the disk")
        patch.restore()
        self.goesOn(rig, 4)


class KeysTests(OpeningTestCase):
    def test_missingKeyIsReported(self) -> None:
        rig = self.chain()
        path = rig.directory / "keys" / "node2.key"
        path.rename(path.with_suffix(".away"))
        missing = publicKey(bytes.fromhex(path.with_suffix(".away").read_text()))
        self.refused(rig, f"keys has no key of node 2 ({missing.hex()[:16]}...): put it back")
        path.with_suffix(".away").rename(path)
        self.goesOn(rig, 4)

    def test_damagedKeyIsReported(self) -> None:
        rig = self.chain()
        path = rig.directory / "keys" / "node0.key"
        good = path.read_bytes()
        for bad in (b"", b"xyz", good[:-5], good + b"00", b"\xff" * 64):
            path.write_bytes(bad)
            self.refused(rig, f"{path} is not a key")
        path.write_bytes(good)
        self.goesOn(rig, 4)

    def test_unreadableKeyIsReported(self) -> None:
        rig = self.chain()
        path = rig.directory / "keys" / "node0.key"
        good = path.read_bytes()
        path.unlink()
        path.mkdir()
        self.refused(rig, f"{path} cannot be read: put it back")
        path.rmdir()
        path.write_bytes(good)
        self.goesOn(rig, 4)

    def test_keyFilesMayBeRenamed(self) -> None:
        rig = self.chain()
        keys = rig.directory / "keys"
        (keys / "node1.key").rename(keys / "away")
        (keys / "node0.key").rename(keys / "node1.key")
        (keys / "away").rename(keys / "node0.key")
        (keys / "node2.key").rename(keys / "kept in the safe.key")
        self.goesOn(rig, 4)

    def test_keysOfOtherChainsAreIgnored(self) -> None:
        """They do not replace missing ones."""
        rig, other = self.chain(), LedgerRig(self)
        other.salt = 7
        other.start()
        keys = rig.directory / "keys"
        for path in (other.directory / "keys").iterdir():
            shutil.copy(path, keys / f"other-{path.name}")
        self.successResultOf(self.goesOn(rig, 4).ledger.stop())
        self.assertEqual(len(list(keys.iterdir())), 8)
        for index in range(4):
            (keys / f"node{index}.key").unlink()
        self.refused(rig, "has no key of node 0 (")

    def test_damagedKeyIsNotReplaced(self) -> None:
        """Keys without a ledger mean that the ledger is lost."""
        rig = LedgerRig(self)
        keys = rig.directory / "keys"
        keys.mkdir(parents=True)
        (keys / "node0.key").write_text("nonsense")
        self.refused(rig, "ledger.sqlite is missing, but its keys are there: restore a backup")
        self.assertEqual((keys / "node0.key").read_text(), "nonsense")


class ForeignTests(OpeningTestCase):
    def test_otherGroupIsRefused(self) -> None:
        rig = self.chain()
        clock = Clock()
        error = self.assertRaises(
            LedgerUnavailable, openChain, rig.directory, "2", 4, clock.seconds, os.urandom
        )
        self.assertIn("the chain of group 1, not of group 2", error.message)
        self.goesOn(rig, 4)

    def test_chainKeepsNumberOfNodes(self) -> None:
        """The setting counts for a new chain only; the log says so where it differs."""
        rig = self.chain(nodes="7")
        for sequence, nodes in enumerate(("4", "7", "1", "64"), start=4):
            with capturedLogs() as events:
                following = self.again(rig, nodes=nodes).start()
            told = [text for text in map(formatEvent, events) if "keeps its 7 replicas" in text]
            self.assertEqual(len(told), 0 if nodes == "7" else 1)
            self.assertEqual(len(following.replicaSet.replicas), 7)
            following.publish()
            following.settle()
            self.assertEqual(following.sequences(), [sequence])
            following.check()
            self.successResultOf(following.ledger.stop())
        self.assertEqual(len(list((rig.directory / "keys").iterdir())), 7)

    def test_otherFormatIsRefused(self) -> None:
        """It is not reported as damage."""
        rig = self.chain()
        path = rig.directory / "ledger.sqlite"
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute(f"SELECT header, shared, height FROM {HEADS}").fetchall()
            for part, shared, height in rows:
                header = wholeHeader(part, shared, height)
                # As format 1 had it: two hashes fewer.
                old = header[:16] + b"\x01" + header[17:89] + header[121:267] + header[299:]
                self.assertEqual(len(old), 247)
                connection.execute(
                    "UPDATE head SET header = ?, base = NULL WHERE height = ?", (old, height)
                )
            connection.commit()
        makeFirst(path)
        for _ in range(2):
            self.refused(
                rig, "has another format (only headers of formats 2 to 4 are known): run the"
            )
        # What the older broker needs is still there.
        with closing(sqlite3.connect(path.with_name("ledger.sqlite.v1.backup"))) as connection:
            self.assertEqual(connection.execute("PRAGMA user_version").fetchone(), (1,))
            [(header,)] = connection.execute("SELECT header FROM head WHERE height = 2")
            self.assertEqual(len(header), 247)

    def test_otherFileIsNotTouched(self) -> None:
        directory = newDirectory(self)
        directory.mkdir()
        (directory / "ledger.sqlite").write_bytes(b"something else" * 100)
        self.refused(LedgerRig(self, directory=directory), "is not a ledger")
        self.assertFalse((directory / "keys").exists())


class DamageTests(OpeningTestCase):
    def change(self, rig: LedgerRig, statement: str, *values: object) -> None:
        """Change a stored chain."""
        with closing(sqlite3.connect(rig.directory / "ledger.sqlite")) as connection:
            self.assertEqual(connection.execute(statement, values).rowcount, 1)
            connection.commit()

    def test_lastCertificateIsVerified(self) -> None:
        rig = self.chain()
        path = rig.directory / "ledger.sqlite"
        with closing(sqlite3.connect(path)) as connection:
            [(good,), (other,)] = connection.execute(
                "SELECT certificate FROM head ORDER BY height DESC"
            ).fetchall()
        for bad in (
            good[:-1] + bytes([good[-1] ^ 1]),
            good[:7] + b"\x01" + good[8:],
            good[:9] + b"\x02" + good[10:-66],
            good[:-1],
            other,
        ):
            self.change(rig, "UPDATE head SET certificate = ? WHERE height = 2", bad)
            self.refused(rig, f"{path} is damaged")
        self.change(rig, "UPDATE head SET certificate = ? WHERE height = 2", good)
        self.goesOn(rig, 4)

    def test_lastHeaderIsVerified(self) -> None:
        """Also what the store derives from it."""
        for change in (
            "header = X'00'",
            "header = (SELECT header FROM head WHERE height = 1)",
            "hash = X'0000000000000000000000000000000000000000000000000000000000000000'",
        ):
            rig = self.chain()
            self.change(rig, f"UPDATE head SET {change} WHERE height = 2")
            self.refused(rig, "ledger.sqlite is ")

    def test_stateMustMatchLastBlock(self) -> None:
        for change in (
            "topic SET sequence = sequence + 1",
            "topic SET sequence = -1",
            "topic SET is_open = 0",
            "topic SET created = 0",
            "account SET state = X'00'",
            "account SET state = zeroblob(500)",
            "account SET state = CAST(state AS BLOB) || X'FF'",
            "account SET address = X'00'",
        ):
            rig = self.chain()
            self.change(rig, f"UPDATE {change}")
            self.refused(rig, "damaged")

    def test_missingBlocksAreNoticed(self) -> None:
        """Rounds were reserved for a later height."""
        rig = self.chain()
        self.change(rig, "UPDATE reservation SET height = 4, round = 8, again = '4:8'")
        self.refused(rig, "blocks after 2 are missing")


class LossTests(OpeningTestCase):
    """
    The files of a broker that was killed, some of them damaged or removed afterwards.
    """

    def killed(self) -> LedgerRig:
        """A chain of five blocks whose broker was killed."""
        rig = LedgerRig(self).start().open()
        for _ in range(4):
            rig.publish()
            rig.settle()
        left = rig.directory.parent / "left" / "1"
        shutil.copytree(rig.directory, left)
        rig.close()
        killed = LedgerRig(self, directory=left, clock=rig.clock)
        rig.clock.calls.clear()
        return killed

    def test_removedLogIsRefused(self) -> None:
        rig = self.killed()
        (rig.directory / "ledger.sqlite-wal").unlink()
        (rig.directory / "ledger.sqlite-shm").unlink()
        self.refused(rig, "block 5 had been stored: 5 blocks are missing: restore a backup, or go")
        self.refused(rig, "accept-loss=0")

    def test_removedLedgerIsRefused(self) -> None:
        rig = self.killed()
        for path in rig.directory.glob("ledger.sqlite*"):
            path.unlink()
        self.refused(rig, "ledger.sqlite is missing, but its keys are there: restore a backup")

    def test_reservationIsInMainFile(self) -> None:
        """It survives the loss of the write-ahead log."""
        rig = LedgerRig(self).start()
        path = f"{(rig.directory / 'ledger.sqlite').as_uri()}?immutable=1"
        with closing(sqlite3.connect(path, uri=True)) as connection:
            [found] = connection.execute("SELECT height, round FROM reservation")
        self.assertEqual(found, (1, ROUNDS_RESERVED))

    def test_acceptedLossRenewsAllKeys(self) -> None:
        """No key signs a height again that it has signed, but the first in rounds of its own."""
        rig = self.killed()
        (rig.directory / "ledger.sqlite-wal").unlink()
        (rig.directory / "ledger.sqlite-shm").unlink()
        before = {path.read_text() for path in (rig.directory / "keys").iterdir()}
        wrong = LedgerRig(self, {"accept-loss": "3"}, rig.directory, rig.clock)
        failure = self.failureResultOf(wrong.ledger.start(), LedgerUnavailable)
        self.assertIn("accept-loss=0", failure.value.message)
        following = LedgerRig(self, {"accept-loss": "0"}, rig.directory, rig.clock)
        following.salt = 5
        starting = following.ledger.start()
        self.addCleanup(following.close)
        for _ in range(200):
            rig.clock.advance(0.05)
        self.successResultOf(starting)
        self.assertEqual(following.height, 1)
        certificate = following.store.blockHead(1)
        assert certificate is not None
        self.assertGreaterEqual(Certificate.decode(certificate.certificate).round, 1000)
        after = {path.read_text() for path in (rig.directory / "keys").iterdir()}
        self.assertEqual((len(after), before & after), (4, set()))
        following.open()
        following.publish()
        following.settle()
        self.assertEqual(following.sequences(), [1])
        following.check()
        self.successResultOf(following.ledger.stop())
        # The setting does nothing any more.
        last = LedgerRig(self, {"accept-loss": "0"}, rig.directory, rig.clock).start()
        self.assertEqual(last.store.loss, "")
        self.assertEqual({path.read_text() for path in (rig.directory / "keys").iterdir()}, after)


class RoundsTests(OpeningTestCase):
    def signed(self, rig: LedgerRig) -> Signed:
        """The signatures of a ledger's keys at heights that are not stored."""
        return {
            (signer.index, height, round, phase): digest
            for signer in rig.replicaSet._signers
            for (height, round, phase), digest in signer._signed.items()
        }

    def crash(
        self, rig: LedgerRig, *, isWritten: bool, worse: Mapping[int, type[Replica]] | None = None
    ) -> LedgerRig:
        """A ledger on a copy of the files, as after a crash."""
        rig.disk.crash(isWritten=isWritten)
        directory = newDirectory(self)
        shutil.copytree(rig.directory, directory)
        rig.ledger.replicaSet.stop()
        return LedgerRig(self, directory=directory, clock=rig.clock, worse=worse)

    def test_crashWhileStoring(self) -> None:
        """
        Whether or not the block is there, the chain continues without gap or repetition, in an
        unused round.
        """
        for isWritten in (False, True):
            rig = LedgerRig(self).start().open()
            rig.publish(2)
            rig.settle()
            rig.disk.isHeld = True
            rig.publish(3)
            rig.run(0.1)
            before = self.signed(rig)
            self.assertEqual({(h, r) for _, h, r, _ in before}, {(3, 0)})
            following = self.crash(rig, isWritten=isWritten).start()
            self.assertEqual(following.height, 3 if isWritten else 2)
            following.publish()
            following.settle()
            self.assertEqual(following.sequences(), [6 if isWritten else 3])
            following.check()

    def test_noRoundIsSignedTwice(self) -> None:
        """However often it crashes at one height, and however many rounds that takes."""
        deaf = dict.fromkeys(range(4), IgnoresProposals)
        rig = LedgerRig(self, worse=deaf).start().open()
        everything: Signed = {}
        for worse in (deaf, deaf, deaf, None):
            rig.publish()
            rig.run(700, step=1)
            signed = self.signed(rig)
            rounds = {r for _, height, r, _ in signed}
            self.assertGreater(len(rounds), ROUNDS_RESERVED)
            self.assertEqual({height for _, height, _, _ in signed}, {2})
            for place in everything.keys() & signed.keys():
                self.fail(f"{place} was signed before")
            everything.update(signed)
            rig = self.crash(rig, isWritten=False, worse=worse).start()
            self.assertGreater(rig.replicaSet.replicas[0].round, max(rounds))
        rig.publish()
        rig.settle()
        self.assertEqual(rig.sequences(), [1])
        rig.check()

    def test_firstRoundIsUnused(self) -> None:
        """A new chain starts in round 0, another start in a round without signatures."""
        rig = LedgerRig(self).start()
        self.assertEqual(rig.store.reservation(), (1, ROUNDS_RESERVED))
        self.assertEqual({replica.round for replica in rig.replicaSet.replicas}, {0})
        for turn in (1, 2, 3):
            rig = self.crash(rig, isWritten=False).start()
            rounds = {replica.round for replica in rig.replicaSet.replicas}
            self.assertEqual(rounds, {turn * ROUNDS_RESERVED})
            self.assertEqual(rig.store.reservation(), (1, (turn + 1) * ROUNDS_RESERVED))
        rig.open()
        rig = self.crash(rig, isWritten=False).start()
        self.assertEqual({replica.round for replica in rig.replicaSet.replicas}, {ROUNDS_RESERVED})
        self.assertEqual(rig.store.reservation(), (2, 2 * ROUNDS_RESERVED))

    def test_idleAfterRestart(self) -> None:
        """A restarted set with nothing to do stays in its round."""
        rig = self.again(self.chain()).start()
        rig.run(100, step=1)
        self.assertEqual({replica.round for replica in rig.replicaSet.replicas}, {ROUNDS_RESERVED})
        rig.publish()
        rig.run(0.05)
        self.assertEqual(rig.sequences(), [4])
