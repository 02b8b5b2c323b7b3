"""
The log of a group, made of its chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twisted.internet.defer import Deferred

from ...chain import History, growthPath, historyPath
from ...errors import HeightUnknown, LedgerUnavailable
from ...interfaces import IProvableLedger
from ...net.deferreds import asDeferred
from ...tlog import (
    TILE_HEIGHT,
    Note,
    Tile,
    Tiles,
    TreeHead,
    encodeEntries,
    encodeTile,
    neededTiles,
)
from .._metadata import MetadataStore
from ._certification import LOG, Certification, LogCertification
from ._checkpoint import LogCheckpoint
from ._cosigned import CosignedCheckpoints

MAX_AGE: Final = 1.0
"""How old, in seconds, the newest checkpoint is before another one is signed."""


def logGroup(kind: str, name: str, value: bytes) -> str:
    """The group of an entry of the metadata store."""
    return name.partition("/")[0]


class TransparencyLog:
    """
    The log of a group. Everything is read from the ledger when it is asked for: at most 256 hashes
    for a tile, and for a checkpoint or a path one or two tiles of each level.

    Its Deferreds may fail with L{LedgerUnavailable<svcbroker.errors.LedgerUnavailable>}.

    @ivar group: the id of the group.
    """

    def __init__(
        self,
        ledger: IProvableLedger,
        store: MetadataStore,
        seconds: Callable[[], float],
        origin: str = "",
        cosigned: CosignedCheckpoints | None = None,
    ) -> None:
        """
        @param store: keeps the served checkpoint, for C{svcbroker log export}.
        @param seconds: a monotonic clock.
        @param origin: the origin of the log; empty for C{svcbroker/} and the chain's id.
        @param cosigned: the checkpoints that witnesses have cosigned, where there are witnesses.
        """
        self.group = ledger.group
        self._ledger = ledger
        self._store = store
        self._seconds = seconds
        self._certification = LogCertification(ledger, store, origin)
        self._cosigned = cosigned
        self._signed: LogCheckpoint | None = None
        self._signedAt = 0.0
        # Witnesses are asked for the same growth at the same time.
        self._growth: tuple[int, int, Sequence[bytes]] | None = None

    def certified(self) -> Deferred[Certification]:
        """The key that signs the log, certified by the chain."""
        return self._certification.certified()

    @asDeferred
    async def size(self) -> int:
        """How many entries the log has now."""
        # Not the statistics, for which some ledgers ask an engine.
        page = await self._ledger.listBlocks(0, 1)
        return page.items[0].height + 1 if page.items else 1

    @asDeferred
    async def serve(self) -> LogCheckpoint:
        """
        The checkpoint for everybody: the newest one that a quorum of witnesses has cosigned; before
        the first one, or without witnesses, the newest one that the log has signed.
        """
        newest = None if self._cosigned is None else self._cosigned.newest
        return await self.sign() if newest is None else newest

    @asDeferred
    async def serveFor(self, index: int) -> LogCheckpoint:
        """
        The checkpoint for the proof of an entry: the earliest one that a quorum has cosigned, since
        its time is the nearest to that of the entry; before it, the newest one of the log.

        @raise HeightUnknown: there is no such entry yet.
        """
        earliest = None if self._cosigned is None else self._cosigned.after(index)
        return await self.sign(index) if earliest is None else earliest

    @asDeferred
    async def sign(self, above: int = -1) -> LogCheckpoint:
        """
        The newest checkpoint, signed by the log alone. It may be L{MAX_AGE} old.

        @param above: the index of an entry that it has to have.
        @raise HeightUnknown: there is no such entry yet.
        """
        signed, now = self._signed, self._seconds()
        # A clock that was set back does not make it a long time.
        isNew = 0 <= now - self._signedAt < MAX_AGE
        if signed is None or signed.head.size <= above or not isNew:
            key = (await self.certified()).key
            size = await self.size()
            if signed is None or size > signed.head.size:
                head = await self.head(key.verifier.name, size)
                signed = LogCheckpoint(head, Note(head.text, (key.sign(head.text),)))
                if self._signed is None or size > self._signed.head.size:
                    self._signed = signed
                    if self._cosigned is None or self._cosigned.newest is None:
                        self._store.put(LOG, f"{self.group}/checkpoint", signed.note.encode())
            self._signedAt = now
        if signed.head.size <= above:
            raise HeightUnknown()
        return signed

    @asDeferred
    async def head(self, origin: str, size: int) -> TreeHead:
        """What a checkpoint of a size says. The chain has so many headers."""
        tiles = await self._tiles(size)
        return TreeHead(origin, size, History.load(size, tiles.source).root)

    @asDeferred
    async def path(self, index: int, size: int) -> Sequence[bytes]:
        """The siblings that prove an entry in the log of a size."""
        tiles = await self._tiles(size, index)
        return historyPath(index, size, tiles.source)

    @asDeferred
    async def growth(self, older: int, newer: int) -> Sequence[bytes]:
        """The consistency proof from one size to another."""
        if self._growth is None or self._growth[:2] != (older, newer):
            tiles = await self._tiles(newer, *([older - 1] if older else ()))
            self._growth = older, newer, growthPath(older, newer, tiles.source)
        return self._growth[2]

    @asDeferred
    async def tile(self, tile: Tile) -> bytes | None:
        """The hashes of a tile; C{None} where the log has not all of them."""
        hashes = await self._ledger.readHistory(TILE_HEIGHT * tile.level, tile.first, tile.width)
        if len(hashes) < tile.width:
            return None
        return encodeTile(tile, hashes)

    @asDeferred
    async def entries(self, tile: Tile) -> bytes | None:
        """The entries of a tile of level 0; C{None} where the log has not all of them."""
        hashes = await self._ledger.readHistory(0, tile.first, tile.width)
        return None if len(hashes) < tile.width else encodeEntries(hashes)

    async def _tiles(self, size: int, *indexes: int) -> Tiles:
        found = {}
        for tile in neededTiles(size, *indexes):
            data = await self.tile(tile)
            if data is None:
                raise LedgerUnavailable("the chain's history is incomplete")
            found[tile] = data
        return Tiles(found)
