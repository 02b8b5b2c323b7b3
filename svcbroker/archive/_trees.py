"""
The trees of one block, for the proofs of its events.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from ..chain import (
    Header,
    Malformed,
    MerkleTree,
    decodeTable,
    receiptLeaves,
    transactionHashes,
)
from ..storage import BlockRow


@frozen(kw_only=True)
class BlockTrees:
    """
    The trees of a block. Making them takes a hash or two for each transaction, so who proves many
    events of a block keeps them.

    @ivar offsets: where the block's transactions start in its body.
    @ivar transactions: the tree of its transactions.
    @ivar receipts: the tree of how they ended.
    """

    offsets: Sequence[int]
    transactions: MerkleTree
    receipts: MerkleTree

    @classmethod
    def of(cls, row: BlockRow) -> BlockTrees:
        """
        The trees of a stored block.

        @raise Malformed: the block is damaged: they are not those of its header.
        """
        header = Header.decode(row.header)
        offsets = decodeTable(row.body)
        hashes = transactionHashes(row.body, offsets)
        transactions = MerkleTree(hashes)
        receipts = MerkleTree(receiptLeaves(hashes, row.receipts))
        if (transactions.root, receipts.root) != (header.transactionRoot, header.receiptRoot):
            raise Malformed(f"block {row.height} is not the one that its header stands for")
        return cls(offsets=offsets, transactions=transactions, receipts=receipts)
