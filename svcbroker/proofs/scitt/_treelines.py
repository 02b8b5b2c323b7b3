"""
Lines of checkpoints with the tree of a topic's statements: the log of a chain signs it beside the
root of its blocks, and witnesses see it. So a receipt leads to blocks and witnesses.

B{Frozen bytes}: the line.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from ...chain import Malformed
from .._documents import ProofInvalid
from ..tlog import (
    KeyType,
    Note,
    Policy,
    SignatureRefused,
    TreeHead,
    Witnessed,
    encodeHash,
    parseHash,
    parseNumber,
)
from ._receipts import ConsistencyReceipt, VerifiedReceipt

_NAME = "svcbroker/scitt"


@frozen
class TreeLine:
    """
    The tree of a topic's statements, as a checkpoint says it.

    @ivar topic: the topic, which has no spaces.
    @ivar size: the number of its entries, all of which are in blocks of the checkpoint.
    @ivar root: its root.
    """

    topic: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """The line, without its end."""
        return f"{_NAME} {self.topic} {self.size} {encodeHash(self.root)}"

    @classmethod
    def parse(cls, line: str) -> TreeLine | None:
        """
        Read a line.

        @return: C{None} where it is one of another kind.
        @raise Malformed: it begins as one of these, and is none.
        """
        name, *parts = line.split(" ")
        if name != _NAME:
            return None
        if len(parts) != 3:
            raise Malformed(f"{line[:80]!r} has not a topic, a size and a root")
        return cls(parts[0], parseNumber(parts[1]), parseHash(parts[2]))


@frozen
class WitnessedTree:
    """
    The tree of a receipt in a checkpoint that a policy accepts.

    @ivar line: what the checkpoint says of it.
    """

    line: TreeLine
    witnessed: Witnessed


def verifyWitnessedTree(
    found: Sequence[VerifiedReceipt],
    grown: tuple[ConsistencyReceipt, bytes] | None,
    checkpoint: bytes,
    policy: Policy,
) -> WitnessedTree:
    """
    Verify that the tree of a receipt is in a checkpoint.

    @param found: the verified receipts.
    @param grown: the verified consistency receipt from one of them, and the root of the later tree.
    @param checkpoint: the signed note.
    @param policy: which logs and witnesses are trusted.
    @raise ProofInvalid: it is not, or the policy does not accept the checkpoint.
    """
    witnessed, lines = readTrees(checkpoint, policy)
    trees = {(each.receipt.size, each.root) for each in found}
    if grown is not None:
        trees.add((grown[0].newer, grown[1]))
    for line in lines:
        if (line.size, line.root) in trees:
            return WitnessedTree(line, witnessed)
    sizes = {size for size, _ in trees}
    if any(line.size in sizes for line in lines):
        raise ProofInvalid("the checkpoint has another tree of this size than the receipt")
    shown = " and ".join(f"of {line.size}" for line in lines) or "none"
    raise ProofInvalid(
        f"the checkpoint does not have the tree of a receipt; its trees of statements: {shown}"
    )


def readTrees(checkpoint: bytes, policy: Policy) -> tuple[Witnessed, Sequence[TreeLine]]:
    """
    The trees of statements in a checkpoint that a policy accepts.

    Cosignatures of ML-DSA-44 do not count: they cover the root of the blocks, and no further lines.

    @raise ProofInvalid: the policy does not accept it, or a line is malformed.
    """
    lines, note = treesOf(checkpoint), Note.decode(checkpoint)
    keys = [each.key for each in policy.witnesses.values()]
    partial = {(each.name, each.id) for each in keys if each.type is KeyType.ML_DSA_COSIGNATURE}
    whole = [each for each in note.signatures if (each.name, each.keyId) not in partial]
    try:
        return policy.check(Note(note.text, whole)), lines
    except SignatureRefused as error:
        left = " (of ML-DSA-44 they do not cover the tree)" if partial else ""
        raise ProofInvalid(f"{error}{left}") from None


def treesOf(checkpoint: bytes) -> Sequence[TreeLine]:
    """
    The trees of statements in a checkpoint, of which no signature is verified.

    @raise ProofInvalid: it is none, or a line is malformed.
    """
    try:
        lines = map(TreeLine.parse, TreeHead.parse(Note.decode(checkpoint).text).extensions)
        return [each for each in lines if each is not None]
    except Malformed as error:
        raise ProofInvalid(f"the checkpoint: {error}") from None
