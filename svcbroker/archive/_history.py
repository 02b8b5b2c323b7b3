"""
The history tree of a stored chain.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..chain import NodeSource, leafHash
from ..storage import ChainReader


def storedHistory(store: ChainReader, genesis: bytes) -> NodeSource:
    """
    Gives the nodes of a chain's history tree from its store.

    @param genesis: the hash of the header of height 0, which is not in the store.
    """

    def source(level: int, first: int, count: int) -> Sequence[bytes]:
        if level:
            return store.historyNodes(level, first, count)
        hashes = [genesis] if first == 0 else []
        hashes += store.blockHashes(first + len(hashes), count - len(hashes))
        return [leafHash(hash) for hash in hashes]

    return source
