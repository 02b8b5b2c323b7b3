"""
A log in memory, for tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256

from twisted.trial.unittest import SkipTest

from svcbroker.chain import History, growthPath, historyPath, leafHash, merkleRoot
from svcbroker.proofs.tlog import (
    AddCheckpoint,
    LogKey,
    LogProof,
    MlDsaWitnessKey,
    Note,
    Tile,
    Tiles,
    TreeHead,
    WitnessKey,
    neededTiles,
)

ORIGIN = "broker.example/log"


def mlDsaKey(name: str) -> MlDsaWitnessKey:
    """The key of ML-DSA of a witness. Skips the test where the library has none."""
    key = MlDsaWitnessKey.of(name, b"w" * 32)
    if key is None:
        raise SkipTest("cryptography has no ML-DSA: 48 or later does")
    return key


class MemoryLog:
    """
    A log of some entries.

    @ivar key: signs its checkpoints.
    @ivar entries: its entries.
    """

    def __init__(self, size: int, origin: str = ORIGIN, seed: bytes = b"l" * 32) -> None:
        self.key = LogKey(origin, seed)
        self.use([sha256(b"%d" % number).digest() for number in range(size)])

    def use(self, entries: Sequence[bytes]) -> None:
        """Have these entries."""
        self.entries = entries
        self._levels = {0: [leafHash(each) for each in entries]}
        for level in range(0, 24, 8):
            below = self._levels[level]
            self._levels[level + 8] = [
                merkleRoot(below[start : start + 256]) for start in range(0, len(below) - 255, 256)
            ]

    def forked(self, place: int) -> MemoryLog:
        """The log with another entry at a place."""
        fork = MemoryLog(0, self.key.verifier.name)
        fork.key = self.key
        fork.use([*self.entries[:place], b"another", *self.entries[place + 1 :]])
        return fork

    def nodes(self, level: int, first: int, count: int) -> Sequence[bytes]:
        """See L{NodeSource<svcbroker.chain.NodeSource>}."""
        return self._levels[level][first : first + count]

    def tile(self, tile: Tile) -> bytes:
        """The hashes of a tile."""
        return b"".join(self.nodes(8 * tile.level, tile.first, tile.width))

    def tiles(self, size: int, *indexes: int) -> Tiles:
        """The part that is needed of the tiles of a size."""
        found: Mapping[Tile, bytes] = {
            each: self.tile(each) for each in neededTiles(size, *indexes)
        }
        return Tiles(found)

    def head(self, size: int) -> TreeHead:
        """The tree head of a size."""
        return TreeHead(self.key.verifier.name, size, History.load(size, self.nodes).root)

    def checkpoint(self, size: int, *witnesses: tuple[WitnessKey | MlDsaWitnessKey, int]) -> Note:
        """The checkpoint of a size, signed, and cosigned at some times."""
        text = self.head(size).text
        cosigned = [key.cosign(text, time) for key, time in witnesses]
        return Note(text).signedBy(self.key.sign(text), *cosigned)

    def proof(self, index: int, size: int, *witnesses: tuple[WitnessKey, int]) -> LogProof:
        """The proof of an entry."""
        path = tuple(historyPath(index, size, self.nodes))
        return LogProof(index=index, path=path, checkpoint=self.checkpoint(size, *witnesses))

    def request(self, older: int, newer: int) -> AddCheckpoint:
        """The request to a witness."""
        return AddCheckpoint(
            older=older,
            proof=tuple(growthPath(older, newer, self.nodes)),
            checkpoint=self.checkpoint(newer),
        )
