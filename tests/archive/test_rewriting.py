"""
Tests for auditing histories that are not the one that there was.
"""

from __future__ import annotations

import shutil

from svcbroker.chain import Kind
from svcbroker.proofs import Checkpoint
from svcbroker.storage import Store
from tests.archive.support import ArchiveTestCase


class RewritingTests(ArchiveTestCase):
    """
    Histories that are not the one that there was.
    """

    def test_reorderedBlocksAreFound(self) -> None:
        """Blocks that are swapped, repeated or left out."""
        self.makeDirectory()
        whole = self.path.read_bytes()
        for statements, words in (
            (
                [
                    "UPDATE head SET height = -1 WHERE height = 3",
                    "UPDATE head SET height = 3 WHERE height = 4",
                    "UPDATE head SET height = 4 WHERE height = -1",
                ],
                "block 3, head.header: its hash is",
            ),
            (
                [
                    "UPDATE body SET height = -1 WHERE height = 3",
                    "UPDATE body SET height = 3 WHERE height = 4",
                    "UPDATE body SET height = 4 WHERE height = -1",
                ],
                "block 3, transaction 0, body.body: these are not the transactions of its header",
            ),
            (["DELETE FROM head WHERE height = 3"], "block 3, head.height: block 3 is missing"),
            (
                ["DELETE FROM head WHERE height BETWEEN 1 AND 3"],
                "block 3, head.height: blocks 1 to 3 are missing",
            ),
            (["DELETE FROM body WHERE height = 3"], "block 3, body: the block has no body"),
            (
                [
                    "DELETE FROM head WHERE height = 4",
                    "INSERT INTO head SELECT 4, transaction_total, zeroblob(32), header,"
                    " certificate, base FROM head WHERE height = 3",
                ],
                "block 4, head.header: its hash is",
            ),
        ):
            with self.subTest(statements=statements):
                for statement in statements:
                    self.change(statement)
                self.bad(words)
                self.path.write_bytes(whole)

    def makeCut(self, reserved: int) -> Checkpoint:
        """
        A chain whose last block was removed from every table, so that it is as it was before.

        @param reserved: the block of which rounds were set aside, in the end.
        @return: the removed block.
        """
        chain = self.makeChain(blocks=1)
        before = self.dataDir.with_name("before")
        shutil.copytree(self.dataDir, before)
        chain.publish("first", b"to be removed")
        removed = Checkpoint.of(chain.head)
        chain.close()
        store = Store.open(before / "1" / "ledger.sqlite")
        store.reserve(reserved, 8)
        store.close()
        shutil.rmtree(self.dataDir)
        before.rename(self.dataDir)
        return removed

    def test_shortenedChainMissesCheckpoint(self) -> None:
        """A chain that was cut off looks good, and does not have the checkpoint."""
        removed = self.makeCut(reserved=1)
        self.assertTrue(self.audit().isGood)
        self.bad(
            f"group 1, checkpoint: the chain ends at block {removed.height - 1}, before checkpoint "
            f"{removed.height}",
            checkpoints={"1": [removed]},
        )

    def test_cutBehindReservation(self) -> None:
        """If rounds were set aside for a block behind the end, that shows."""
        removed = self.makeCut(reserved=9)
        self.bad(f"a round of block 9 was set aside, so blocks after {removed.height - 1}")

    def test_rewrittenChainMissesCheckpoint(self) -> None:
        """A history that was decided anew with the true keys is as good as any other, but for
        whoever has kept a checkpoint."""
        chain = self.makeChain(blocks=1)
        kept = Checkpoint.of(chain.head)
        genesis = Checkpoint(0, chain.genesis.header().hash)
        chain.close()
        shutil.rmtree(self.dataDir)
        other = self.makeChain(blocks=1)
        other.decide([other.transaction(Kind.PUBLISH, "first", b"another past")])
        shutil.rmtree(self.dataDir)
        other = self.makeChain(blocks=2)
        self.finish(other)
        self.assertEqual(other.genesis, chain.genesis)
        self.good()
        self.good(checkpoints={"1": [genesis, Checkpoint.of(other.head)]})
        self.bad(
            f"block {kept.height}, checkpoint: the block is not the one of checkpoint {kept}: "
            "the chain was rewritten",
            checkpoints={"1": [genesis, kept]},
        )

    def test_missingBlockMissesCheckpoint(self) -> None:
        """A checkpoint whose block is missing is not said to be behind the end of the chain."""
        chain = self.makeDirectory()
        self.change("DELETE FROM head WHERE height = 3")
        found = self.bad(
            "group 1, checkpoint: the block of checkpoint 3 is missing",
            checkpoints={"1": [Checkpoint(3, bytes(32)), Checkpoint.of(chain.head)]},
        )
        self.assertEqual(sum("checkpoint" in line for line in found), 1)

    def test_chainOfOtherGenesisIsFound(self) -> None:
        """A whole other chain is good, but not of the same genesis."""
        self.makeDirectory()
        self.bad(
            "block 0, checkpoint: the block is not the one",
            checkpoints={"1": [Checkpoint(0, bytes(32))]},
        )
        self.bad("there is no chain of group 7", checkpoints={"7": []})

    def test_chainOfOtherGroupIsFound(self) -> None:
        """A chain in the directory of another group."""
        self.makeDirectory()
        self.directory.rename(self.dataDir / "2")
        self.bad("group 2, chain.genesis: it is the chain of group '1'")
