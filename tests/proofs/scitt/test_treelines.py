"""
Tests of the trees of statements in checkpoints of a log.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import History, Malformed, growthPath, historyPath, leafHash
from svcbroker.proofs import ProofInvalid
from svcbroker.proofs.scitt import (
    Claims,
    ServiceKey,
    SignedStatement,
    TreeLine,
    VerifiedReceipt,
    readTrees,
    treesOf,
    verifyGrowth,
    verifyReceipts,
    verifyWitnessedTree,
)
from svcbroker.proofs.tlog import MlDsaWitnessKey, Note, Policy, WitnessKey
from tests.proofs.tlog.support import MemoryLog, mlDsaKey

SERVICE = ServiceKey.derive(bytes(32))
CLAIMS = Claims(issuer="https://acme.example", subject="urn:thing:1")
STATEMENTS = [SERVICE.statement(CLAIMS, "text/plain", b"%d" % each) for each in range(9)]
LOG = MemoryLog(10)
WITNESSES = {name: WitnessKey(f"{name}.example", name.encode() * 16) for name in ("w1", "w2")}
PINNED = "svcbroker/scitt statements 3 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="


def policy(*keys: WitnessKey | MlDsaWitnessKey, quorum: str = "none") -> Policy:
    """One that trusts the log and some witnesses."""
    lines = [f"log {LOG.key.verifier.text}"]
    lines += [f"witness w{place} {key.verifier.text}" for place, key in enumerate(keys, 1)]
    return Policy.parse("\n".join([*lines, f"quorum {quorum}"]).encode())


def checkpoint(lines: Sequence[str], *keys: WitnessKey | MlDsaWitnessKey) -> bytes:
    """The checkpoint of the log with some lines, which witnesses have cosigned."""
    text = evolve(LOG.head(10), extensions=lines).text
    return Note(text).signedBy(LOG.key.sign(text), *(key.cosign(text, 5) for key in keys)).encode()


def treeOf(size: int) -> TreeLine:
    """The line of the tree of the first statements."""
    return TreeLine("statements", size, History.of(STATEMENTS[:size]).root)


def nodes(level: int, first: int, count: int) -> Sequence[bytes]:
    return [leafHash(each) for each in STATEMENTS][first : first + count]


def receipts(size: int) -> Sequence[VerifiedReceipt]:
    """The receipt of the first statement in the tree of a size."""
    path = historyPath(0, size, nodes)
    receipt = SERVICE.inclusion(CLAIMS, 0, size, path, treeOf(size).root)
    return verifyReceipts(SignedStatement.decode(STATEMENTS[0]), [receipt], [SERVICE.public])


class TreeLineTests(SynchronousTestCase):
    """
    Lines, and receipts whose trees they have.
    """

    def test_lineIsReadAsItIsWritten(self) -> None:
        """Pinned: checkpoints are kept for ever."""
        line = TreeLine("statements", 3, bytes(32))
        self.assertEqual(line.text, PINNED)
        self.assertEqual(TreeLine.parse(PINNED), line)
        for other in ("", "x", "svcbroker/scitt2 a b c", PINNED[1:], f" {PINNED}"):
            self.assertIsNone(TreeLine.parse(other))

    def test_malformedLineIsRefused(self) -> None:
        """Even where another one is good: two readers would read two things."""
        for line in (
            "svcbroker/scitt",
            PINNED.replace(" 3 ", " "),
            PINNED.replace(" 3 ", "  3 "),
            PINNED.replace(" 3 ", " 03 "),
            PINNED.replace(" 3 ", " -3 "),
            PINNED.replace(" 3 ", f" {2**63} "),
            PINNED[:-1],
            PINNED.replace("AA=", "AB="),
            f"{PINNED} x",
        ):
            self.assertRaises(Malformed, TreeLine.parse, line)
            data = checkpoint([treeOf(3).text, line])
            self.assertRaises(ProofInvalid, treesOf, data)
            self.assertRaises(ProofInvalid, readTrees, data, policy())
        self.assertRaises(ProofInvalid, treesOf, b"hello")

    def test_receiptLeadsToWitnesses(self) -> None:
        """Whatever other lines the checkpoint has."""
        keys = [*WITNESSES.values()]
        data = checkpoint(["x y", treeOf(3).text, TreeLine("other", 3, bytes(32)).text], *keys)
        found = verifyWitnessedTree(receipts(3), None, data, policy(*keys, quorum="w2"))
        self.assertEqual((found.line, found.witnessed.head.size), (treeOf(3), 10))
        self.assertEqual([each.time for each in found.witnessed.cosignatures], [5, 5])

    def test_laterTreeMayBeInTheCheckpoint(self) -> None:
        """With the consistency receipt from the receipt's to it; never without."""
        data, older = checkpoint([treeOf(9).text]), receipts(4)
        path = growthPath(4, 9, nodes)
        grown = SERVICE.consistency(CLAIMS, 4, 9, path, treeOf(9).root)
        proved = verifyGrowth(older, grown, [SERVICE.public])
        self.assertEqual(verifyWitnessedTree(older, proved, data, policy()).line, treeOf(9))
        error = self.assertRaises(ProofInvalid, verifyWitnessedTree, older, None, data, policy())
        self.assertIn("its trees of statements: of 9", str(error))

    def test_otherCheckpointsProveNothing(self) -> None:
        """Without a tree, with another one, changed, of another log, or not cosigned."""
        good, trusted = checkpoint([treeOf(3).text]), policy()
        for data, accepted, words in (
            (checkpoint([]), trusted, "its trees of statements: none"),
            (checkpoint([treeOf(4).text]), trusted, "its trees of statements: of 4"),
            (
                checkpoint([evolve(treeOf(3), root=bytes(32)).text]),
                trusted,
                "another tree of this size",
            ),
            (good.replace(b" 3 ", b" 4 "), trusted, "signature"),
            (good, Policy.parse(b"quorum none"), "no log of the policy"),
            (good, policy(WITNESSES["w1"], quorum="w1"), "the quorum w1 is not reached"),
        ):
            error = self.assertRaises(
                ProofInvalid, verifyWitnessedTree, receipts(3), None, data, accepted
            )
            self.assertIn(words, str(error))

    def test_cosignaturesThatDoNotCoverTheLineDoNotCount(self) -> None:
        """Those of ML-DSA-44 are of the root of the blocks alone."""
        key = mlDsaKey("w.example")
        data = checkpoint([treeOf(3).text], key)
        policy(key, quorum="w1").check(Note.decode(data))
        error = self.assertRaises(ProofInvalid, readTrees, data, policy(key, quorum="w1"))
        self.assertIn("of ML-DSA-44 they do not cover the tree", str(error))
        witnessed, _ = readTrees(data, policy(key))
        self.assertEqual([*witnessed.cosignatures], [])
