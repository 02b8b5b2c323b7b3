"""
Copies of chains that engines decided.
"""

from __future__ import annotations

from pathlib import Path

from svcbroker.archive import STORE_NAME, audit
from svcbroker.ledgers.copy import CopyRefusal
from svcbroker.storage import Store
from tests.ledgers.cometbft.chains import makeChain

from .rig import CopyTestCase, FakeOriginal

CHANGE = 22
"""The height at which the nodes change."""


class EngineTests(CopyTestCase):
    """
    Only blocks with transactions, which are every other one, have certificates.
    """

    def makeOriginal(self, count: int, *, isProved: bool = True, change: int = CHANGE) -> Path:
        """A chain of an engine."""
        directory = self.root / f"engine {count}"
        directory.mkdir()
        makeChain(directory / STORE_NAME, count, change=change, isProved=isProved)
        self.original = FakeOriginal(directory)
        return directory

    def test_blocksAreCopiedUpToTheLastCertificate(self) -> None:
        """A block without a certificate is copied with the next one that has one."""
        self.makeOriginal(41, change=0)
        copy = self.start()
        self.assertEqual((copy.progress.height, copy.progress.behind), (40, 0))
        self.assertEqual(self.reason(), "")
        self.assertGreater(len(self.contents()), 40)
        self.stop()
        result = audit(self.directory.parent)
        self.assertTrue(result.isGood, list(result.all()))

    def test_originalIsFollowed(self) -> None:
        """A restarted copy goes on after its last block."""
        self.makeOriginal(20)
        self.start()
        self.stop()
        self.makeOriginal(44)
        self.assertEqual(self.start().progress.height, 44)

    def test_proofsAreMade(self) -> None:
        """Events of the copy are proved with the certificates that were copied."""
        self.makeOriginal(30)
        copy = self.start()
        block = self.successResultOf(copy.readBlock(10))
        proof = self.successResultOf(copy.prove(block.events[0].eventId, None))
        self.assertEqual(proof.block.header.height, 10)
        self.assertEqual(self.successResultOf(copy.getCheckpoint(None)).height, 30)

    def test_nothingIsCopiedWithoutCertificates(self) -> None:
        """Blocks cannot be copied where none has a certificate."""
        self.makeOriginal(10, isProved=False)
        self.assertEqual(self.start().progress.height, 0)

    def test_forgedCertificateIsRefused(self) -> None:
        """A certificate of another block makes none final, and the state is as it was."""
        directory = self.makeOriginal(12)
        store = Store.open(directory / STORE_NAME)
        row = store.blockHead(10)
        assert row is not None
        store.close()
        other = self.root / "forged"
        other.mkdir()
        makeChain(other / STORE_NAME, 11)
        store = Store.open(other / STORE_NAME)
        store.certify({8: row.certificate})
        store.close()
        self.original = FakeOriginal(other)
        progress = self.start().progress
        assert progress.refused is not None
        self.assertEqual(progress.refused.refusal, CopyRefusal.BLOCK)
        self.assertEqual(progress.height, 0)
        self.assertEqual(self.successResultOf(self.copy.listTopics(0, 9)).total, 0)
