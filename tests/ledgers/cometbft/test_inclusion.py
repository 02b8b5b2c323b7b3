"""
Paths of transactions in blocks of the engine.
"""

from __future__ import annotations

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Malformed
from svcbroker.ledgers.cometbft._inclusion import Path, pathOf, rootOf
from svcbroker.proofs.cometbft import Hex, dataHash

from .support import recordedLightBlock, recordedTransactions


class PathTests(SynchronousTestCase):
    """
    L{pathOf} and L{rootOf}.
    """

    def test_recorded(self) -> None:
        """A transaction of a real block is in it."""
        transactions = recordedTransactions()
        path = pathOf(transactions, 0)
        self.assertEqual(rootOf(transactions[0], path), recordedLightBlock().header.dataHash)

    def test_all(self) -> None:
        """Every transaction of blocks of many sizes is in its block, and at its place only."""
        for total in range(1, 20):
            transactions = [b"transaction %d" % index for index in range(total)]
            root = dataHash(transactions)
            for index, transaction in enumerate(transactions):
                path = pathOf(transactions, index)
                self.assertEqual(rootOf(transaction, path), root)
                self.assertNotEqual(rootOf(b"another", path), root)

    def test_changed(self) -> None:
        """No hash on the way may be another one."""
        transactions = [b"transaction %d" % index for index in range(11)]
        root = dataHash(transactions)
        for index, transaction in enumerate(transactions):
            path = pathOf(transactions, index)
            for place, aunt in enumerate(path.aunts):
                other = Hex(bytes([aunt[0] ^ 1]) + aunt[1:])
                aunts = (*path.aunts[:place], other, *path.aunts[place + 1 :])
                changed = msgspec.structs.replace(path, aunts=aunts)
                self.assertNotEqual(rootOf(transaction, changed), root)

    def test_length(self) -> None:
        """A path has as many hashes as its tree has rows."""
        transactions = [b"transaction %d" % index for index in range(5)]
        path = pathOf(transactions, 1)
        for aunts in (path.aunts[:-1], (*path.aunts, path.aunts[0]), ()):
            with self.assertRaises(Malformed):
                rootOf(transactions[1], msgspec.structs.replace(path, aunts=aunts))

    def test_outside(self) -> None:
        """There is no path from outside."""
        self.assertRaises(IndexError, pathOf, [b"one"], 1)
        self.assertRaises(IndexError, pathOf, [b"one"], -1)
        self.assertRaises(Malformed, rootOf, b"one", Path(index=1, total=1, aunts=()))
        self.assertRaises(Malformed, rootOf, b"one", Path(index=0, total=0, aunts=()))
