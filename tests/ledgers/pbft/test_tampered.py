"""
Tests for opening chains whose history or validator sets were changed.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

from svcbroker.chain import ValidatorSet
from svcbroker.errors import LedgerUnavailable
from tests.ledgers.pbft.rig import LedgerRig, newDirectory
from tests.ledgers.pbft.test_change import ChangeTestCase


class TamperTestCase(ChangeTestCase):
    """
    Shared by these tests.
    """

    def refused(self, rig: LedgerRig, words: str, *changes: tuple[str, tuple[object, ...]]) -> None:
        """Check that a changed copy of a stopped ledger's directory is refused."""
        following = self.copied(rig, *changes)
        error = self.failureResultOf(following.ledger.start(), LedgerUnavailable).value
        self.assertIn(words, error.message)
        self.assertIn("ledger.sqlite is damaged", error.message)
        self.assertEqual(following.keyFiles, rig.keyFiles)

    def copied(self, rig: LedgerRig, *changes: tuple[str, tuple[object, ...]]) -> LedgerRig:
        """Another ledger, on a changed copy of a stopped one's directory."""
        directory = newDirectory(self)
        shutil.copytree(rig.directory, directory)
        with closing(sqlite3.connect(directory / "ledger.sqlite")) as connection:
            for statement, values in changes:
                self.assertEqual(connection.execute(statement, values).rowcount, 1, statement)
            connection.commit()
        following = LedgerRig(self, directory=directory, clock=rig.clock)
        following.salt = rig.salt + 1
        return following


class HistoryTests(TamperTestCase):
    def test_historyMustMatchHeader(self) -> None:
        rig = self.rig(interval="0")
        for _ in range(269):
            rig.publish()
            rig.clock.advance(0)
            rig.clock.advance(0)
        self.assertEqual(rig.height, 270)
        self.assertEqual(len(rig.store.historyNodes(8, 0, 9)), 1)
        self.successResultOf(rig.ledger.stop())
        words = "the history is not that of the last block"
        self.refused(rig, words, ("UPDATE history SET hash = zeroblob(32)", ()))
        self.refused(rig, words, ("UPDATE history SET hash = X'00'", ()))
        self.refused(rig, "the history is incomplete", ("DELETE FROM history", ()))
        self.refused(rig, "incomplete", ("UPDATE history SET position = 1", ()))
        self.refused(rig, "incomplete", ("UPDATE history SET level = 16", ()))
        for height in (256, 269):
            change = ("UPDATE head SET hash = zeroblob(32) WHERE height = ?", (height,))
            self.refused(rig, words, change)
        following = self.copied(rig).start()
        self.assertEqual(rig.sequences(), list(range(1, 270)))
        self.goesOn(following, 270, 271)


class SetTests(TamperTestCase):
    def changed(self) -> LedgerRig:
        """A ledger whose last block changed the nodes for the second time."""
        rig = self.rig()
        rig.change((0,))
        rig.change((1,), 5)
        self.assertEqual(rig.height, 3)
        return rig

    def checkRefused(self, rig: LedgerRig) -> None:
        """Check that other validator sets are refused."""
        _, second = rig.store.validatorSets()
        self.successResultOf(rig.ledger.stop())
        made = ValidatorSet.decode(second.encoded)
        for other in (
            ValidatorSet(2, made.keys[::-1]),
            ValidatorSet(2, made.keys[:4]),
            ValidatorSet(1, made.keys),
            ValidatorSet(3, made.keys),
        ):
            self.refused(
                rig,
                "not ",
                (
                    "UPDATE validator_set SET encoded = ? WHERE generation = 2",
                    (other.encoded,),
                ),
            )
        for bad in (b"", second.encoded[:-1], second.encoded + b"\0", bytes(10)):
            change = ("UPDATE validator_set SET encoded = ? WHERE generation = 2", (bad,))
            self.refused(rig, "", change)
        self.refused(rig, "not ", ("DELETE FROM validator_set WHERE generation = 2", ()))
        insert = "INSERT INTO validator_set VALUES (3, ?, ?)"
        for height in (rig.height, rig.height + 1):
            self.refused(rig, "not ", (insert, (height, ValidatorSet(3, made.keys).encoded)))

    def test_lastBlockChangedTheSet(self) -> None:
        """It was decided by the set before."""
        rig = self.changed()
        self.checkRefused(rig)
        for height in (1, 2, 4):
            change = ("UPDATE validator_set SET height = ? WHERE generation = 2", (height,))
            self.refused(rig, "the last block is not the one it is said to be", change)
        self.goesOn(self.copied(rig).start(), 1)

    def test_lastBlockDecidedByLastSet(self) -> None:
        rig = self.changed()
        self.goesOn(rig, 1)
        self.checkRefused(rig)
        change = ("UPDATE validator_set SET height = 4 WHERE generation = 2", ())
        self.refused(rig, "the last block is not the one it is said to be", change)
        self.goesOn(self.copied(rig).start(), 2)
